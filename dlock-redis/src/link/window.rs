//! The limit of requests under way on one connection, so that renewals are answered in time.
//!
//! A server answers a connection's requests in their order. So a renewal waits for all requests
//! before it, and thousands of waiters of one client could cost that client its own locks.
//! Therefore each kind of request that many tasks may send at a time has a window: a fixed number
//! is under way, and the others wait here, first in, first out. Renewals have no window.
//!
//! | kind | under way at a time |
//! |---|---|
//! | renewals | all: the core sends them in batches |
//! | releases | [`RELEASES`] |
//! | polls of waiters | [`POLLS`], of up to a hundred claims each |
//! | acquires, and all others | [`ACQUIRES`] |
//!
//! An acquire that still waits here when its caller has gone is dropped. Without this, a client
//! with more tasks than the server can serve in time would only send acquires that come too late.
//!
//! The response timeout starts when a request has passed its window. If the connection is closed,
//! the requests that wait here fail without having been sent, and their retries use the next
//! connection.

use std::sync::OnceLock;

use dlock_core::{AcquireRequest, ClaimId, Clock, Error, ErrorKind, Instant, SendFlag};
use redis::RedisResult;
use tokio::sync::{Semaphore, SemaphorePermit, TryAcquireError};

use crate::{error::not_connected, unanswered::Unanswered};

const RELEASES: usize = 256;
const POLLS: usize = 4;
const ACQUIRES: usize = 256;

/// The kind of a request, which chooses its window.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// It renews held claims.
    Renewal,
    /// It releases or cancels a claim, or completes an acquire.
    Release,
    /// It polls for waiting claims.
    Poll,
    /// It takes a lock, or reads.
    Acquire,
}

/// The effect of a command on claims, as far as it matters to a link.
#[derive(Clone, Copy)]
pub(crate) enum Role<'a> {
    /// It does no harm if it arrives late: it renews existing claims, or reads.
    Other,
    /// It may grant locks to existing claims. So it must not go to a server that may have lost its
    /// data.
    Grants,
    /// It renews held claims, and may grant locks to others if one of them becomes weaker. A server
    /// that may have lost its data gets an argument that forbids grants.
    Renews,
    /// It grants locks and positions in queues to new claims, but not after its deadline.
    Acquires(&'a Unanswered, &'a [AcquireRequest]),
    /// It releases or cancels a claim, and may grant the lock to others. A server that may have lost
    /// its data gets an argument that forbids grants.
    Releases(&'a Unanswered, ClaimId),
}

/// The kind and role of a request, and the time when it was first sent.
#[derive(Clone)]
pub(crate) struct Sending<'a> {
    pub(crate) kind: Kind,
    pub(crate) role: Role<'a>,
    /// For an acquire that its caller may give up before it is sent.
    pub(crate) flag: Option<&'a SendFlag>,
    began: OnceLock<Instant>,
}

impl<'a> Sending<'a> {
    pub(crate) const fn of(kind: Kind) -> Self {
        Self { kind, role: Role::Other, flag: None, began: OnceLock::new() }
    }

    /// Records that it is being sent. Only the first call counts: a lease counts from the first
    /// sending.
    pub(super) fn begin(&self) {
        self.commit();
        self.began.get_or_init(|| Clock::Boot.now());
    }

    /// Records that its caller can't give it up any more. That is also the case while it waits for
    /// a connection: the error then names the cause.
    pub(crate) fn commit(&self) {
        if let Some(flag) = self.flag {
            // Always true: this runs in the future that the core drops when it gives a request up.
            flag.begin();
        }
    }

    /// Returns a time just before it was first sent. For a request that was never sent, the
    /// earliest time.
    pub(crate) fn began(&self) -> Instant {
        self.began.get().copied().unwrap_or(Instant::from_nanos(0))
    }
}

/// The windows of one connection.
#[derive(Debug)]
pub(super) struct Window {
    releases: Semaphore,
    polls: Semaphore,
    acquires: Semaphore,
}

impl Window {
    pub(super) const fn new() -> Self {
        Self {
            releases: Semaphore::const_new(RELEASES),
            polls: Semaphore::const_new(POLLS),
            acquires: Semaphore::const_new(ACQUIRES),
        }
    }

    /// Waits until a request of this kind may be sent. It is under way until the permit is dropped.
    ///
    /// # Errors
    /// An error if the connection is closed: nothing was sent.
    pub(super) async fn enter(&self, kind: Kind) -> RedisResult<Option<SemaphorePermit<'_>>> {
        let window = match kind {
            Kind::Renewal => return Ok(None),
            Kind::Release => &self.releases,
            Kind::Poll => &self.polls,
            Kind::Acquire => &self.acquires,
        };
        let entered = match window.try_acquire() {
            Ok(permit) => Ok(permit),
            // Boxed, since most requests find room at once.
            Err(TryAcquireError::NoPermits) => Box::pin(window.acquire()).await.map_err(drop),
            Err(TryAcquireError::Closed) => Err(()),
        };
        entered.map(Some).map_err(|()| {
            let why = "the connection was lost before the request was sent";
            not_connected(&Error::new(ErrorKind::Unavailable, why))
        })
    }

    /// Makes the waiting requests fail, because the connection is being closed.
    pub(super) fn close(&self) {
        for window in [&self.releases, &self.polls, &self.acquires] {
            window.close();
        }
    }
}

#[cfg(test)]
mod tests {
    use std::task::{Context, Poll as Polled, Waker};

    use super::*;
    use crate::error::{Remedy, explain, remedy_of};

    const ALL: [(Kind, usize); 3] =
        [(Kind::Release, RELEASES), (Kind::Poll, POLLS), (Kind::Acquire, ACQUIRES)];

    type Entering<'a> =
        std::pin::Pin<Box<dyn Future<Output = RedisResult<Option<SemaphorePermit<'a>>>> + 'a>>;

    fn enter(window: &Window, kind: Kind) -> Entering<'_> {
        Box::pin(window.enter(kind))
    }

    fn poll<'a>(entering: &mut Entering<'a>) -> Polled<RedisResult<Option<SemaphorePermit<'a>>>> {
        entering.as_mut().poll(&mut Context::from_waker(Waker::noop()))
    }

    /// Fills the window, and returns the permits that were available at once.
    fn fill(window: &Window, kind: Kind, most: usize) -> Vec<SemaphorePermit<'_>> {
        let now = |_| match poll(&mut enter(window, kind)) {
            Polled::Ready(Ok(permit)) => permit,
            _ => None,
        };
        (0..most + 3).filter_map(now).collect()
    }

    #[test]
    fn a_renewal_is_never_delayed() {
        let window = Window::new();
        let full: Vec<_> =
            ALL.iter().flat_map(|(kind, most)| fill(&window, *kind, *most)).collect();
        assert_eq!(full.len(), RELEASES + POLLS + ACQUIRES);
        for _ in 0..1000 {
            let renewal = poll(&mut enter(&window, Kind::Renewal));
            assert!(matches!(renewal, Polled::Ready(Ok(None))));
        }
    }

    #[test]
    fn each_kind_has_its_own_window() {
        for (at, (kind, most)) in ALL.into_iter().enumerate() {
            let window = Window::new();
            let full = fill(&window, kind, most);
            assert_eq!(full.len(), most, "{kind:?}");
            for (other, _) in ALL.into_iter().enumerate().filter(|(i, _)| *i != at).map(|x| x.1) {
                assert!(poll(&mut enter(&window, other)).is_ready(), "{kind:?} {other:?}");
            }
        }
    }

    #[test]
    fn waiting_requests_enter_in_order_and_may_be_dropped() {
        let window = Window::new();
        let mut full = fill(&window, Kind::Acquire, ACQUIRES);
        let mut waiting: Vec<_> = (0..5).map(|_| enter(&window, Kind::Acquire)).collect();
        assert!(waiting.iter_mut().all(|entering| poll(entering).is_pending()));
        drop(waiting.remove(0));
        for _ in 0..4 {
            full.pop();
            // A request that comes later does not overtake those that wait.
            assert!(poll(&mut enter(&window, Kind::Acquire)).is_pending());
            let Polled::Ready(Ok(Some(permit))) = poll(&mut waiting.remove(0)) else {
                panic!("out of order")
            };
            assert!(waiting.iter_mut().all(|entering| poll(entering).is_pending()));
            full.push(permit);
        }
    }

    #[test]
    fn waiting_requests_of_a_lost_connection_can_be_retried() {
        let window = Window::new();
        let full = fill(&window, Kind::Acquire, ACQUIRES);
        let mut waiting = enter(&window, Kind::Acquire);
        assert!(poll(&mut waiting).is_pending());
        window.close();
        for mut entering in [waiting, enter(&window, Kind::Release)] {
            let Polled::Ready(Err(error)) = poll(&mut entering) else { panic!("not refused") };
            assert_eq!(remedy_of(&error), Remedy::Retry);
            assert_eq!(explain(error).certainty(), dlock_core::Certainty::NotApplied);
        }
        drop(full);
    }
}

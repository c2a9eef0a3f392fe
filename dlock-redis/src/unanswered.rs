//! The acquires that have no answer, and may reach their server late.
//!
//! Each acquire carries a deadline by its server's clock. This client waits for the answer until
//! the deadline, and after it the script does nothing. But a client that loses its connection stops
//! waiting earlier. It continues over another connection, where the release of the claim may
//! overtake the acquire. Then the release finds nothing, and the acquire takes the lock for a claim
//! that has ended.
//!
//! So each acquire without an answer is remembered here. The release of its claim settles the
//! acquires that were sent on the same connection, which keeps the order, and those whose deadline
//! had passed. If others are left, the claim is released once more after their deadlines: see
//! [`deferred_releases`](crate::deferred_releases). The deadline of a [`take`](crate::take) is a lease
//! away, so its claim is released again and again until then. While every request is answered, nothing is
//! remembered, and nothing more is sent. Without this, `proof/dlock-models/src/redis_late.rs` finds a lock without a holder.
//!
//! # Concurrency
//!
//! The flag of a connection ([`ConnectionId`]) goes from open to closed once. The task that serves the
//! connection sets it, after the server has closed its side; releases and later acquires read it. A
//! reader that sees the old value remembers an acquire for longer than necessary, which only costs
//! a second cancel. The claims change under their mutex.

use std::{
    collections::HashMap,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use dlock_core::{AcquireRequest, ClaimId, Clock, Instant};
use parking_lot::Mutex;

/// At this size, claims that are over are removed. If there are none, no more claims are
/// remembered.
const MOST: usize = 4096;

/// The acquires of one client without an answer.
#[derive(Default)]
pub(crate) struct Unanswered(Mutex<HashMap<ClaimId, Vec<UnansweredAcquire>>>);

/// One sending.
struct UnansweredAcquire {
    id: ConnectionId,
    /// When its deadline has certainly passed, by this client's clock.
    until: Instant,
    /// Whether it is a [`take`](crate::take), whose deadline is a lease away.
    is_take: bool,
}

/// The acquires of a claim that may still arrive.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct LateAcquires {
    /// When all their deadlines have certainly passed.
    pub(crate) until: Instant,
    /// Whether to release the claim before that as well, since it is far away.
    pub(crate) is_take: bool,
}

/// A connection, and whether the other side has closed it. No two connections are equal.
#[derive(Clone, Debug, Default)]
pub(crate) struct ConnectionId(Arc<AtomicBool>);

/// An acquire that is being sent. If this is dropped before the answer, the acquire is remembered.
pub(crate) struct PendingAcquire<'a> {
    unanswered: &'a Unanswered,
    requests: &'a [AcquireRequest],
    lost: Option<UnansweredAcquire>,
}

/// Returns how long to wait for the answer to an acquire of these claims: no longer than the
/// shortest lease, since a grant that is older than its lease is worthless.
pub(crate) fn answer_timeout(requests: &[AcquireRequest], response_timeout: Duration) -> Duration {
    requests.iter().map(|request| request.lease).fold(response_timeout, Duration::min)
}

impl Unanswered {
    /// Records that an acquire of these claims is sent over this connection. Its sender waits for
    /// `timeout`.
    pub(crate) fn sending<'a>(
        &'a self,
        requests: &'a [AcquireRequest],
        id: &ConnectionId,
        now: Instant,
        timeout: Duration,
    ) -> PendingAcquire<'a> {
        // The server's clock may be slower than this one.
        let longest = timeout.saturating_add(timeout / 50) + Duration::from_millis(10);
        let until = now.saturating_add(longest);
        let lost = UnansweredAcquire { id: id.clone(), until, is_take: false };
        PendingAcquire { unanswered: self, requests, lost: Some(lost) }
    }

    /// Records that the server has answered a request about this claim, which was sent at `sent`
    /// over this connection. So the acquires that were sent before it on this connection can't
    /// arrive later, nor those whose deadline had passed.
    pub(crate) fn settle(&self, claim: ClaimId, id: &ConnectionId, sent: Instant) {
        let mut claims = self.0.lock();
        if let Some(lost) = claims.get_mut(&claim) {
            lost.retain(|lost| !lost.id.is(id) && lost.until > sent);
            if lost.is_empty() {
                claims.remove(&claim);
            }
        }
    }

    /// Returns the acquires of this claim that may still arrive, and forgets the claim.
    pub(crate) fn take(&self, claim: ClaimId) -> Option<LateAcquires> {
        let lost = self.0.lock().remove(&claim)?;
        let until = lost.iter().map(|lost| lost.until).max()?;
        Some(LateAcquires { until, is_take: lost.iter().any(|lost| lost.is_take) })
    }

    /// Returns whether acquires of this claim may still arrive.
    pub(crate) fn has(&self, claim: ClaimId) -> bool {
        self.0.lock().contains_key(&claim)
    }

    fn add(&self, claim: ClaimId, lost: UnansweredAcquire, now: Instant) {
        let mut claims = self.0.lock();
        if claims.len() >= MOST {
            claims.retain(|_, all| all.iter().any(|lost| lost.until > now));
        }
        if claims.len() < MOST {
            claims.entry(claim).or_default().push(lost);
        }
    }
}

impl PendingAcquire<'_> {
    /// Marks it as a [`take`](crate::take), or not.
    pub(crate) fn of_take(mut self, is_take: bool) -> Self {
        if let Some(lost) = &mut self.lost {
            lost.is_take = is_take;
        }
        self
    }

    /// Records that the server has answered the acquire that was sent at this time. The acquires
    /// that were sent before it are settled as well.
    pub(crate) fn answered(mut self, sent: Instant) {
        let Some(lost) = self.lost.take() else { return };
        for request in self.requests {
            self.unanswered.settle(request.claim, &lost.id, sent);
        }
    }
}

impl Drop for PendingAcquire<'_> {
    fn drop(&mut self) {
        let Some(UnansweredAcquire { id, until, is_take }) = self.lost.take() else { return };
        for request in self.requests {
            let lost = UnansweredAcquire { id: id.clone(), until, is_take };
            self.unanswered.add(request.claim, lost, Clock::Boot.now());
        }
    }
}

impl ConnectionId {
    fn is(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }

    /// Records that the other side has closed the connection.
    pub(crate) fn close(&self) {
        self.0.store(true, Ordering::SeqCst);
    }

    pub(crate) fn is_closed(&self) -> bool {
        self.0.load(Ordering::SeqCst)
    }
}

#[cfg(test)]
mod tests {
    use dlock_core::{LockName, Mode};

    use super::*;

    const TIMEOUT: Duration = Duration::from_secs(2);

    fn at(seconds: u64) -> Instant {
        Instant::from_nanos(0).saturating_add(Duration::from_secs(seconds))
    }

    fn request() -> AcquireRequest {
        AcquireRequest::new(LockName::new("a").unwrap(), Mode::Exclusive, Duration::from_secs(30))
    }

    #[test]
    fn an_answered_request_is_not_remembered() {
        let (unanswered, request) = (Unanswered::default(), [request()]);
        unanswered.sending(&request, &ConnectionId::default(), at(1), TIMEOUT).answered(at(1));
        assert_eq!(unanswered.take(request[0].claim), None);
    }

    #[test]
    fn a_release_settles_earlier_requests_of_its_connection() {
        let (unanswered, requests) = (Unanswered::default(), [request(), request()]);
        let [one, two] = [(); 2].map(|()| ConnectionId::default());
        let lose = |id, now| drop(unanswered.sending(&requests, id, at(now), TIMEOUT));
        let [first, second] = [&requests[0], &requests[1]].map(|request| request.claim);
        lose(&one, 1);
        unanswered.settle(first, &one, at(1));
        assert_eq!(unanswered.take(first), None, "on the same connection");
        unanswered.settle(second, &two, at(1));
        let until = unanswered.take(second).unwrap().until;
        assert!(until > at(3) && until < at(4), "{until:?}");
        assert_eq!(unanswered.take(second), None, "it is taken");
        lose(&one, 1);
        lose(&two, 2);
        unanswered.settle(first, &two, at(3));
        assert!(unanswered.take(first).unwrap().until < at(4), "the other is left");
        unanswered.settle(second, &ConnectionId::default(), at(5));
        assert_eq!(unanswered.take(second), None, "both are past");
    }

    #[test]
    fn an_answer_is_awaited_for_at_most_a_lease() {
        let (long, short) = (request(), request().with_lease(TIMEOUT / 4));
        assert_eq!(answer_timeout(std::slice::from_ref(&long), TIMEOUT), TIMEOUT);
        assert_eq!(answer_timeout(&[long, short], TIMEOUT), TIMEOUT / 4);
    }

    #[test]
    fn claims_are_bounded() {
        let unanswered = Unanswered::default();
        for _ in 0..MOST + 9 {
            drop(unanswered.sending(
                &[request()],
                &ConnectionId::default(),
                Clock::Boot.now(),
                TIMEOUT,
            ));
        }
        assert_eq!(unanswered.0.lock().len(), MOST);
    }
}

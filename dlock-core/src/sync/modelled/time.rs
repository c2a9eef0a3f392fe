//! Time that a scenario advances. It is per thread, since all tasks of an execution share one
//! thread.

use std::{
    cell::RefCell,
    future::poll_fn,
    pin::pin,
    task::{Poll, Waker},
    time::Duration,
};

use super::point;

#[derive(Default)]
struct Timers {
    now: Duration,
    waiting: Vec<(Duration, Waker)>,
}

thread_local! {
    static TIMERS: RefCell<Timers> = RefCell::default();
}

/// The work was not done in time.
#[derive(Debug)]
pub(crate) struct Elapsed;

/// The time of a wake-up.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Instant(Duration);

impl Instant {
    pub(crate) fn now() -> Self {
        Self(now())
    }

    pub(crate) fn checked_add(self, by: Duration) -> Option<Self> {
        self.0.checked_add(by).map(Self)
    }

    pub(crate) fn saturating_duration_since(&self, earlier: Self) -> Duration {
        self.0.saturating_sub(earlier.0)
    }
}

impl std::ops::Add<Duration> for Instant {
    type Output = Self;

    fn add(self, by: Duration) -> Self {
        Self(self.0.saturating_add(by))
    }
}

/// Begins a new execution, an hour after the origin.
pub(crate) fn begin() {
    TIMERS.with_borrow_mut(|timers| {
        *timers = Timers { now: Duration::from_secs(3600), waiting: Vec::new() };
    });
}

/// Returns the time since the origin.
pub(crate) fn now() -> Duration {
    TIMERS.with_borrow(|timers| timers.now)
}

/// Advances the time and wakes the tasks whose time has come.
pub(crate) fn advance(by: Duration) {
    point();
    let due = TIMERS.with_borrow_mut(|timers| {
        timers.now += by;
        let now = timers.now;
        timers.waiting.extract_if(.., |(at, _)| *at <= now).collect::<Vec<_>>()
    });
    due.into_iter().for_each(|(_, waker)| waker.wake());
}

pub(crate) async fn sleep(wait: Duration) {
    sleep_until(Instant::now() + wait).await;
}

pub(crate) async fn timeout<T>(
    wait: Duration,
    work: impl Future<Output = T>,
) -> Result<T, Elapsed> {
    timeout_at(Instant::now() + wait, work).await
}

pub(crate) async fn timeout_at<T>(
    deadline: Instant,
    work: impl Future<Output = T>,
) -> Result<T, Elapsed> {
    let (mut work, mut late) = (pin!(work), pin!(sleep_until(deadline)));
    poll_fn(|context| {
        if let Poll::Ready(done) = work.as_mut().poll(context) {
            return Poll::Ready(Ok(done));
        }
        late.as_mut().poll(context).map(|()| Err(Elapsed))
    })
    .await
}

async fn sleep_until(at: Instant) {
    poll_fn(|context| {
        TIMERS.with_borrow_mut(|timers| {
            if timers.now >= at.0 {
                return Poll::Ready(());
            }
            timers.waiting.push((at.0, context.waker().clone()));
            Poll::Pending
        })
    })
    .await;
}

//! The retries of an operation: the retry budget and the pauses.
//!
//! It also remembers the certainty over all attempts. If any of them may have been applied, the
//! last error says so, even if the last attempt itself was refused.

use std::time::Duration;

use dlock_core::{Backoff, Certainty, Clock, Error, Instant};

use super::{
    fault::{Fault, Remedy},
    tasks::Sleeper,
};

/// The number of retries without a pause while another client writes. A write takes tens of
/// microseconds, which is also the time of a retry.
const AT_ONCE: u32 = 4;
/// The first pause.
const SHORTEST: Duration = Duration::from_micros(100);
const LONGEST: Duration = Duration::from_millis(10);

/// The time for which a store that is being opened continues to connect after a failure.
#[cfg(any(feature = "mysql", feature = "postgres"))]
const SOON: Duration = Duration::from_millis(250);

/// The retry budget of one operation.
#[derive(Debug)]
pub(crate) struct RetryBudget {
    until: Instant,
    at_once: u32,
    backoff: Backoff,
    certainty: Certainty,
    /// The faults with these remedies are returned to the caller, once they have lasted for `grace`.
    left: &'static [Remedy],
    grace: Duration,
    first_left: Option<Instant>,
    sleeper: Sleeper,
}

/// Repeats a call until it succeeds, no retry helps, or the retry budget is used up.
///
/// It is a macro, because the compiler can't prove that the future of a function is `Send` if it
/// calls a closure that borrows again for each call.
macro_rules! retry {
    ($budget:expr, $call:expr) => {{
        let mut budget = $budget;
        loop {
            match $call {
                Ok(done) => break Ok(done),
                Err(fault) => {
                    if let Err(error) = budget.after(fault).await {
                        break Err(error);
                    }
                }
            }
        }
    }};
}

pub(crate) use retry;

impl RetryBudget {
    /// Returns a retry budget of this length.
    pub(crate) fn of(time: Duration) -> Self {
        Self::until(Clock::Boot.now().saturating_add(time))
    }

    /// Returns a retry budget until this time of the clock.
    pub(crate) fn until(until: Instant) -> Self {
        Self {
            until,
            at_once: AT_ONCE,
            backoff: Backoff::between(SHORTEST, LONGEST),
            certainty: Certainty::NotApplied,
            left: &[],
            grace: Duration::ZERO,
            first_left: None,
            sleeper: Sleeper::default(),
        }
    }

    /// Records that an earlier attempt may have taken effect.
    pub(crate) fn doubt(&mut self) {
        self.certainty = Certainty::Unknown;
    }

    /// Returns whether an earlier attempt may have taken effect.
    pub(crate) fn in_doubt(&self) -> bool {
        self.certainty == Certainty::Unknown
    }

    /// Returns whether the time is up.
    pub(crate) fn is_over(&self) -> bool {
        Clock::Boot.now() >= self.until
    }

    /// Records the certainty of a fault, and returns the certainty over all attempts.
    pub(crate) fn certainty_of(&mut self, fault: &Fault) -> Certainty {
        self.certainty = self.certainty.min(fault.error.certainty());
        self.certainty
    }

    /// Returns the retry budget of a task that serves all names. Faults that one row may have
    /// caused are returned at once, so that other names are served before the caller's retry.
    #[cfg(any(feature = "mysql", feature = "postgres"))]
    pub(crate) fn of_all_names(time: Duration) -> Self {
        Self { left: &[Remedy::Apart, Remedy::Unclear], ..Self::of(time) }
    }

    /// Makes it return a failed connect once this much time has passed since `asked`.
    #[cfg(any(feature = "mysql", feature = "postgres"))]
    pub(crate) fn returning_connects(self, asked: Instant, grace: Duration) -> Self {
        Self { left: &[Remedy::Connect], grace, first_left: Some(asked), ..self }
    }

    /// Returns the retry budget for opening a store. If no connection can be made, the caller soon
    /// gets the reason: only the caller knows how long to retry. Until then the pooled sessions
    /// that a server has ended are replaced. A conflict with another client that opens the store
    /// is retried.
    #[cfg(any(feature = "mysql", feature = "postgres"))]
    pub(crate) fn to_open(time: Duration) -> Self {
        Self { left: &[Remedy::Connect], grace: SOON, ..Self::of(time) }
    }

    /// Waits until it is time for the next retry.
    ///
    /// # Errors
    /// The fault's error, if no retry helps or the time is up.
    pub(crate) async fn after(&mut self, fault: Fault) -> Result<(), Error> {
        let now = Clock::Boot.now();
        let certainty = self.certainty_of(&fault);
        let is_left = self.left.contains(&fault.remedy)
            && now.since(*self.first_left.get_or_insert(now)) >= self.grace;
        if fault.remedy == Remedy::None || is_left || now >= self.until {
            return Err(fault.error.with_certainty(certainty));
        }
        // Without a pause: the other write has ended when the retry arrives.
        if fault.remedy == Remedy::AtOnce && self.at_once > 0 {
            self.at_once -= 1;
            return Ok(());
        }
        // Never past the end of the retry budget, so that the last attempt comes in time.
        self.sleeper.sleep(self.backoff.pause().min(self.until.since(now))).await;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::{future::poll_fn, pin::pin, task::Poll};

    use dlock_core::ErrorKind;

    use super::*;

    fn fault(certainty: Certainty, remedy: Remedy) -> Fault {
        Fault {
            error: Error::new(ErrorKind::Unavailable, "busy").with_certainty(certainty),
            remedy,
        }
    }

    #[cfg(any(feature = "mysql", feature = "postgres"))]
    #[tokio::test]
    async fn a_store_that_is_being_opened_soon_gives_up_to_connect() {
        let mut budget = RetryBudget::to_open(Duration::from_secs(3600));
        let connect = || fault(Certainty::NotApplied, Remedy::Connect);
        // A session that the server has ended is replaced.
        budget.after(connect()).await.unwrap();
        while budget.after(connect()).await.is_ok() {}
        assert!(!budget.is_over());
        budget.after(fault(Certainty::NotApplied, Remedy::Retry)).await.unwrap();
    }

    #[tokio::test]
    async fn a_budget_ends_in_time_with_the_lowest_certainty() {
        let mut budget = RetryBudget::of(Duration::from_millis(20));
        assert!(!budget.in_doubt());
        budget.after(fault(Certainty::Unknown, Remedy::Retry)).await.unwrap();
        assert!(budget.in_doubt());
        let mut tries = 0;
        let error = loop {
            match budget.after(fault(Certainty::NotApplied, Remedy::Retry)).await {
                Ok(()) => tries += 1,
                Err(error) => break error,
            }
        };
        assert!(tries > 1, "{tries}");
        assert_eq!(error.certainty(), Certainty::Unknown);
    }

    #[tokio::test]
    async fn a_conflict_is_retried_at_once_a_few_times() {
        let mut budget = RetryBudget::of(Duration::from_secs(60));
        for _ in 0..AT_ONCE {
            let mut again = pin!(budget.after(fault(Certainty::NotApplied, Remedy::AtOnce)));
            let polled = poll_fn(|cx| Poll::Ready(again.as_mut().poll(cx))).await;
            assert!(matches!(polled, Poll::Ready(Ok(()))));
        }
        let mut again = pin!(budget.after(fault(Certainty::NotApplied, Remedy::AtOnce)));
        let polled = poll_fn(|cx| Poll::Ready(again.as_mut().poll(cx))).await;
        assert!(polled.is_pending(), "it never rests");
    }

    #[tokio::test]
    async fn a_permanent_error_is_not_retried() {
        let mut budget = RetryBudget::of(Duration::from_secs(60));
        assert!(budget.after(fault(Certainty::NotApplied, Remedy::None)).await.is_err());
    }
}

//! Waits of callers, and retries of failed requests.

use std::{error::Error as _, time::Duration};

use crate::{
    Backoff, Error, ErrorKind, Instant, LockName, Queue,
    sync::time::{self, Instant as Timer},
};

/// The wait that a caller accepts.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Wait {
    /// No wait: the caller accepts that the lock is busy.
    Try,
    /// Until this time. `None` is no limit.
    Until(Option<Timer>),
}

impl Wait {
    /// Returns whether the claim joins the queue if the lock is not free.
    pub(crate) const fn queue(self) -> Queue {
        match self {
            Self::Try => Queue::FailIfBusy,
            Self::Until(_) => Queue::Enqueue,
        }
    }

    /// Returns a wait of at most this long from now; zero is one attempt.
    #[inline]
    pub(crate) fn for_at_most(wait: Duration) -> Self {
        match wait {
            Duration::ZERO => Self::Try,
            // No limit is the default and reads no clock.
            Duration::MAX => Self::Until(None),
            wait => Self::Until(Timer::now().checked_add(wait)),
        }
    }

    /// Returns this wait, which now ends after `limit` at the latest.
    pub(crate) fn at_most(self, limit: Duration) -> Self {
        let Self::Until(deadline) = self else { return self };
        let limit = Timer::now().checked_add(limit);
        Self::Until(deadline.into_iter().chain(limit).min())
    }

    /// Returns whether the wait has ended. A try does not wait.
    pub(crate) fn is_over(self) -> bool {
        match self {
            Self::Try => true,
            Self::Until(deadline) => deadline.is_some_and(|deadline| deadline <= Timer::now()),
        }
    }

    /// Returns the end of the wait.
    pub(crate) const fn deadline(self) -> Option<Timer> {
        match self {
            Self::Try => None,
            Self::Until(deadline) => deadline,
        }
    }
}

/// The reason that a wait ended without a grant, as far as this process knows.
pub(crate) enum Why {
    /// The lock is held.
    Busy,
    /// This process itself has held it for this long.
    HeldHere(Duration),
    /// The last request failed.
    Failed(Error),
    /// The request was not answered. The error is that of the previous request, if it failed.
    Unanswered(Option<Error>),
    /// The request waited for its turn in the client, and was not sent.
    Unsent,
}

impl Why {
    pub(crate) fn error(self, name: &LockName) -> Error {
        let (message, source) = match self {
            Self::Busy => {
                ("increase the wait, or run `dlock inspect` to see the holder".to_owned(), None)
            }
            Self::HeldHere(held) => (
                format!(
                    "this process has held it for {held:.1?}, and a task that locks a mutex twice \
                     waits for itself: release the first guard, or use a reentrant lock"
                ),
                None,
            ),
            Self::Failed(last) => (format!("the store has failed: {last}"), Some(last)),
            Self::Unanswered(None) => (
                "the store has not answered: check the store and the network".to_owned(),
                Some(Error::new(ErrorKind::Unavailable, "no answer within the wait")),
            ),
            Self::Unanswered(Some(last)) => {
                (format!("the store has not answered, and its last error was: {last}"), Some(last))
            }
            Self::Unsent => (
                "earlier requests of this client wait for the store, so this one was not sent: use \
                 fewer tasks at a time, or check the store and the network"
                    .to_owned(),
                Some(Error::new(ErrorKind::Unavailable, "not sent within the wait")),
            ),
        };
        let message = format!("timed out waiting for the lock: {message}");
        let error = Error::new(ErrorKind::Timeout, message).during("acquire").with_lock(name);
        match source {
            Some(source) => error.with_source(source),
            None => error,
        }
    }
}

/// Adds the last failure of the store, if it failed, to the error of a wait that has ended.
pub(crate) fn explained(ended: Error, last: Option<Error>, name: &LockName) -> Error {
    match last {
        Some(last) if ended.kind() == ErrorKind::Timeout && ended.source().is_none() => {
            Why::Failed(last).error(name)
        }
        _ => ended,
    }
}

/// The pauses between attempts to get a lock.
pub(crate) const PAUSES: Backoff =
    Backoff::between(Duration::from_millis(50), Duration::from_millis(800));

/// An outage, as one operation sees it: its start, and the pauses.
pub(crate) struct RetryBudget {
    since: Option<Instant>,
    pauses: Backoff,
}

impl Default for RetryBudget {
    fn default() -> Self {
        Self { since: None, pauses: PAUSES }
    }
}

impl RetryBudget {
    /// Ends the outage. Only an answer proves its end: a call may take long to fail.
    pub(crate) fn over(&mut self) {
        *self = Self::default();
    }

    /// Records that the outage began at `since`, as seen by another task of this process.
    pub(crate) fn began(&mut self, since: Instant) {
        self.since = Some(since);
    }

    /// Returns the pause before the next retry; `None` once the outage has lasted for one lease.
    pub(crate) fn pause(&mut self, now: Instant, lease: Duration) -> Option<Duration> {
        let since = *self.since.get_or_insert(now);
        if now.since(since) >= lease {
            return None;
        }
        Some(self.pauses.pause())
    }
}

/// Sleeps, but not past the deadline.
pub(crate) async fn pause(
    pause: Duration,
    deadline: Option<Timer>,
    name: &LockName,
) -> Result<(), Error> {
    within(deadline, name, async {
        time::sleep(pause).await;
        Ok(())
    })
    .await
}

/// Returns the result of `work`, or the error of a wait that has ended.
pub(crate) async fn within<T>(
    deadline: Option<Timer>,
    name: &LockName,
    work: impl Future<Output = Result<T, Error>>,
) -> Result<T, Error> {
    match deadline {
        None => work.await,
        Some(deadline) => {
            time::timeout_at(deadline, work).await.unwrap_or_else(|_| Err(Why::Busy.error(name)))
        }
    }
}

//! How long a caller waits, and how long a failed request is retried.

use std::{error::Error as _, time::Duration};

use crate::{
    Error, ErrorKind, Instant, LockName, Queue,
    sync::time::{self, Instant as Timer},
};

/// How long a caller is ready to wait.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Wait {
    /// No wait: busy is an answer.
    Try,
    /// Until this time. `None` is for ever.
    Until(Option<Timer>),
}

impl Wait {
    /// Whether the claim joins the queue if the lock is not free.
    pub(crate) const fn queue(self) -> Queue {
        match self {
            Self::Try => Queue::FailIfBusy,
            Self::Until(_) => Queue::Enqueue,
        }
    }

    /// At most this long from now; zero is one attempt.
    pub(crate) fn for_at_most(wait: Duration) -> Self {
        match wait {
            Duration::ZERO => Self::Try,
            // For ever is the default and reads no clock.
            Duration::MAX => Self::Until(None),
            wait => Self::Until(Timer::now().checked_add(wait)),
        }
    }

    /// When the wait ends.
    pub(crate) const fn deadline(self) -> Option<Timer> {
        match self {
            Self::Try => None,
            Self::Until(deadline) => deadline,
        }
    }
}

/// Why a wait has ended without a grant, as far as this process knows.
pub(crate) enum Why {
    /// The lock is held.
    Busy,
    /// This process itself has held it for this long.
    HeldHere(Duration),
    /// The last request failed.
    Failed(Error),
    /// The request was not answered. The error is that of the request before, if it failed.
    Unanswered(Option<Error>),
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
        };
        let message = format!("timed out waiting for the lock: {message}");
        let error = Error::new(ErrorKind::Timeout, message).during("acquire").with_lock(name);
        match source {
            Some(source) => error.with_source(source),
            None => error,
        }
    }
}

/// The error of a wait that has ended, with the last failure of the store, if there was one.
pub(crate) fn explained(ended: Error, last: Option<Error>, name: &LockName) -> Error {
    match last {
        Some(last) if ended.kind() == ErrorKind::Timeout && ended.source().is_none() => {
            Why::Failed(last).error(name)
        }
        _ => ended,
    }
}

/// An outage, as one operation sees it: since when the store fails, and the backoff.
#[derive(Default)]
pub(crate) struct Trouble {
    since: Option<Instant>,
    tries: u32,
}

impl Trouble {
    /// The store is back. Only an answer proves that: a call may take long to fail.
    pub(crate) fn over(&mut self) {
        *self = Self::default();
    }

    /// The outage began at `since`, as another task of this process has seen.
    pub(crate) fn began(&mut self, since: Instant) {
        self.since = Some(since);
    }

    /// The pause before the next retry. `None` once the outage has lasted for one lease.
    pub(crate) fn pause(&mut self, now: Instant, lease: Duration) -> Option<Duration> {
        let since = *self.since.get_or_insert(now);
        if now.since(since) >= lease {
            return None;
        }
        self.tries += 1;
        Some(backoff(self.tries))
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

/// 25 ms doubling to about a second, with jitter.
pub(crate) fn backoff(tries: u32) -> Duration {
    let base = Duration::from_millis(25 << tries.min(5));
    base.mul_f64(rand::random_range(0.5..1.0))
}

/// The result of `work`, or the error of a wait that has ended.
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

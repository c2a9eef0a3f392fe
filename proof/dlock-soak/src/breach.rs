//! The checks, and the promises that they find broken.

use std::fmt;

use dlock_core::Instant;
use dlock_testkit::history::Violation;
use serde::Serialize;

use super::history::Acquisition;

/// A check.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum Check {
    /// No two holders that exclude each other hold the lock at the same time.
    Exclusion,
    /// The store keeps a lock for the lock-delay, and for the minimum time of a job.
    Kept,
    /// The store knows every lock that is held.
    Losses,
    /// Tokens grow.
    Tokens,
    /// The fence of the resource refuses every late write.
    Resource,
    /// A waiter for a free lock is granted.
    Liveness,
    /// No waiter is passed over too often.
    Fairness,
    /// A holder that has lost a lock is notified in time.
    Lateness,
    /// No claim remains when all clients have ended.
    Orphans,
    /// Nothing else stays open or remains in the store.
    Leaks,
    /// No process panics, hangs, or exits unexpectedly.
    Hangs,
    /// There is no error that no fault explains.
    Errors,
}

impl fmt::Display for Check {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Exclusion => "two at once",
            Self::Kept => "granted before its time",
            Self::Losses => "lost although it was kept alive",
            Self::Tokens => "tokens out of order",
            Self::Resource => "a stale write was accepted",
            Self::Liveness => "a lost wake-up",
            Self::Fairness => "passed over",
            Self::Lateness => "a loss was reported late",
            Self::Orphans => "held by nobody",
            Self::Leaks => "left behind",
            Self::Hangs => "a panic or a hang",
            Self::Errors => "an error that no fault explains",
        })
    }
}

/// A promise that was broken.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Breach {
    /// The check that found it.
    pub check: Check,
    /// What happened.
    pub text: String,
    /// The lock, if it is about one.
    pub lock: Option<String>,
    /// The process, if it is about one alone.
    pub process: Option<usize>,
    /// The time at which it showed, if that is known.
    pub at: Option<Instant>,
}

impl Breach {
    /// Returns a breach without further data.
    pub fn new(check: Check, text: impl Into<String>) -> Self {
        Self { check, text: text.into(), lock: None, process: None, at: None }
    }

    pub(super) fn of_lock(
        check: Check,
        lock: &str,
        at: Option<Instant>,
        text: impl fmt::Display,
    ) -> Self {
        let lock = Some(lock.to_owned());
        Self { lock, at, ..Self::new(check, text.to_string()) }
    }

    pub(super) fn of_history(check: Check, lock: &str, wrong: &Violation) -> Self {
        Self::of_lock(check, lock, wrong.at(), format!("{lock}: {wrong}"))
    }

    /// The acquisition ended badly: it failed, was lost, or never ended.
    pub(super) fn of_acquisition(check: Check, what: &str, acquisition: &Acquisition) -> Self {
        let left = acquisition.left.as_ref().map(|(at, _)| *at);
        let lost = acquisition.lost.as_ref().map(|(at, _)| *at);
        let at = lost.or(left).or(acquisition.answered()).unwrap_or(acquisition.asked);
        Self::of_lock(check, &acquisition.name, Some(at), format!("{what}: {acquisition:?}"))
    }
}

impl fmt::Display for Breach {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.check, self.text)
    }
}

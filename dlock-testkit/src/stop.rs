//! The reasons why a case did not pass.

use std::{any::type_name, fmt::Display, panic::Location};

use crate::history::Violation;

/// The reason why a case failed or was ignored, or why a store could not be opened.
///
/// `?` creates it from every error, and records the place in the code.
#[derive(Clone, Debug)]
pub struct Stop {
    why: Why,
    text: String,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Why {
    Failed,
    Violated,
    Undecided,
    RuledOut,
    Missing,
}

/// The result of a case.
pub type Verdict = Result<(), Stop>;

impl Stop {
    /// Returns a failure: the claim of the case does not hold.
    #[track_caller]
    pub fn failed(what: impl Display) -> Self {
        let at = Location::caller();
        Self { why: Why::Failed, text: format!("{what} ({}:{})", at.file(), at.line()) }
    }

    /// Returns a failure that no slow machine explains, such as two holders of one lock or tokens out
    /// of order. Such a case is never repeated.
    #[track_caller]
    pub fn violation(what: impl Display) -> Self {
        Self { why: Why::Violated, ..Self::failed(what) }
    }

    /// Returns the reason why the case proves nothing this time: too little happened, for example on
    /// a busy machine. The case is ignored. If a fault had no effect at all, the case failed.
    pub fn undecided(reason: impl Display) -> Self {
        Self { why: Why::Undecided, text: reason.to_string() }
    }

    /// Returns the reason why the store can't be tested here, such as a server that is not
    /// installed.
    pub fn missing(reason: impl Display) -> Self {
        Self { why: Why::Missing, text: reason.to_string() }
    }

    /// Returns the reason why the case does not apply: the store does not promise what the case
    /// tests.
    pub(crate) fn ruled_out(reason: impl Display) -> Self {
        Self { why: Why::RuledOut, text: reason.to_string() }
    }

    pub(crate) fn is_missing(&self) -> bool {
        self.why == Why::Missing
    }

    pub(crate) fn is_failure(&self) -> bool {
        self.may_be_repeated() || self.why == Why::Violated
    }

    /// Whether a stall of the machine may be the reason.
    pub(crate) fn may_be_repeated(&self) -> bool {
        self.why == Why::Failed
    }

    /// Returns the reason as text.
    pub fn into_text(self) -> String {
        self.text
    }
}

impl<E: Display> From<E> for Stop {
    #[track_caller]
    fn from(error: E) -> Self {
        // Findings of the checkers of histories.
        match type_name::<E>() == type_name::<Violation>() {
            true => Self::violation(error),
            false => Self::failed(error),
        }
    }
}

/// Fails the case unless the condition holds.
#[doc(hidden)]
#[macro_export]
macro_rules! ensure {
    ($condition:expr, $($what:tt)+) => {
        if !$condition {
            return Err($crate::Stop::failed(format!($($what)+)));
        }
    };
}

/// Fails the case with a [violation](Stop::violation) unless the condition holds.
macro_rules! ensure_safe {
    ($condition:expr, $($what:tt)+) => {
        if !$condition {
            return Err($crate::Stop::violation(format!($($what)+)));
        }
    };
}

/// Fails the case unless both sides are equal.
macro_rules! ensure_eq {
    ($left:expr, $right:expr, $($what:tt)+) => {
        match (&$left, &$right) {
            (left, right) => $crate::ensure!(
                left == right,
                "{}: {left:?} is not {right:?}",
                format!($($what)+)
            ),
        }
    };
}

pub(crate) use ensure;
pub(crate) use ensure_eq;
pub(crate) use ensure_safe;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_question_mark_keeps_the_location() {
        fn fails() -> Verdict {
            Err(std::fmt::Error)?
        }
        let text = fails().unwrap_err().into_text();
        assert!(text.contains("stop.rs"), "{text}");
    }

    #[test]
    fn a_finding_in_a_history_is_a_violation() {
        fn checked() -> Verdict {
            Ok(crate::history::at_least(&crate::history::History::default(), 1)?)
        }
        assert!(!checked().unwrap_err().may_be_repeated());
    }

    #[test]
    fn too_little_is_no_failure() {
        assert!(!Stop::undecided("46 grants").is_failure());
    }
}

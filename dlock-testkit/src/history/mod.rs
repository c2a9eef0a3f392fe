//! The recorded operations of clients on a lock with their answers, and one checker for each
//! invariant.
//!
//! A [`Recorder`] records each operation when it is invoked and when it is answered, on one
//! monotonic clock that all processes of a machine share. A checker takes the finished [`History`]
//! and returns a [`Violation`]. Checkers judge by what clients *knew*: a client holds a lock from
//! the answer to its acquire to the start of its release. So no delay on the way makes a correct
//! history look wrong.

mod event;
pub mod exclusion;
pub mod fifo;
#[cfg(test)]
mod large;
pub mod permits;
mod recorder;
pub mod reentry;
pub mod shared;
mod spans;
pub mod tokens;
pub mod wake_up;

pub use event::{Event, Op, Reply};
pub use recorder::{Held, Recorder};
pub use spans::{Hold, Span};

use std::fmt;

use dlock_core::Instant;

/// All operations on one name, in the order in which they were invoked.
#[derive(Clone, Debug, Default)]
pub struct History {
    /// The operations.
    pub events: Vec<Event>,
    /// The time at which the recording ended.
    pub ended: Option<Instant>,
}

/// A broken invariant, and the operations that broke it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Violation(String);

impl Violation {
    fn new(what: impl Into<String>) -> Self {
        Self(what.into())
    }
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for Violation {}

/// Checks that enough happened for a verdict: an empty history breaks no invariant.
///
/// # Errors
/// If the history has fewer grants.
pub fn at_least(history: &History, grants: usize) -> Result<(), Violation> {
    let seen = history.holds().len();
    if seen < grants {
        return Err(Violation::new(format!("{seen} grants prove nothing, {grants} are expected")));
    }
    Ok(())
}

#[cfg(test)]
mod build {
    //! Builds histories by hand, with times in milliseconds.

    use dlock_core::{FencingToken, Instant, Mode};

    use super::{Event, History, Op, Reply};

    pub(super) fn at(ms: u64) -> Instant {
        Instant::from_nanos(ms * 1_000_000)
    }

    /// Returns a hold with the times of its request, its grant, and the start of its release. The
    /// release is answered 1 ms later.
    pub(super) fn hold(
        actor: usize,
        mode: Mode,
        token: u64,
        [asked, granted, released]: [u64; 3],
    ) -> Vec<Event> {
        let id = actor as u64 * 1000 + token;
        let token = FencingToken::new(token).unwrap();
        vec![
            Event {
                actor,
                hold: id,
                op: Op::Acquire(mode),
                invoked: at(asked),
                answer: Some((at(granted), Reply::Acked { token: Some(token), until: None })),
            },
            Event {
                actor,
                hold: id,
                op: Op::Release,
                invoked: at(released),
                answer: Some((at(released + 1), Reply::Acked { token: None, until: None })),
            },
        ]
    }

    pub(super) fn history(parts: impl IntoIterator<Item = Vec<Event>>) -> History {
        let mut events: Vec<Event> = parts.into_iter().flatten().collect();
        events.sort_by_key(|event| event.invoked);
        History { events, ended: Some(at(100_000)) }
    }

    #[test]
    fn an_empty_history_proves_nothing() {
        assert!(super::at_least(&History::default(), 1).is_err());
        assert!(super::at_least(&history([hold(1, Mode::Exclusive, 1, [0, 1, 2])]), 1).is_ok());
    }
}

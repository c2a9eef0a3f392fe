//! The faults of a server, or of an application's pool, that does not answer.
//!
//! A statement without an answer may have been applied. A failed connect applied nothing.

use crate::engine::{Cure, Fault};

/// The pool returned no connection in time.
pub(crate) const POOL_TIMED_OUT: &str = "the application's pool gave no connection in time: check \
                                         whether the server answers; make the pool larger, return \
                                         its connections sooner, or open dlock by URL";
/// The pool is closed.
pub(crate) const POOL_CLOSED: &str =
    "the application has closed its pool: close it after the locks, or open dlock by URL";

/// Returns the fault of a missing answer. If the server does not report locked rows, one of them
/// may be the reason.
pub(crate) fn late() -> Fault {
    Fault::cut(
        "no answer from the server in time: check whether it is overloaded or unreachable, or \
         raise dlock.response_timeout",
    )
    .with_cure(Cure::Apart)
}

/// Returns the fault of an address that did not answer a connect in time.
pub(crate) fn silent_at_first(server: &str) -> Fault {
    Fault::cut(format!(
        "no answer from the server in time: check that {server} at this address, and whether it is \
         overloaded or unreachable, or raise dlock.response_timeout"
    ))
}

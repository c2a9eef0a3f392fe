//! The part that all SQL databases share: the verbs of the contract over rows, in any dialect.
//!
//! ```text
//! callers --jobs--> workers --one statement per batch--> database    writes, a connection each
//!    ^                 |                                  |  |
//!    |                 v                                  |  v
//!    +-- bells --- waiters <------- reader <-- rows that changed     reads, one connection
//!                      ^                                  v
//!                      +----------- listener <--------- notes        if it can notify
//! ```
//! The jobs of a name go to one worker, which knows its row. Renewals may have a worker of their
//! own. A database supplies a [`Conn`], which is five statements, and its own way to open a
//! connection and to classify errors. This module contains no SQL.
//!
//! One statement applies an operation completely or not at all. So a process that dies leaves no
//! partial operation, only claims whose leases end. If an answer is lost, the operation is sent
//! again. It is idempotent by claim id, and if it arrives after its deadline, it does nothing.
//! `proof/dlock-models/src/sql_queue/` checks the protocol.

mod aside;
#[cfg(any(feature = "mysql", feature = "postgres"))]
mod backoff;
mod batch;
mod cache;
mod conn;
mod crowd;
mod doubts;
mod fault;
mod finding;
mod job;
mod kept;
mod lanes;
mod links;
mod listen;
mod names;
mod note;
mod pace;
mod part;
mod patience;
mod reader;
mod row;
mod snapshots;
mod sweep;
mod tasks;
mod told;
mod verbs;
mod waiters;
mod worker;

use std::time::Duration;

#[cfg(any(feature = "mysql", feature = "postgres"))]
pub(crate) use backoff::Backoff;
#[cfg(any(feature = "mysql", all(feature = "sqlite", not(unix))))]
pub(crate) use conn::Deaf;
#[cfg(any(feature = "postgres", all(feature = "sqlite", unix)))]
pub(crate) use conn::Ears;
pub(crate) use conn::{Conn, Paged, Sighting};
pub(crate) use dlock_core::machine::Micros;
use dlock_core::{
    Exclusion, Fairness, Fencing, Guarantees, Notes, OrphanRelease, Permits, Scope, WakeUp,
};
#[cfg(feature = "sqlite")]
pub(crate) use fault::DatabaseGone;
pub(crate) use fault::{Cure, Fault};
pub(crate) use finding::of_tables;
#[cfg(any(feature = "mysql", feature = "postgres"))]
pub(crate) use finding::room;
#[cfg(any(feature = "mysql", feature = "postgres"))]
pub(crate) use job::{answer_of, gone};
pub(crate) use kept::Kept;
#[cfg(any(feature = "mysql", feature = "postgres"))]
pub(crate) use lanes::{Ends, Lanes, Message, lanes};
pub(crate) use links::Links;
#[cfg(any(feature = "mysql", feature = "postgres"))]
pub(crate) use links::sight;
pub(crate) use names::Range;
#[cfg(any(feature = "mysql", feature = "postgres"))]
pub(crate) use names::{Listed, PAGE, list};
#[cfg(any(feature = "postgres", feature = "sqlite"))]
pub(crate) use note::Note;
pub(crate) use pace::Rarely;
pub(crate) use patience::{Patience, retry};
#[cfg(any(feature = "mysql", feature = "postgres"))]
pub(crate) use reader::Reply;
pub(crate) use row::{Mark, Row, Wanted, Write, in_order};
#[cfg(feature = "postgres")]
pub(crate) use sweep::Rounds;
#[cfg(any(feature = "mysql", feature = "postgres"))]
pub(crate) use tasks::spawn;
pub(crate) use verbs::Engine;

/// The settings of an engine.
#[derive(Clone, Copy, Debug)]
pub(crate) struct EngineSettings {
    /// How long a transient fault is retried.
    pub(crate) patience: Duration,
    /// How long the row of an unused lock is kept.
    pub(crate) retention: Duration,
    /// The step of the database's clock.
    pub(crate) tick: Micros,
    /// The pause after a read, as a multiple of the time that the read took.
    pub(crate) rest: u32,
    /// The number by which notifications reach this engine. 0 if it has no listener.
    pub(crate) home: u32,
    /// How often the rows are polled while the listener works.
    pub(crate) rarely: Rarely,
}

/// Converts a time to the form that statements take.
fn micros(time: Duration) -> Micros {
    Micros::try_from(time.as_micros()).unwrap_or(Micros::MAX)
}

/// Returns the best guarantees that rows can give.
pub(crate) fn guarantees(scope: Scope, wake_up: WakeUp) -> Guarantees {
    Guarantees::WEAKEST
        .with_exclusion(Exclusion::Restart)
        .with_fencing(Fencing::Clock)
        .with_orphan_release(OrphanRelease::LeaseEnd)
        .with_fairness(Fairness::Fifo)
        .with_wake_up(wake_up)
        .with_scope(scope)
        .with_permits(Permits::Counted)
        .with_notes(Notes::Kept)
}

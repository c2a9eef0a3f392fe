//! What every SQL database shares: the verbs of the contract over rows, whatever the dialect.
//!
//! ```text
//! callers --jobs--> workers --one statement per batch--> database    writes, a connection each
//!    ^                 |                                  |  |
//!    |                 v                                  |  v
//!    +-- bells --- waiters <------- reader <-- rows that changed     reads, one connection
//!                      ^                                  v
//!                      +----------- listener <--------- notes        if the database can tell
//! ```
//! The jobs of a name go to one worker, which knows its row; renewals may have one of their own.
//! A database brings a [`Conn`], which is five statements, and its own way to open and to name
//! its errors. Nothing here knows SQL.

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
    Exclusion, Fairness, Fencing, Format, Guarantees, Notes, OrphanRelease, Permits, Scope, WakeUp,
};
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
pub(crate) use row::{Mark, Row, Wanted, Write, in_order};
#[cfg(any(feature = "mysql", feature = "postgres"))]
pub(crate) use tasks::spawn;
pub(crate) use verbs::Engine;

/// What an engine is told at its start.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Settings {
    /// How long a fault that may pass is tried again.
    pub(crate) patience: Duration,
    /// How long the row of an unused lock is kept.
    pub(crate) retention: Duration,
    /// The step of the database's clock.
    pub(crate) tick: Micros,
    /// After a look, this many times as long as it took passes before the next.
    pub(crate) rest: u32,
    /// Where notes for this engine go; 0 if it has no ears.
    pub(crate) home: u32,
    /// How to look all the same, while those ears are open.
    pub(crate) rarely: Rarely,
    /// In which format rows are written.
    pub(crate) format: Format,
}

/// A time as statements take it.
fn micros(time: Duration) -> Micros {
    Micros::try_from(time.as_micros()).unwrap_or(Micros::MAX)
}

/// What rows promise at best.
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

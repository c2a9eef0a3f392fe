//! What every SQL database shares: the verbs of the contract over rows, whatever the dialect.
//!
//! ```text
//! callers --jobs--> worker --one statement per batch--> database     writes, one connection
//!    ^                 |                                    |
//!    |                 v                                    v
//!    +-- bells -- waiters <------- reader <-- rows that changed      reads, one connection
//! ```
//! A database brings a [`Conn`], which is five statements, and its own way to open and to name
//! its errors. Nothing here knows SQL.

mod batch;
mod cache;
mod conn;
mod job;
mod pace;
mod patience;
mod reader;
mod row;
mod sweep;
mod tasks;
mod told;
mod verbs;
mod waiters;
mod worker;

use std::time::Duration;

pub(crate) use conn::{Conn, Cure, Fault, Paged, Sighting};
pub(crate) use dlock_core::machine::Micros;
pub(crate) use patience::Patience;
pub(crate) use row::{Mark, Row, Write};
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
}

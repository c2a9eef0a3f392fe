//! The part that all SQL databases share: the verbs of the contract over rows, in any dialect.
//!
//! ```text
//! callers --jobs--> workers --one statement per batch--> database    writes, a connection each
//!    ^                 |                                  |  |
//!    |                 v                                  |  v
//!    +-- wakes --- waiters <------- reader <-- rows that changed     reads, one connection
//!                      ^                                  v
//!                      +----------- listener <-- notifications       if it can notify
//! ```
//! The jobs of a name go to one worker, which knows its row. Renewals may have a worker of their
//! own. A database supplies a [`Conn`], which is five statements, and its own way to open a
//! connection and to classify errors. This module contains no SQL.
//!
//! One statement applies an operation completely or not at all. So a process that dies leaves no
//! partial operation, only claims whose leases end. If an answer is lost, the operation is sent
//! again. It is idempotent by claim id, and if it arrives after its deadline, it does nothing.
//! `proof/dlock-models/src/sql_queue.rs` checks the protocol.

mod backend;
mod batch;
mod cache;
mod conn;
mod durability;
mod examine;
mod fault;
mod job;
mod lanes;
mod list;
mod listen;
mod locked_rows;
mod notification;
mod outcome;
mod pace;
mod part;
mod reader;
#[cfg(any(feature = "mysql", feature = "postgres"))]
mod reconnect;
mod retry_budget;
mod row;
mod snapshots;
mod sweep;
mod tasks;
mod unanswered;
mod waiters;
mod worker;

// In an order that the simulation can repeat.
#[cfg(dlock_sim)]
use std::collections::HashMap;
use std::time::Duration;

pub(crate) use backend::Engine;
#[cfg(any(feature = "postgres", all(feature = "sqlite", unix)))]
pub(crate) use conn::Listener;
#[cfg(any(feature = "mysql", all(feature = "sqlite", not(unix))))]
pub(crate) use conn::NoListener;
pub(crate) use conn::{Conn, Paged, RowsRead};
pub(crate) use dlock_core::machine::Micros;
#[cfg(any(feature = "mysql", feature = "postgres"))]
use dlock_core::{Clock, LockName};
use dlock_core::{
    Exclusion, Fairness, Fencing, Guarantees, Notes, OrphanRelease, Permits, Scope, WakeUp,
};
pub(crate) use durability::DurabilityMonitor;
pub(crate) use examine::of_tables;
#[cfg(any(feature = "mysql", feature = "postgres"))]
pub(crate) use examine::{Limit, room};
#[cfg(feature = "sqlite")]
pub(crate) use fault::DatabaseGone;
pub(crate) use fault::{Fault, Remedy};
#[cfg(not(dlock_sim))]
use hashbrown::HashMap;
#[cfg(any(feature = "mysql", feature = "postgres"))]
pub(crate) use job::{answer_of, gone};
#[cfg(any(feature = "mysql", feature = "postgres"))]
pub(crate) use lanes::{Ends, Lanes, Message, lanes};
pub(crate) use list::Range;
#[cfg(any(feature = "mysql", feature = "postgres"))]
pub(crate) use list::{Listed, PAGE, list};
#[cfg(any(feature = "postgres", feature = "sqlite"))]
pub(crate) use notification::Notification;
pub(crate) use pace::Rarely;
#[cfg(any(feature = "mysql", feature = "postgres"))]
pub(crate) use reader::Reply;
#[cfg(any(feature = "mysql", feature = "postgres"))]
pub(crate) use reconnect::ReconnectPauses;
pub(crate) use retry_budget::{RetryBudget, retry};
pub(crate) use row::{Mark, Row, Wanted, Write, in_order};
#[cfg(feature = "postgres")]
pub(crate) use sweep::Rounds;
#[cfg(any(feature = "mysql", feature = "postgres"))]
pub(crate) use tasks::spawn;

use self::outcome::ClockSample;

/// The settings of an engine.
#[derive(Clone, Copy, Debug)]
pub(crate) struct EngineSettings {
    /// How long a transient fault is retried.
    pub(crate) response_timeout: Duration,
    /// How long the row of an unused lock is kept.
    pub(crate) retention: Duration,
    /// The step of the database's clock.
    pub(crate) tick: Micros,
    /// The pause after a read, as a multiple of the time that the read took.
    pub(crate) rest: u32,
    /// The engine's notification channel id. 0 if it has no listener.
    pub(crate) home: u32,
    /// How often the rows are polled while the listener works.
    pub(crate) rarely: Rarely,
}

/// The connections of an engine.
#[derive(Debug)]
pub(crate) struct Connections<C, E> {
    /// The connections that write, at least one.
    pub(crate) writers: Vec<C>,
    /// The connection for renewals only.
    pub(crate) renewer: Option<C>,
    pub(crate) reader: C,
    /// A listener, which may not be open yet.
    pub(crate) listener: Option<E>,
    /// A sample of the database's clock, so that the first statements have a deadline.
    pub(crate) sample: Option<ClockSample>,
}

/// Reads the database's clock.
#[cfg(any(feature = "mysql", feature = "postgres"))]
pub(crate) async fn sample<C: Conn>(conn: &mut C) -> Option<ClockSample> {
    // The answer about any name contains the time.
    let wanted = [Wanted { name: LockName::new("dlock").ok()?, known: None }];
    let sent = Clock::Boot.now();
    let seen = conn.read(&wanted).await.ok()?;
    Some(ClockSample { sent, now: seen.now })
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

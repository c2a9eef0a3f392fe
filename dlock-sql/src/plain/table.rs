//! The table, and the clock of its database.
//!
//! Every read shows the clock, so deadlines follow it. A deadline is by the database's clock,
//! because only the database can refuse a statement that arrives late.

use std::time::Duration;

use dlock_core::{Clock, Instant, LockName, StoreClock};

use super::{Argument, PlainConn, PlainRead, Statements};
use crate::engine::Fault;

/// A margin between an instant and a time of the clock that were read at about the same time.
const SLACK: Duration = Duration::from_millis(10);

#[derive(Debug)]
pub(super) struct PlainTable<C> {
    pub(super) conn: C,
    pub(super) texts: Statements,
    pub(super) response_timeout: Duration,
    pub(super) clock: StoreClock,
}

/// The times of a request that has a deadline.
#[derive(Clone, Copy, Debug)]
pub(super) struct Sent {
    /// A time just before it is sent.
    pub(super) at: Instant,
    /// The deadline by the database's clock. Zero if the clock is not known: then the statement
    /// does nothing.
    pub(super) deadline: i64,
    /// From this time on the deadline may have passed.
    ends: Instant,
    /// At this time the deadline has certainly passed.
    pub(super) over: Instant,
}

impl Sent {
    /// Returns whether the database may have refused a statement because of its deadline.
    pub(super) fn may_be_late(&self) -> bool {
        self.deadline == 0 || Clock::Boot.now() >= self.ends
    }
}

impl<C: PlainConn> PlainTable<C> {
    /// Returns the times of a request that is sent now and is useless after `useful`.
    pub(super) fn sending(&self, useful: Duration) -> Sent {
        let (at, useful) = (Clock::Boot.now(), useful.min(self.response_timeout));
        let deadline = self.clock.deadline(at, useful).unwrap_or(0);
        Sent {
            at,
            deadline: i64::try_from(deadline).unwrap_or(i64::MAX),
            ends: at.saturating_add(useful / 2),
            over: at.saturating_add(useful).saturating_add(SLACK),
        }
    }

    pub(super) async fn change(
        &mut self,
        statement: &'static str,
        arguments: &[Argument<'_>],
    ) -> Result<u64, Fault> {
        self.conn.change(statement, arguments).await
    }

    pub(super) async fn read(&mut self, name: &LockName) -> Result<PlainRead, Fault> {
        let sent = Clock::Boot.now();
        let read = self.conn.read(self.texts.read, name).await?;
        let shown = u64::try_from(read.now).unwrap_or(0);
        self.clock.observe(shown, sent, Clock::Boot.now());
        Ok(read)
    }
}

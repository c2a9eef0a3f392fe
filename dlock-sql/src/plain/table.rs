//! The table, and what is known of its database's clock.

use std::time::Duration;

use dlock_core::{Clock, Instant, LockName, StoreClock};

use super::{Argument, Looked, PlainConn, Statements};
use crate::engine::Fault;

/// A clock may be read this much earlier than an instant that it was compared with.
const SLACK: Duration = Duration::from_millis(10);

#[derive(Debug)]
pub(super) struct PlainTable<C> {
    pub(super) conn: C,
    pub(super) texts: Statements,
    pub(super) patience: Duration,
    pub(super) clock: StoreClock,
}

/// A sending of something that has to come in time.
#[derive(Clone, Copy, Debug)]
pub(super) struct Sent {
    /// Just before.
    pub(super) at: Instant,
    /// By the database's clock. Zero before that was seen.
    pub(super) deadline: i64,
    /// From then on it may be over.
    ends: Instant,
    /// By then it is over.
    pub(super) over: Instant,
}

impl Sent {
    /// Whether something that the database has not done may have come too late.
    pub(super) fn may_be_late(&self) -> bool {
        self.deadline == 0 || Clock::Boot.now() >= self.ends
    }
}

impl<C: PlainConn> PlainTable<C> {
    /// Whoever sends something now has nothing of it after so long.
    pub(super) fn sending(&self, useful: Duration) -> Sent {
        let (at, patience) = (Clock::Boot.now(), useful.min(self.patience));
        let deadline = self.clock.deadline(at, patience).unwrap_or(0);
        Sent {
            at,
            deadline: i64::try_from(deadline).unwrap_or(i64::MAX),
            ends: at.saturating_add(patience / 2),
            over: at.saturating_add(patience).saturating_add(SLACK),
        }
    }

    pub(super) async fn change(
        &mut self,
        statement: &'static str,
        arguments: &[Argument<'_>],
    ) -> Result<u64, Fault> {
        self.conn.change(statement, arguments).await
    }

    pub(super) async fn look(&mut self, name: &LockName) -> Result<Looked, Fault> {
        let sent = Clock::Boot.now();
        let looked = self.conn.look(self.texts.look, name).await?;
        let shown = u64::try_from(looked.now).unwrap_or(0);
        self.clock.observe(shown, sent, Clock::Boot.now());
        Ok(looked)
    }
}

//! The sweep, which deletes the rows of locks that have not been used for the retention.
//!
//! Every process sweeps, one page at a time between its jobs. A row is deleted only if it is still
//! as it was read, so no operation is lost, and two processes may sweep at the same time. Tokens
//! stay in order without the row: the next ones start at the database's clock, which must have
//! passed the last old one.

use std::{pin::Pin, time::Duration};

use dlock_core::{Clock, Error, Instant, LockName, machine::Micros};
use tokio::time::Sleep;

use super::{
    conn::{Conn, Paged},
    micros,
    row::Mark,
};

/// The number of rows in a page.
const PAGE: u32 = 256;
/// The pause between two pages.
const PAUSE: Duration = Duration::from_millis(20);
/// The pause between two rounds.
const ROUND: Duration = Duration::from_secs(3600);

#[derive(Debug)]
pub(crate) struct Sweep {
    retention: Micros,
    round: Duration,
    /// The name after which the next page begins.
    after: String,
    next: Pin<Box<Sleep>>,
}

impl Sweep {
    /// Creates a sweep that begins at once, and deletes rows that have been idle for `retention`.
    pub(crate) fn new(retention: Duration) -> Self {
        Self {
            retention: micros(retention),
            round: ROUND.min(retention).max(PAUSE),
            after: String::new(),
            next: Box::pin(tokio::time::sleep(Duration::ZERO)),
        }
    }

    /// Returns whether a page is due.
    pub(crate) fn is_due(&self) -> bool {
        tokio::time::Instant::now() >= self.next.deadline()
    }

    /// Waits until a page is due.
    pub(crate) async fn due(&mut self) {
        self.next.as_mut().await;
    }

    /// Processes a page. Returns the names whose rows it deleted, or tried to delete.
    pub(crate) async fn step<C: Conn>(&mut self, conn: &mut C) -> Vec<LockName> {
        let (pause, gone) = match self.page(conn).await {
            Ok(gone) if self.after.is_empty() => (self.spread_round(), gone),
            Ok(gone) => (PAUSE, gone),
            Err(error) => {
                tracing::warn!(target: "dlock", %error, "sweep of unused rows failed");
                (self.spread_round(), Vec::new())
            }
        };
        self.next = Box::pin(tokio::time::sleep(pause));
        gone
    }

    async fn page<C: Conn>(&mut self, conn: &mut C) -> Result<Vec<LockName>, Error> {
        let page = conn.page(&self.after, self.retention, PAGE).await?;
        let is_last = page.len() < usize::try_from(PAGE).unwrap_or(usize::MAX);
        let last = page.last().filter(|_| !is_last).map(|row| row.name.clone());
        self.after = last.unwrap_or_default();
        let idle: Vec<(String, Mark)> = page.into_iter().filter_map(|row| self.idle(row)).collect();
        if idle.is_empty() {
            return Ok(Vec::new());
        }
        conn.delete(&idle).await?;
        tracing::debug!(target: "dlock", rows = idle.len(), "unused rows deleted");
        Ok(idle.iter().filter_map(|(name, _)| LockName::new(name).ok()).collect())
    }

    /// Returns the row if its lock is free and has been free for the retention.
    fn idle(&self, paged: Paged) -> Option<(String, Mark)> {
        let row = paged.row?;
        // A row that can't be read may belong to another program or a later version.
        let replayed = row.replay().ok()?;
        let machine = &replayed.machine;
        let is_free = machine.is_free(paged.now) && !machine.bars(paged.now);
        let is_idle = replayed.now.saturating_add(self.retention) <= paged.now;
        let is_passed = machine.last_token() < paged.now;
        (is_free && is_idle && is_passed).then(|| (paged.name, row.mark()))
    }

    /// Returns the pause until the next round. It is a little different each time, so that the
    /// processes of a machine do not sweep at the same time.
    fn spread_round(&self) -> Duration {
        let spread = self.round / 4;
        let nanos = u64::try_from(spread.as_nanos()).unwrap_or(u64::MAX).max(1);
        let now: Instant = Clock::Boot.now();
        self.round + Duration::from_nanos(now.as_nanos() % nanos)
    }
}

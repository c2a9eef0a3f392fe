//! The sweep, which deletes the rows of locks that have not been used for the retention.
//!
//! Every process sweeps, one page at a time between its jobs, in the order of names. A row is
//! deleted only if it is still as it was read, so no operation is lost, and two processes may sweep
//! at the same time. Tokens stay in order without the row: the next ones start at the database's
//! clock, which must have passed the last old one.
//!
//! Most processes of a fleet may live too short for more than one page. So each begins at another
//! place: behind the name that it has used, or at the first name, and from there a random number of
//! names further on. The names that are used are where rows are added, and the first names are
//! where those remain that nobody uses any more.
//!
//! A process reads pages quickly only while it finds rows to delete. Otherwise the pauses grow, so
//! a large table without garbage costs each process a page per minute. At the end of the table it
//! rests until a round is over.

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
/// The pause between two pages if the first had rows to delete, and the longest pause.
const PAUSE: Duration = Duration::from_millis(20);
const LONGEST: Duration = Duration::from_secs(60);
/// The shortest time of a round through the table.
const ROUND: Duration = Duration::from_secs(3600);
/// The first page comes this long after the start, or after the first statement.
const FIRST: Duration = Duration::from_secs(1);
/// A process begins at most two to the power of this many names behind another name.
const FARTHEST: u32 = 15;

#[derive(Debug)]
pub(crate) struct Sweep {
    retention: Micros,
    pace: Rounds,
    has_begun: bool,
}

impl Sweep {
    /// Creates a sweep that deletes rows that have been idle for `retention`.
    pub(crate) fn new(retention: Duration) -> Self {
        Self { retention: micros(retention), pace: Rounds::new(retention), has_begun: false }
    }

    /// Returns whether a page is due.
    pub(crate) fn is_due(&self) -> bool {
        !self.has_begun || self.pace.is_due()
    }

    /// Waits until a page is due.
    pub(crate) async fn due(&mut self) {
        self.pace.due().await;
    }

    /// Processes a page. Returns the names whose rows it deleted, or tried to delete. `used` is a
    /// name that this process has used.
    pub(crate) async fn step<C: Conn>(
        &mut self,
        conn: &mut C,
        used: Option<&LockName>,
    ) -> Vec<LockName> {
        let skip = if self.has_begun { 0 } else { self.begin(used) };
        match self.page(conn, skip).await {
            Ok(gone) => gone,
            Err(error) => {
                tracing::warn!(target: "dlock", %error, "sweep of unused rows failed");
                self.pace.rest();
                Vec::new()
            }
        }
    }

    /// Chooses the place of the first page. Returns how many names to skip.
    fn begin(&mut self, used: Option<&LockName>) -> u32 {
        self.has_begun = true;
        let mut random = random();
        let mut below = |bound: u64| {
            let drawn = random % bound;
            random /= bound;
            u32::try_from(drawn).unwrap_or(0)
        };
        if let Some(name) = used.filter(|_| below(2) == 0) {
            name.as_str().clone_into(&mut self.pace.after);
        }
        // Short distances are as probable as long ones, so that small tables are swept, too.
        let within = 1 << below(u64::from(FARTHEST) + 1);
        below(within)
    }

    async fn page<C: Conn>(&mut self, conn: &mut C, skip: u32) -> Result<Vec<LockName>, Error> {
        let mut page = conn.page(&self.pace.after, skip, self.retention, PAGE).await?;
        if page.is_empty() && (skip > 0 || !self.pace.after.is_empty()) {
            // Behind the last name: continue at the first.
            self.pace.after.clear();
            page = conn.page("", 0, self.retention, PAGE).await?;
        }
        let is_last = page.len() < usize::try_from(PAGE).unwrap_or(usize::MAX);
        let last = page.last().filter(|_| !is_last).map(|row| row.name.clone());
        let idle: Vec<(String, Mark)> = page.into_iter().filter_map(|row| self.idle(row)).collect();
        if !idle.is_empty() {
            conn.delete(&idle).await?;
            tracing::debug!(target: "dlock", rows = idle.len(), "unused rows deleted");
        }
        self.pace.turn(last, !idle.is_empty());
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
}

/// The place in a table that is read in rounds, and the time of the next page.
#[derive(Debug)]
pub(crate) struct Rounds {
    /// The name after which the next page begins.
    pub(crate) after: String,
    round: Duration,
    /// The longest pause between two pages.
    longest: Duration,
    pause: Duration,
    began: tokio::time::Instant,
    next: Pin<Box<Sleep>>,
}

impl Rounds {
    /// Creates rounds through a table from which rows are deleted after `retention`.
    pub(crate) fn new(retention: Duration) -> Self {
        let [round, longest, first] =
            [ROUND, LONGEST, FIRST].map(|time| time.min(retention).max(PAUSE));
        let began = tokio::time::Instant::now();
        let next = Box::pin(tokio::time::sleep(first));
        Self { after: String::new(), round, longest, pause: PAUSE, began, next }
    }

    pub(crate) fn is_due(&self) -> bool {
        tokio::time::Instant::now() >= self.next.deadline()
    }

    pub(crate) async fn due(&mut self) {
        self.next.as_mut().await;
    }

    /// Records a page that ended with the name `last`, or with the table. `found` is whether it had
    /// rows to delete.
    pub(crate) fn turn(&mut self, last: Option<String>, found: bool) {
        self.pause = if found { PAUSE } else { (self.pause * 2).min(self.longest) };
        match last {
            Some(last) => {
                self.after = last;
                self.sleep(self.pause);
            }
            None => self.rest(),
        }
    }

    /// Waits for the next round. It is a little longer each time, so that the processes of a
    /// machine do not sweep at the same time.
    pub(crate) fn rest(&mut self) {
        self.after.clear();
        let left = self.round.saturating_sub(self.began.elapsed());
        let spread = u64::try_from((self.round / 4).as_nanos()).unwrap_or(u64::MAX).max(1);
        let pause = left.max(self.pause) + Duration::from_nanos(random() % spread);
        self.began = tokio::time::Instant::now() + pause;
        self.sleep(pause);
    }

    fn sleep(&mut self, pause: Duration) {
        self.next = Box::pin(tokio::time::sleep(pause));
    }
}

/// Returns a random number. Processes that start at the same time need different ones.
fn random() -> u64 {
    use std::hash::{BuildHasher as _, RandomState};

    let now: Instant = Clock::Boot.now();
    // Each state has random keys.
    RandomState::new().hash_one(now.as_nanos())
}

#[cfg(test)]
mod tests;

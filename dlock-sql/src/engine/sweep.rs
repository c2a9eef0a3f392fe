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
/// The first page comes this long after the start, or with the first statement.
const FIRST: Duration = Duration::from_secs(1);
/// A process begins at most two to the power of this many names behind another name.
const FARTHEST: u32 = 15;

#[derive(Debug)]
pub(crate) struct Sweep {
    retention: Micros,
    pace: Rounds,
}

impl Sweep {
    /// Creates a sweep that deletes rows that have been idle for `retention`.
    pub(crate) fn new(retention: Duration) -> Self {
        Self { retention: micros(retention), pace: Rounds::new(retention) }
    }

    /// Returns whether a page is due.
    pub(crate) fn is_due(&self) -> bool {
        self.pace.is_due()
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
        let skip = self.pace.skip(used);
        match self.page(conn, skip).await {
            Ok(gone) => gone,
            Err(error) => {
                tracing::warn!(target: "dlock", %error, "sweep of unused rows failed");
                self.pace.rest();
                Vec::new()
            }
        }
    }

    async fn page<C: Conn>(&mut self, conn: &mut C, skip: u32) -> Result<Vec<LockName>, Error> {
        let mut page = conn.page(&self.pace.after, skip, self.retention, PAGE).await?;
        if page.is_empty() && self.pace.starts_over(skip) {
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
    has_begun: bool,
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
        let (after, has_begun) = (String::new(), false);
        Self { after, has_begun, round, longest, pause: PAUSE, began, next }
    }

    /// Returns whether a page is due. A process may live too short for any but the first, which is
    /// due at once.
    pub(crate) fn is_due(&self) -> bool {
        !self.has_begun || tokio::time::Instant::now() >= self.next.deadline()
    }

    /// Waits until a page is due, and if there was none yet, at least for [`FIRST`].
    pub(crate) async fn due(&mut self) {
        self.next.as_mut().await;
    }

    /// Returns how many names behind [`after`](Self::after) the page begins. Chooses the place of
    /// the first one. `used` is a name that this process has used.
    pub(crate) fn skip(&mut self, used: Option<&LockName>) -> u32 {
        if std::mem::replace(&mut self.has_begun, true) {
            return 0;
        }
        let mut random = random();
        let mut below = |bound: u64| {
            let drawn = random % bound;
            random /= bound;
            u32::try_from(drawn).unwrap_or(0)
        };
        if let Some(name) = used.filter(|_| below(2) == 0) {
            name.as_str().clone_into(&mut self.after);
        }
        // Short distances are as probable as long ones, so that small tables are swept, too.
        let within = 1 << below(u64::from(FARTHEST) + 1);
        below(within)
    }

    /// After a page without rows: returns whether it was behind the last name. Then the next page
    /// begins at the first name.
    pub(crate) fn starts_over(&mut self, skip: u32) -> bool {
        let was_behind = skip > 0 || !self.after.is_empty();
        self.after.clear();
        was_behind
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
mod tests {
    use std::{
        collections::BTreeMap,
        ops::Bound::{Excluded, Unbounded},
    };

    use dlock_core::{Error, Finding};

    use super::*;
    use crate::engine::{Fault, Range, Row, RowsRead, Wanted, Write};

    /// Microseconds after which a row has been idle for the retention.
    const NOW: Micros = 1_000_000_000_000;
    const RETENTION: Duration = Duration::from_secs(60);

    /// Names, and whether their rows are in use.
    #[derive(Default)]
    struct Table {
        rows: BTreeMap<String, bool>,
        pages: usize,
    }

    impl Table {
        fn add(&mut self, names: impl IntoIterator<Item = String>, is_used: bool) {
            self.rows.extend(names.into_iter().map(|name| (name, is_used)));
        }

        fn garbage(&self) -> usize {
            self.rows.values().filter(|is_used| !**is_used).count()
        }
    }

    impl Conn for Table {
        async fn apply(&mut self, _: &[Write]) -> Result<Vec<Result<Row, Error>>, Fault> {
            Ok(Vec::new())
        }

        async fn read(&mut self, _: &[Wanted]) -> Result<RowsRead, Fault> {
            Ok(RowsRead::of(0))
        }

        async fn page(
            &mut self,
            after: &str,
            skip: u32,
            _: Micros,
            most: u32,
        ) -> Result<Vec<Paged>, Fault> {
            self.pages += 1;
            let behind = self.rows.range::<str, _>((Excluded(after), Unbounded));
            let (skip, most) = (usize::try_from(skip).unwrap(), usize::try_from(most).unwrap());
            let rows = behind.skip(skip).take(most).map(|(name, is_used)| {
                let row = Row { base: 1, snap: String::new(), log: String::new() };
                Paged { name: name.clone(), now: NOW, row: (!is_used).then_some(row) }
            });
            Ok(rows.collect())
        }

        async fn range(&mut self, _: &Range, _: u32) -> Result<Vec<Paged>, Fault> {
            Ok(Vec::new())
        }

        async fn delete(&mut self, rows: &[(String, Mark)]) -> Result<(), Fault> {
            for (name, _) in rows {
                self.rows.remove(name);
            }
            Ok(())
        }

        async fn examine(&mut self) -> Result<Vec<Finding>, Fault> {
            Ok(Vec::new())
        }

        async fn close(self) {}
    }

    fn names(prefix: &str, many: usize) -> impl Iterator<Item = String> {
        (0..many).map(move |number| format!("{prefix}-{number:06}"))
    }

    /// Each process lives for one page, and uses the same name.
    #[tokio::test(start_paused = true)]
    async fn short_lived_processes_sweep_the_whole_table() {
        let mut table = Table::default();
        table.add(names("a", 2_000), true);
        table.add(names("b", 3_000), false);
        table.add(names("m", 5_000), true);
        table.add(names("z", 3_000), false);
        let used = LockName::new("m-001000").unwrap();
        let mut processes = 0;
        while table.garbage() > 0 {
            processes += 1;
            assert!(processes < 5_000, "{} rows are left", table.garbage());
            Sweep::new(RETENTION).step(&mut table, Some(&used)).await;
        }
        assert_eq!(table.rows.len(), 7_000);
    }

    /// Each process uses a name once, and adds a row.
    #[tokio::test(start_paused = true)]
    async fn a_fleet_with_one_time_names_keeps_the_table_small() {
        let mut table = Table::default();
        table.add(names("a", 1_000), true);
        for number in 0..5_000 {
            let name = format!("job-{:06}", number * 7_919 % 1_000_000);
            table.add([name.clone()], false);
            let used = LockName::new(&name).unwrap();
            Sweep::new(RETENTION).step(&mut table, Some(&used)).await;
        }
        assert!(table.garbage() < 1_000, "{} rows are left", table.garbage());
    }

    #[tokio::test(start_paused = true)]
    async fn a_large_table_in_use_costs_a_page_per_minute() {
        let mut table = Table::default();
        table.add(names("a", 100_000), true);
        let mut sweep = Sweep::new(Duration::from_secs(24 * 60 * 60));
        let end = tokio::time::Instant::now() + Duration::from_secs(3600);
        while tokio::time::Instant::now() < end {
            sweep.due().await;
            sweep.step(&mut table, None).await;
        }
        assert!((30..=80).contains(&table.pages), "{} pages in an hour", table.pages);
    }

    #[tokio::test(start_paused = true)]
    async fn garbage_is_deleted_without_long_pauses() {
        let mut table = Table::default();
        table.add(names("a", 100_000), false);
        let mut sweep = Sweep::new(Duration::from_secs(24 * 60 * 60));
        let began = tokio::time::Instant::now();
        while table.garbage() > 0 {
            sweep.due().await;
            sweep.step(&mut table, None).await;
        }
        let took = began.elapsed();
        assert!(took < Duration::from_secs(2 * 3600), "{took:?}");
    }

    #[tokio::test(start_paused = true)]
    async fn a_small_table_is_read_once_a_round() {
        let mut table = Table::default();
        table.add(names("a", 10), true);
        let mut sweep = Sweep::new(Duration::from_secs(24 * 60 * 60));
        let end = tokio::time::Instant::now() + Duration::from_secs(10 * 3600);
        while tokio::time::Instant::now() < end {
            sweep.due().await;
            sweep.step(&mut table, None).await;
        }
        assert!((8..=22).contains(&table.pages), "{} pages in ten hours", table.pages);
    }
}

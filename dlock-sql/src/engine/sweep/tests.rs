//! The sweep over a table in memory.

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

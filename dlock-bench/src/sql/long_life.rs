//! One name for long: whether it stays as quick and as small, and whether its row goes.

use std::time::Duration;

use dlock::Locks;
use tokio::task::JoinSet;

use super::{
    Bench,
    bare::{Bare, Text},
    server::SqlServer,
};
use crate::{
    Failure,
    bench::Store,
    clock,
    cycle::{Cycle, latency},
    report::Pair,
    runtime::Flavour,
};

/// Cycles of which the median is one figure, and how many of them where each waits for the disk.
const PART: usize = 10_000;
const DURABLE: usize = 250;
const NAME: &str = "long-life";

/// How many wait while the row is looked at, and for how long it is.
const WAITERS: usize = 32;
const WATCHED: Duration = Duration::from_secs(3);

/// How many names the clean-up has to do with, besides.
const NAMES: u32 = 300;
/// When a row should be gone by the latest: idle for a second, and found within another round.
const RETENTION: Duration = Duration::from_secs(1);
const PATIENCE: Duration = Duration::from_secs(20);

const SIZE: Text = Text {
    postgres: "SELECT coalesce(max(octet_length(snap) + octet_length(log)), 0)::text \
               FROM dlock_lock WHERE name = $1",
    mysql: "SELECT CAST(COALESCE(MAX(LENGTH(snap) + LENGTH(log)), 0) AS CHAR) \
            FROM dlock_lock WHERE name = ?",
};
const ROWS: Text = Text {
    postgres: "SELECT count(*)::text FROM dlock_lock",
    mysql: "SELECT CAST(COUNT(*) AS CHAR) FROM dlock_lock",
};
const TABLE: Text = Text {
    postgres: "SELECT pg_total_relation_size('dlock_lock')::text",
    mysql: "SELECT CAST(data_length + index_length AS CHAR) FROM information_schema.tables \
            WHERE table_schema = DATABASE() AND table_name = 'dlock_lock'",
};

pub(super) fn measure(bench: &mut Bench<'_>) -> Result<(), Failure> {
    let part = if bench.durable { DURABLE } else { PART };
    let parts = if bench.quick { 2 } else { 20 };
    let server = &bench.server;
    let (seen, size, gone) = Flavour::CurrentThread.start()?.block_on(async {
        let mut control = server.bare().await?;
        let seen = live(server, &mut control, parts, part).await?;
        let size = watch(server, &mut control).await?;
        let gone = forget(server, &mut control).await?;
        Ok::<_, Failure>((seen, size, gone))
    })?;
    let report = &mut *bench.report;
    let pair = Pair { floor: seen.first, dlock: seen.last, unit: "us" };
    report.ratio_at_most(
        &format!("p50 of the last {part} of {} cycles : of the first", parts * part),
        pair,
        1.2,
    );
    report.note("slowest part between them, p50", seen.slowest, "us");
    report.note("the table with its index after them", seen.table / 1024.0, "KiB");
    report.at_most(&format!("largest snapshot and log, {WAITERS} waiters"), size, "B", 4096.0);
    report.exactly("rows that stay after a retention of 1 s", gone.rows, 0.0, 0.0);
    report.note("time until they were gone", gone.after.as_secs_f64(), "s");
    report.exactly("tokens that did not grow over it", gone.stale, 0.0, 0.0);
    Ok(())
}

/// Medians in microseconds, and bytes.
struct Seen {
    first: f64,
    last: f64,
    slowest: f64,
    table: f64,
}

/// Uses a name again and again.
async fn live(
    server: &SqlServer,
    control: &mut Bare,
    parts: usize,
    part: usize,
) -> Result<Seen, Failure> {
    let locks = dlock::connect(&server.url()).await?;
    let (mut lock, _) = latency(locks.mutex(NAME)?, part / 5).await?;
    let mut medians = Vec::with_capacity(parts);
    for _ in 0..parts {
        let p50;
        (lock, p50) = latency(lock, part).await?;
        medians.push(p50);
    }
    let at = |end: Option<&f64>| end.copied().unwrap_or(f64::NAN);
    Ok(Seen {
        first: at(medians.first()),
        last: at(medians.last()),
        slowest: crate::stats::highest(&medians),
        table: control.number(TABLE, &[]).await?,
    })
}

/// The largest size of the row while one holds the lock and the others wait, in turns.
async fn watch(server: &SqlServer, control: &mut Bare) -> Result<f64, Failure> {
    let mut tasks: JoinSet<Result<(), Failure>> = JoinSet::new();
    let until = clock::after(WATCHED);
    // Two of them, so that none sees all that happens to the row.
    let processes = [dlock::connect(&server.url()).await?, dlock::connect(&server.url()).await?];
    for client in 0..=WAITERS {
        let mut lock = processes[client % processes.len()].fair(NAME)?;
        tasks.spawn(async move {
            while clock::now() < until {
                lock.cycle().await?;
            }
            Ok(())
        });
    }
    let mut largest: f64 = 0.0;
    while clock::now() < until {
        largest = largest.max(control.number(SIZE, &[NAME]).await?);
        tokio::time::sleep(Duration::from_millis(2)).await;
    }
    while let Some(done) = tasks.join_next().await {
        done??;
    }
    Ok(largest)
}

struct Gone {
    rows: f64,
    after: Duration,
    stale: f64,
}

/// Leaves names alone until their rows are gone, and uses them again.
async fn forget(server: &SqlServer, control: &mut Bare) -> Result<Gone, Failure> {
    let url = format!("{}&dlock.retention={}s", server.url(), RETENTION.as_secs());
    let locks = dlock::connect(&url).await?;
    let before = tokens(&locks).await?;
    let start = clock::now();
    let mut rows = control.number(ROWS, &[]).await?;
    while rows > 0.0 && clock::since(start) < PATIENCE {
        tokio::time::sleep(Duration::from_millis(50)).await;
        rows = control.number(ROWS, &[]).await?;
    }
    let after = clock::since(start);
    let again = tokens(&locks).await?;
    let stale = before.iter().zip(&again).filter(|(before, again)| again <= before).count();
    Ok(Gone { rows, after, stale: f64::from(u32::try_from(stale)?) })
}

/// The tokens of all names, taken one after the other.
async fn tokens(locks: &Locks) -> Result<Vec<u64>, Failure> {
    let mut tokens = vec![token(locks, NAME).await?];
    for i in 0..NAMES {
        tokens.push(token(locks, &format!("forgotten/{i}")).await?);
    }
    Ok(tokens)
}

async fn token(locks: &Locks, name: &str) -> Result<u64, Failure> {
    let guard = locks.mutex(name)?.lock().await?;
    let token = guard.token().get();
    guard.release().await?;
    Ok(token)
}

//! Names that are used once and never again: what stays of them in the server.

use std::time::Duration;

use redis::aio::MultiplexedConnection;

use super::{Bench, counters::Counters, floor};
use crate::{Failure, clock, names::use_all, runtime::Flavour};

const NAMES: u32 = 10_000;
/// The server looks for keys that have ended ten times a second, and not at all of them.
const PATIENCE: Duration = Duration::from_secs(15);

pub(super) fn measure(bench: &mut Bench<'_>) -> Result<(), Failure> {
    let url = bench.server.url();
    let seen = Flavour::CurrentThread.start()?.block_on(async {
        let mut control = floor::connect(&url).await?;
        let kept = used(&url, &mut control).await?;
        let short = format!("{url}?dlock.retention=2s");
        used(&short, &mut control).await?;
        let start = clock::now();
        let mut left = size(&mut control).await?;
        while left > 0.0 && clock::since(start) < PATIENCE {
            tokio::time::sleep(Duration::from_millis(50)).await;
            left = size(&mut control).await?;
        }
        Ok::<_, Failure>((kept, left, clock::since(start)))
    })?;
    let (kept, left, after) = seen;
    let names = f64::from(NAMES);
    let report = &mut *bench.report;
    report.at_most("keys that stay for a name", kept.keys / names, "", 1.0);
    report.note("memory that stays for a name", kept.memory / names, "B");
    report.exactly("keys that stay after a retention of 2 s", left, 0.0, 0.0);
    report.note("time until they were gone", after.as_secs_f64(), "s");
    Ok(())
}

struct Kept {
    keys: f64,
    memory: f64,
}

/// Uses all of them once, over a server that is empty.
async fn used(url: &str, control: &mut MultiplexedConnection) -> Result<Kept, Failure> {
    redis::cmd("FLUSHALL").exec_async(control).await?;
    let locks = dlock::connect(url).await?;
    let before = Counters::look(control).await?;
    use_all(&locks, NAMES).await?;
    locks.shutdown(Duration::from_secs(20)).await?;
    let after = Counters::look(control).await?;
    let memory = after.value("used_memory") - before.value("used_memory");
    Ok(Kept { keys: size(control).await?, memory })
}

/// How many keys there are.
async fn size(control: &mut MultiplexedConnection) -> Result<f64, Failure> {
    Ok(redis::cmd("DBSIZE").query_async(control).await?)
}

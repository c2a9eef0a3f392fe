//! Many locks that are held for long: what keeping them costs.

use std::time::Duration;

use dlock::LockOptions;

use super::{Bench, counters::Counters, floor};
use crate::{Failure, clock, names::hold_all, runtime::Flavour};

const HELD: u32 = 10_000;
/// Short, so that a run sees several renewals of each; a renewal is due after a third of it.
const LEASE: Duration = Duration::from_secs(6);
/// How many claims a batch may have, by the contract between core and backend.
const BATCH: u32 = 500;
/// Commands beyond one for each full batch: claims that were taken a moment later than others.
const SLACK: f64 = 4.0;

pub(super) fn measure(bench: &mut Bench<'_>) -> Result<(), Failure> {
    let rounds = if bench.quick { 2 } else { 5 };
    let seen = Flavour::CurrentThread.start()?.block_on(renewals(&bench.server.url(), rounds))?;
    let batches = f64::from(HELD) / f64::from(BATCH);
    let report = &mut *bench.report;
    report.at_most("commands for renewing all of them once", seen.commands, "", batches + SLACK);
    report.at_most("own processor time, in % of a core", seen.own, "%", 2.0);
    report.note("server's processor time, in % of a core", seen.server, "%");
    report.note("server's processor time for renewing one", seen.server_each, "us");
    Ok(())
}

struct Seen {
    commands: f64,
    own: f64,
    server: f64,
    server_each: f64,
}

async fn renewals(url: &str, rounds: u32) -> Result<Seen, Failure> {
    let mut control = floor::connect(url).await?;
    let options = LockOptions::new().with_lease(LEASE);
    let locks = dlock::connect(url).await?.with_options(options)?;
    let guards = hold_all(&locks, HELD).await?;
    // The first renewal sorts the claims into batches.
    let between = LEASE / 3;
    tokio::time::sleep(between + between / 2).await;

    let before = Counters::look(&mut control).await?;
    let start = clock::now();
    let own = clock::processor_time()?;
    tokio::time::sleep(between * rounds).await;
    let own = (clock::processor_time()? - own).as_secs_f64();
    let lasted = clock::since(start).as_secs_f64();
    let counted = before.since(&mut control).await?;
    for guard in &guards {
        guard.check()?;
    }
    // Renewals may come a little early, so their number is a share of the time that went by.
    let rounds = lasted / between.as_secs_f64();
    let server = counted.processor_time();
    let seen = Seen {
        commands: counted.scripts() / rounds,
        own: 100.0 * own / lasted,
        server: 100.0 * server / lasted,
        server_each: server * 1e6 / rounds / f64::from(HELD),
    };
    drop(guards);
    locks.shutdown(Duration::from_secs(20)).await?;
    Ok(seen)
}

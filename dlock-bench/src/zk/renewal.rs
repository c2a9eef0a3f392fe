//! Many locks that are held for long: what keeping them costs.

use std::time::Duration;

use dlock::LockOptions;
use dlock_testlab::zookeeper::ZooKeeperServer;

use super::{Bench, counters::Counters};
use crate::{
    Failure, bench::Store, clock, names::hold_all, rounds::Meter, runtime::Flavour, usage::Usage,
};

const HELD: u32 = 10_000;
/// Short, so that a run sees several renewals of each; a renewal is due after a third of it. A
/// session lasts twice as long as the longest lease in it.
const LEASE: Duration = Duration::from_secs(6);
/// How many claims a batch may have, by the contract between core and backend.
const BATCH: u32 = 500;
/// Commands beyond one for each full batch: claims that were taken a moment later than others.
const SLACK: f64 = 4.0;

pub(super) fn measure(bench: &mut Bench<'_>) -> Result<(), Failure> {
    let rounds = if bench.quick { 2 } else { 5 };
    let seen = Flavour::CurrentThread.start()?.block_on(renewals(&bench.server, rounds))?;
    let batches = f64::from(HELD) / f64::from(BATCH);
    let report = &mut *bench.report;
    report.at_most("commands for renewing all of them once", seen.commands, "", batches + SLACK);
    report.note("commands a second", seen.rate, "");
    report.exactly("nodes of them that are watched", seen.watches, f64::from(HELD), 0.0);
    report.at_most("own processor time, in % of a core", seen.own, "%", 2.0);
    report.note("server's processor time, in % of a core", seen.server, "%");
    Ok(())
}

struct Seen {
    commands: f64,
    rate: f64,
    watches: f64,
    own: f64,
    server: f64,
}

async fn renewals(server: &ZooKeeperServer, rounds: u32) -> Result<Seen, Failure> {
    let mut usage = Usage::of(server.pid())?;
    let url = format!("{}?dlock.session_timeout={}s", server.url(), 2 * LEASE.as_secs());
    let options = LockOptions::new().with_lease(LEASE);
    let locks = dlock::connect(&url).await?.with_options(options)?;
    let guards = hold_all(&locks, HELD).await?;
    // The first renewal sorts the claims into batches.
    let between = LEASE / 3;
    tokio::time::sleep(between + between / 2).await;

    let before = Counters::look(server).await?;
    let watches = before.watches();
    let (start, served) = (clock::now(), usage.server_time().await?);
    let own = clock::processor_time()?;
    tokio::time::sleep(between * rounds).await;
    let own = (clock::processor_time()? - own).as_secs_f64();
    let (lasted, served) = (clock::since(start), usage.server_time().await? - served);
    let commands = before.since(server).await?.commands();
    for guard in &guards {
        guard.check()?;
    }
    // Renewals may come a little early, so their number is a share of the time that went by.
    let lasted = lasted.as_secs_f64();
    let seen = Seen {
        commands: commands * between.as_secs_f64() / lasted,
        rate: commands / lasted,
        watches,
        own: 100.0 * own / lasted,
        server: 100.0 * served / lasted,
    };
    drop(guards);
    locks.shutdown(Duration::from_secs(20)).await?;
    Ok(seen)
}

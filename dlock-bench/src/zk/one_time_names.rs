//! Names that are used once and never again: what stays of them in the server.
//!
//! A lock's directory is a container, which the server itself removes once it is empty: it looks
//! for such once a minute, and removes ten thousand a minute at most. The server here looks more
//! often and removes as many as it can, so that what is measured does not take minutes.

use std::time::Duration;

use dlock_testlab::zookeeper::{Options, ZooKeeperServer};
use tokio::task::JoinSet;

use super::{Bench, counters::Counters, floor, no_server};
use crate::{
    Failure,
    bench::Store,
    clock,
    cycle::Cycle,
    names::{TASKS, use_all},
    report::Pair,
    runtime::Flavour,
    stats::highest,
};

const NAMES: u32 = 10_000;
/// How often the server looks for empty directories.
const CHECKS: Duration = Duration::from_secs(3);
/// Far longer than it should take.
const PATIENCE: Duration = Duration::from_secs(30);
/// More than it can remove.
const PER_MINUTE: &str = "60000000";

pub(super) fn measure(bench: &mut Bench<'_>) -> Result<(), Failure> {
    let rounds = if bench.quick { 1 } else { 3 };
    let seen = Flavour::CurrentThread.start()?.block_on(async {
        let options = Options::new().with_container_checks_every(CHECKS);
        let options = options.with_property("znode.container.maxPerMinute", PER_MINUTE);
        let server = ZooKeeperServer::start(&options).await.map_err(no_server)?;
        used_and_gone(&server, rounds).await
    })?;
    let names = f64::from(NAMES);
    let report = &mut *bench.report;
    report.ratio("cycles a second, the same commands bare", seen.rate);
    report.note("commands of a cycle", seen.commands / names, "");
    report.note("of these, writes", seen.writes / names, "");
    report.exactly("nodes that stay in the end", seen.left, 0.0, 0.0);
    report.at_most("looks of the server until they were gone", seen.looks, "", 2.0);
    report.note("time until they were gone", seen.after.as_secs_f64(), "s");
    Ok(())
}

struct Seen {
    rate: Pair,
    commands: f64,
    writes: f64,
    left: f64,
    /// How often the server can have looked for what is empty.
    looks: f64,
    after: Duration,
}

async fn used_and_gone(server: &ZooKeeperServer, rounds: u32) -> Result<Seen, Failure> {
    // It makes the directory of the floor's directories, which stays.
    let client = floor::connect(&server.address()).await?;
    floor::FloorLock::new(&client, "kept").await?.cycle().await?;
    let kept = Counters::look(server).await?.nodes();

    let (mut bare, mut held) = (Vec::new(), Vec::new());
    let (mut commands, mut writes) = (f64::NAN, f64::NAN);
    for round in 0..rounds {
        let start = clock::now();
        use_all_bare(&client, round).await?;
        bare.push(f64::from(NAMES) / clock::since(start).as_secs_f64());

        let locks =
            dlock::connect(&format!("{}?dlock.prefix=round-{round}-", server.url())).await?;
        let before = Counters::look(server).await?;
        let start = clock::now();
        use_all(&locks, NAMES).await?;
        held.push(f64::from(NAMES) / clock::since(start).as_secs_f64());
        let counted = before.since(server).await?;
        (commands, writes) = (counted.commands(), counted.writes());
    }

    let start = clock::now();
    let mut left = f64::INFINITY;
    while left > 0.0 && clock::since(start) < PATIENCE {
        // The directory of the locks' directories goes after them, in the next look.
        left = (Counters::look(server).await?.nodes() - kept - 1.0).max(0.0);
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    let after = clock::since(start);
    Ok(Seen {
        rate: Pair { floor: highest(&bare), dlock: highest(&held), unit: "" },
        commands,
        writes,
        left,
        looks: (after.as_secs_f64() / CHECKS.as_secs_f64()).ceil(),
        after,
    })
}

/// The same names, by the driver alone.
async fn use_all_bare(client: &zookeeper_client::Client, round: u32) -> Result<(), Failure> {
    let mut tasks: JoinSet<Result<(), Failure>> = JoinSet::new();
    for task in 0..TASKS {
        let client = client.clone();
        tasks.spawn(async move {
            for i in (task..NAMES).step_by(usize::try_from(TASKS)?) {
                floor::NewName::new(&client, &format!("round-{round}-once-{i}")).cycle().await?;
            }
            Ok(())
        });
    }
    while let Some(done) = tasks.join_next().await {
        done??;
    }
    Ok(())
}

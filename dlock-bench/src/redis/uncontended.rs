//! One task, one name: how much longer a quiet lock takes than the floor.

use super::{
    Bench,
    counters::{Counted, Counters},
    floor::{self, FloorLock},
};
use crate::{
    Failure, awake::Awake, cycle::latency, processors::Server, report::Pair, rounds::latencies,
    runtime::Flavour,
};

/// Cycles in a round.
const CYCLES: usize = 2000;

pub(super) fn measure(bench: &mut Bench<'_>) -> Result<(), Failure> {
    let _awake = Awake::keep()?;
    let placed = bench.place(Server::Together)?;
    let (pair, counted) = run(bench, Flavour::CurrentThread)?;
    bench.report.ratio_at_most("p50 of a cycle, all on one processor", pair, 1.2);
    drop(placed);
    let placed = bench.place(Server::Apart)?;
    let (apart, _) = run(bench, Flavour::CurrentThread)?;
    bench.report.ratio("p50 of a cycle, the server on another", apart);
    drop(placed);
    let (two, _) = run(bench, Flavour::TwoWorkers)?;
    bench.report.ratio("p50 of a cycle, two threads, all anywhere", two);

    let cycles = f64::from(u32::try_from(CYCLES)?);
    bench.report.exactly("round trips of a cycle", counted.reads() / cycles, 2.0, 0.01);
    bench.report.note("commands of a cycle, those in scripts too", counted.commands() / cycles, "");
    bench.report.note("script calls of a cycle", counted.scripts() / cycles, "");
    bench.report.note("server's time in these scripts", counted.script_time() / cycles, "us");
    Ok(())
}

fn run(bench: &Bench<'_>, flavour: Flavour) -> Result<(Pair, Counted), Failure> {
    flavour.start()?.block_on(rounds(&bench.server.url(), bench.rounds()))
}

/// The medians, and what the server counted in one round of dlock.
async fn rounds(url: &str, rounds: usize) -> Result<(Pair, Counted), Failure> {
    let mut control = floor::connect(url).await?;
    let mut bare = FloorLock::new(floor::connect(url).await?, "uncontended").await?;
    let locks = dlock::connect(url).await?;
    let mut lock = locks.mutex("uncontended")?;
    // Connections, scripts and caches warm up.
    (bare, _) = latency(bare, CYCLES).await?;
    (lock, _) = latency(lock, CYCLES).await?;

    let before = Counters::look(&mut control).await?;
    (lock, _) = latency(lock, CYCLES).await?;
    let counted = before.since(&mut control).await?;
    let (_, _, pair) = latencies(bare, lock, rounds, CYCLES).await?;
    Ok((pair, counted))
}

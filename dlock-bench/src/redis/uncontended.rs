//! One task, one name: how much longer a quiet lock takes than the floor.

use super::{
    Bench,
    counters::{Counted, Counters},
    floor::{self, FloorLock},
};
use crate::{
    Failure, awake::Awake, cycle::latency, processors::Server, report::Pair, runtime::Flavour,
    stats::lowest,
};

/// Cycles in a round.
const CYCLES: usize = 2000;

pub(super) fn measure(bench: &mut Bench<'_>) -> Result<(), Failure> {
    let _awake = Awake::keep()?;
    let placed = bench.place(Server::Together)?;
    let seen = run(bench, Flavour::CurrentThread)?;
    bench.report.ratio_at_most("p50 of a cycle, all on one processor", seen.pair(), 1.2);
    drop(placed);
    let placed = bench.place(Server::Apart)?;
    let apart = run(bench, Flavour::CurrentThread)?;
    bench.report.ratio("p50 of a cycle, the server on another", apart.pair());
    drop(placed);
    let two = run(bench, Flavour::TwoWorkers)?;
    bench.report.ratio("p50 of a cycle, two threads, all anywhere", two.pair());

    let cycles = f64::from(u32::try_from(CYCLES)?);
    let counted = &seen.counted;
    bench.report.exactly("round trips of a cycle", counted.reads() / cycles, 2.0, 0.01);
    bench.report.note("commands of a cycle, those in scripts too", counted.commands() / cycles, "");
    bench.report.note("script calls of a cycle", counted.scripts() / cycles, "");
    bench.report.note("server's time in these scripts", counted.script_time() / cycles, "us");
    Ok(())
}

fn run(bench: &Bench<'_>, flavour: Flavour) -> Result<Seen, Failure> {
    flavour.start()?.block_on(rounds(&bench.server.url(), bench.rounds()))
}

struct Seen {
    floor: Vec<f64>,
    dlock: Vec<f64>,
    /// What the server counted in one round of dlock.
    counted: Counted,
}

impl Seen {
    fn pair(&self) -> Pair {
        Pair { floor: lowest(&self.floor), dlock: lowest(&self.dlock), unit: "us" }
    }
}

async fn rounds(url: &str, rounds: usize) -> Result<Seen, Failure> {
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
    let mut seen = Seen { floor: Vec::new(), dlock: Vec::new(), counted };
    for _ in 0..rounds {
        let (floor, dlock);
        (bare, floor) = latency(bare, CYCLES).await?;
        (lock, dlock) = latency(lock, CYCLES).await?;
        seen.floor.push(floor);
        seen.dlock.push(dlock);
    }
    Ok(seen)
}

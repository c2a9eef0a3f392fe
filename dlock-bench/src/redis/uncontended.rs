//! One task, one name: how much longer a quiet lock takes than the floor.

use super::{
    Bench,
    counters::{Counted, Counters},
    floor::{self, FloorLock},
};
use crate::{
    Failure,
    awake::Awake,
    cycle::latency,
    report::Pair,
    runtime::Flavour,
    stats::{lowest, middle},
};

/// Cycles in a round.
const CYCLES: usize = 2000;

pub(super) fn measure(bench: &mut Bench<'_>) -> Result<(), Failure> {
    let what = "p50 of a cycle, one thread";
    let awake = Awake::keep()?;
    let seen = run(bench, Flavour::CurrentThread)?;
    bench.report.ratio_at_most(what, seen.pair(lowest), 1.2);
    // Which thread runs what is noise that is larger than what is measured.
    let two = run(bench, Flavour::TwoWorkers)?;
    bench.report.ratio("p50 of a cycle, two threads", two.pair(lowest));
    drop(awake);
    // The best round would be the one in which something else kept them awake.
    let idle = run(bench, Flavour::CurrentThread)?;
    bench.report.ratio(&format!("{what}, on processors that sleep"), idle.pair(middle));

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
    fn pair(&self, of: fn(&[f64]) -> f64) -> Pair {
        Pair { floor: of(&self.floor), dlock: of(&self.dlock), unit: "us" }
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

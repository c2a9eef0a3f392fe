//! A line of claims for one fair lock, in several sessions: what it takes until the next one has
//! it, when everybody gives it back at once.
//!
//! One session is told of a hand-over, besides that of the holder, which watches its own node. Who
//! waited behind the holder alone need not ask for more; all others ask for a list.
//!
//! The floor is what the news of a deletion takes from one session to another: with one who waits
//! for it, and with a list after it, as everybody needs who had more than one before him.

mod bare;
mod line;

use self::{
    bare::Bare,
    line::{Line, Pace, Run},
};
use super::Bench;
use crate::{
    Failure,
    awake::Awake,
    report::Pair,
    runtime::Flavour,
    stats::{highest, lowest, median},
};

/// How many wait.
const WAITERS: [usize; 3] = [8, 64, 512];
/// How often one does whose turn comes next: while it is timed, and while it is counted.
const TIMES: usize = 100;
const COUNTED: usize = 8;
/// Commands beyond those of the hand-overs: pings, and heartbeats of sessions that are idle.
const SLACK: f64 = 0.2;

pub(super) fn measure(bench: &mut Bench<'_>) -> Result<(), Failure> {
    let rounds = if bench.quick { 3 } else { 8 };
    let runtime = Flavour::CurrentThread.start()?;
    let awake = Awake::keep()?;
    let (single, lines) = runtime.block_on(async {
        let (mut single, mut lines) = (Best::default(), Best::default());
        for _ in 0..rounds {
            // Some sessions are quicker than others for as long as they last.
            let mut bare = Bare::connect(&bench.server).await?;
            let line = Line::connect(&bench.server).await?;
            single.bares.push(median(bare.rounds(false).await?));
            single.add(line.singles(TIMES, Pace::Quick).await?);
            lines.bares.push(median(bare.rounds(true).await?));
            lines.add(line.run(WAITERS[1]).await?);
        }
        Ok::<_, Failure>((single, lines))
    })?;
    drop(awake);
    let report = &mut *bench.report;
    report.ratio("p50 from release to the waiter's return, 1 waiter", single.p50());
    report.ratio("p50 from release to the waiter's return, 64 waiters", lines.p50());
    let run = runtime.block_on(async {
        Line::connect(&bench.server).await?.singles(COUNTED, Pace::Settled).await
    })?;
    let report = &mut *bench.report;
    let usual = run.usual_commands();
    // The deletion alone: its news is the grant.
    report.exactly("commands of a hand-over, 1 waiter", usual, 1.0, 0.0);

    let mut commands = Vec::new();
    for waiters in WAITERS {
        let run =
            runtime.block_on(async { Line::connect(&bench.server).await?.run(waiters).await })?;
        commands.push(run.commands());
        let report = &mut *bench.report;
        let of = format!("of a hand-over, {waiters} waiters");
        // The deletion and a list.
        report.exactly(&format!("commands {of}"), run.commands(), 2.0, SLACK);
        let told = format!("sessions told {of}, its own too");
        report.at_most(&told, run.notices(), "", 2.0 + SLACK);
        report.note(&format!("p50 {of}"), run.p50(), "us");
    }
    let growth = highest(&commands) / lowest(&commands);
    bench.report.at_most("commands of a hand-over, most : least of these", growth, "x", 1.1);
    Ok(())
}

/// Rounds of floor and dlock.
#[derive(Default)]
struct Best {
    bares: Vec<f64>,
    runs: Vec<Run>,
}

impl Best {
    fn add(&mut self, run: Run) {
        self.runs.push(run);
    }

    /// The best medians.
    fn p50(&self) -> Pair {
        let medians: Vec<f64> = self.runs.iter().map(Run::p50).collect();
        Pair { floor: lowest(&self.bares), dlock: lowest(&medians), unit: "us" }
    }
}

//! Several processes that want one fair lock: what it takes until the next one has it.
//!
//! The floor is one message: what passes from `PUBLISH` in one process to the arrival in another.
//! It goes round among the same processes, so that each is as cold when its turn comes as it is
//! when it waits for the lock.

mod messages;
pub(crate) mod ring;

use std::time::Duration;

use redis::aio::MultiplexedConnection;
use tokio::runtime::Runtime;

pub(crate) use self::messages::Messages;

use super::{
    Bench,
    counters::{Counted, Counters},
    floor,
};
use crate::{
    Failure,
    awake::Awake,
    crew::{Crew, Holds},
    processors::Server,
    report::Pair,
    runtime::Flavour,
    stats::{highest, lowest, median, middle, percentile},
};

const PROCESSES: usize = 8;
/// Clients of each process; each has a connection of its own.
const CLIENTS: [usize; 3] = [1, 8, 64];
/// How long a round lasts.
const LASTS: Duration = Duration::from_millis(400);
/// How many runs with many clients there are, of which the best counts.
const TRIES: usize = 3;
/// What the first and the last holds of a run may add to the counts, which are handed over by
/// nobody or to nobody.
const SLACK: f64 = 0.02;

pub(super) fn measure(bench: &mut Bench<'_>) -> Result<(), Failure> {
    let awake = Awake::keep()?;
    let _placed = bench.place(Server::Apart)?;
    let runtime = Flavour::CurrentThread.start()?;
    let control = runtime.block_on(floor::connect(&bench.server.url()))?;
    let crew = Crew::start(&bench.server.url(), PROCESSES)?;
    let mut scene = Scene { runtime, control, crew, lasts: LASTS };

    let (pushes, mut runs) = scene.rounds(bench.rounds())?;
    let report = &mut *bench.report;
    report.ratio_at_most(
        "p50 from release to the waiter's return, 8 clients",
        p50(&pushes, &runs),
        2.2,
    );
    let tails: Vec<f64> = runs.iter().map(|run| percentile(run.holds.latencies(), 99)).collect();
    report.note("p99 of it", lowest(&tails), "us");
    let even: Vec<f64> = runs.iter().map(|run| run.holds.fairness()).collect();
    report.at_least("Jain fairness over the processes", middle(&even), "", 0.99);
    drop(awake);
    runs.sort_by(|a, b| a.p50().total_cmp(&b.p50()));
    let mut commands = vec![counts(bench, runs.first().ok_or("no round")?, PROCESSES)];
    for clients in &CLIENTS[1..] {
        // So that each has some turns.
        scene.lasts = LASTS * u32::try_from(clients.div_ceil(32))?;
        let mut runs = Vec::new();
        for _ in 0..TRIES {
            runs.push(scene.contend(*clients)?);
        }
        // The one that was disturbed least: who waits for long asks again, which counts.
        let best = |a: &Run, b: &Run| a.holds.hand_overs().total_cmp(&b.holds.hand_overs());
        let run = runs.into_iter().max_by(best).ok_or("no run")?;
        commands.push(counts(bench, &run, PROCESSES * clients));
    }
    let growth = highest(&commands) / lowest(&commands);
    bench.report.at_most("commands of a hand-over, most : least of these", growth, "x", 1.1);
    Ok(())
}

/// The best medians: of a message and of a hand-over.
fn p50(pushes: &[f64], runs: &[Run]) -> Pair {
    let medians: Vec<f64> = runs.iter().map(Run::p50).collect();
    Pair { floor: lowest(pushes), dlock: lowest(&medians), unit: "us" }
}

/// Tells what the server saw of one hand-over, and answers how many commands it was.
fn counts(bench: &mut Bench<'_>, run: &Run, clients: usize) -> f64 {
    let hand_overs = run.holds.hand_overs();
    let (scripts, messages) = (run.counted.scripts(), run.counted.messages());
    let commands = run.counted.commands() / hand_overs;
    let report = &mut *bench.report;
    let of = format!("of a hand-over, {clients} clients");
    report.at_most(&format!("script calls {of}"), scripts / hand_overs, "", 2.0 + SLACK);
    report.exactly(&format!("messages {of}"), messages / hand_overs, 1.0, SLACK);
    report.note(&format!("commands {of}, those in scripts too"), commands, "");
    let rate = hand_overs / run.lasts.as_secs_f64();
    report.note(&format!("hand-overs a second, {clients} clients"), rate, "");
    report.note(&format!("p50 {of}"), run.p50(), "us");
    // A message that got lost shows here: the waiter asks by itself much later.
    report.note(&format!("longest {of}"), percentile(run.holds.latencies(), 100) / 1e3, "ms");
    let script = run.counted.script_time() / hand_overs;
    report.note(&format!("server's time in scripts {of}"), script, "us");
    let server = run.counted.processor_time() * 1e6 / hand_overs;
    report.note(&format!("server's time {of}"), server, "us");
    commands
}

/// One run of all clients against each other.
struct Run {
    holds: Holds,
    counted: Counted,
    lasts: Duration,
}

impl Run {
    fn p50(&self) -> f64 {
        median(self.holds.latencies())
    }
}

struct Scene {
    runtime: Runtime,
    control: MultiplexedConnection,
    crew: Crew,
    lasts: Duration,
}

impl Scene {
    /// Messages and hand-overs in turns: the median of each round's messages, and the hand-overs.
    fn rounds(&mut self, rounds: usize) -> Result<(Vec<f64>, Vec<Run>), Failure> {
        let (mut pushes, mut runs) = (Vec::new(), Vec::new());
        for _ in 0..rounds {
            pushes.push(median(messages::ring(&mut self.crew, self.lasts)?));
            runs.push(self.contend(CLIENTS[0])?);
        }
        Ok((pushes, runs))
    }

    fn contend(&mut self, clients: usize) -> Result<Run, Failure> {
        self.crew.connect(clients)?;
        let before = self.runtime.block_on(Counters::look(&mut self.control))?;
        let contest = self.crew.contend("hand-over", clients, 1, self.lasts)?;
        let counted = self.runtime.block_on(before.since(&mut self.control))?;
        Ok(Run { holds: contest.without_errors()?, counted, lasts: self.lasts })
    }
}

//! Many tasks of one process that want one lock: dlock's local hand-off against the threads of a
//! process with Curator's `InterProcessMutex`, each of which goes to the server for each hold.

use std::time::Duration;

use dlock_testlab::zookeeper::{JavaProgram, ZooKeeperServer};

use super::{Bench, counters::Counters};
use crate::{
    Failure,
    bench::Store,
    cycle::throughput,
    report::Pair,
    runtime::Flavour,
    stats::{highest, middle},
};

const CURATOR: &str = include_str!("java/Curator.java");

/// Tasks of dlock, and threads of Curator.
const TASKS: usize = 64;
/// How long a round lasts.
const LASTS: Duration = Duration::from_millis(400);
/// How long Curator runs before, until it is compiled.
const WARM_UP: Duration = Duration::from_secs(4);

pub(super) fn measure(bench: &mut Bench<'_>) -> Result<(), Failure> {
    let rounds = bench.rounds();
    let seen = Flavour::CurrentThread.start()?.block_on(all_rounds(&bench.server, rounds))?;
    let two = Flavour::TwoWorkers.start()?.block_on(all_rounds(&bench.server, rounds))?;
    let report = &mut *bench.report;
    report.ratio_at_least("cycles a second, median round, one thread", seen.median, 20.0);
    report.ratio("cycles a second, median round, two threads", two.median);
    report.ratio("cycles a second, best round, one thread", seen.best);
    report.ratio("commands of a cycle, one thread", seen.commands);
    Ok(())
}

struct Seen {
    median: Pair,
    best: Pair,
    commands: Pair,
}

async fn all_rounds(server: &ZooKeeperServer, rounds: usize) -> Result<Seen, Failure> {
    let mut curator = Curator::start(server).await?;
    curator.round(WARM_UP).await?;
    let locks = dlock::connect(&server.url()).await?;
    let tasks = (0..TASKS).map(|_| locks.mutex("local")).collect::<Result<_, _>>()?;
    let (mut tasks, _) = throughput(tasks, LASTS).await?;
    let (mut floors, mut dlocks) = (Vec::new(), Vec::new());
    let (mut sent, mut cycles) = ([0.0; 2], [0.0; 2]);
    for _ in 0..rounds {
        let before = Counters::look(server).await?;
        let (done, rate) = curator.round(LASTS).await?;
        floors.push(rate);
        let between = Counters::look(server).await?;
        let its;
        (tasks, its) = throughput(tasks, LASTS).await?;
        dlocks.push(its.rate);
        let of_dlock = between.clone().since(server).await?;
        sent[0] += before.until(between).commands();
        sent[1] += of_dlock.commands();
        cycles[0] += done;
        cycles[1] += its.cycles;
    }
    Ok(Seen {
        median: Pair { floor: middle(&floors), dlock: middle(&dlocks), unit: "" },
        best: Pair { floor: highest(&floors), dlock: highest(&dlocks), unit: "" },
        commands: Pair { floor: sent[0] / cycles[0], dlock: sent[1] / cycles[1], unit: "" },
    })
}

/// A process with Curator.
struct Curator(JavaProgram);

impl Curator {
    async fn start(server: &ZooKeeperServer) -> Result<Self, Failure> {
        let (address, threads) = (server.address(), TASKS.to_string());
        let started = JavaProgram::start(CURATOR, &[&address, "/curator/local", &threads]);
        let mut program = Self(started.map_err(|stop| format!("no Curator: {stop:?}"))?);
        program.line().await?;
        Ok(program)
    }

    /// Has its threads take the lock and give it back for so long: how often they did, and how
    /// often a second.
    async fn round(&mut self, lasts: Duration) -> Result<(f64, f64), Failure> {
        let said = self.0.say(&lasts.as_millis().to_string()).await;
        said.map_err(|stop| format!("Curator: {stop:?}"))?;
        let line = self.line().await?;
        let (cycles, nanos) = line.split_once(' ').ok_or("Curator says something else")?;
        let (cycles, nanos): (f64, f64) = (cycles.parse()?, nanos.parse()?);
        Ok((cycles, cycles * 1e9 / nanos))
    }

    async fn line(&mut self) -> Result<String, Failure> {
        Ok(self.0.line().await.map_err(|stop| format!("Curator: {stop:?}"))?)
    }
}

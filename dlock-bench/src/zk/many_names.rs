//! Many names over one session: what is left of the driver's pipelining.

use std::time::Duration;

use dlock_testlab::zookeeper::ZooKeeperServer;

use super::{
    Bench,
    floor::{self, FloorLock},
};
use crate::{
    Failure,
    bench::Store,
    cycle::Cycle,
    rounds::{Rounds, pair, throughputs},
    runtime::Flavour,
    usage::Usage,
};

const NAMES: usize = 512;
/// How many tasks the target is for; each has several names in turn.
const FEW: usize = 64;
/// How many sessions each has one after the other: some are quicker for as long as they last.
const SESSIONS: usize = 5;

pub(super) fn measure(bench: &mut Bench<'_>) -> Result<(), Failure> {
    for (flavour, tasks) in [
        (Flavour::CurrentThread, FEW),
        (Flavour::CurrentThread, NAMES),
        (Flavour::TwoWorkers, FEW),
        (Flavour::TwoWorkers, NAMES),
    ] {
        let both = flavour.start()?.block_on(rounds(&bench.server, bench.rounds(), tasks))?;
        let of = format!("{tasks} tasks, {}", flavour.label());
        let rate = format!("cycles a second, {of}");
        let rates = pair(&both, Rounds::rate, "");
        let report = &mut *bench.report;
        if flavour == Flavour::CurrentThread && tasks == FEW {
            report.ratio_at_least(&rate, rates, 0.7);
        } else {
            report.ratio(&rate, rates);
        }
        let server = format!("server's time for a cycle, {of}");
        report.ratio(&server, pair(&both, Rounds::server, "us"));
        let client = format!("client's time for a cycle, {of}");
        report.ratio(&client, pair(&both, Rounds::client, "us"));
    }
    Ok(())
}

async fn rounds(
    server: &ZooKeeperServer,
    rounds: usize,
    tasks: usize,
) -> Result<(Rounds, Rounds), Failure> {
    let mut both = (Rounds::default(), Rounds::default());
    for _ in 0..SESSIONS {
        let (floor, dlock) = of_sessions(server, rounds.div_ceil(SESSIONS), tasks).await?;
        both.0.and(floor);
        both.1.and(dlock);
    }
    Ok(both)
}

/// Rounds with a session for each.
async fn of_sessions(
    server: &ZooKeeperServer,
    rounds: usize,
    tasks: usize,
) -> Result<(Rounds, Rounds), Failure> {
    let lasts = Duration::from_millis(200);
    let mut usage = Usage::of(server.pid())?;
    let client = floor::connect(&server.address()).await?;
    let locks = dlock::connect(&server.url()).await?;
    let (mut bare, mut held) = (Vec::new(), Vec::new());
    for task in 0..tasks {
        let (mut its_bare, mut its_held) = (Vec::new(), Vec::new());
        for name in (task..NAMES).step_by(tasks) {
            let name = format!("many-{name}");
            its_bare.push(FloorLock::new(&client, &name).await?);
            its_held.push(locks.mutex(&name)?);
        }
        bare.push(InTurn { subjects: its_bare, next: 0 });
        held.push(InTurn { subjects: its_held, next: 0 });
    }
    throughputs(&mut usage, bare, held, rounds, lasts).await
}

/// The names of one task.
struct InTurn<C> {
    subjects: Vec<C>,
    next: usize,
}

impl<C: Cycle> Cycle for InTurn<C> {
    async fn cycle(&mut self) -> Result<(), Failure> {
        let at = self.next % self.subjects.len();
        self.next = at + 1;
        self.subjects[at].cycle().await
    }
}

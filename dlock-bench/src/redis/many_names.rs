//! Many tasks, a name each, one connection: what is left of the driver's pipelining.

use std::time::Duration;

use redis::aio::MultiplexedConnection;

use super::{
    Bench,
    counters::Counters,
    floor::{self, FloorLock},
};
use crate::{
    Failure, clock,
    cycle::{Cycle, throughput},
    report::Pair,
    runtime::Flavour,
    stats::{highest, lowest},
};

/// How many tasks the targets are for.
const MANY: usize = 512;
const FEW: usize = 64;

pub(super) fn measure(bench: &mut Bench<'_>) -> Result<(), Failure> {
    for (flavour, tasks) in [
        (Flavour::CurrentThread, MANY),
        (Flavour::CurrentThread, FEW),
        (Flavour::TwoWorkers, MANY),
        (Flavour::TwoWorkers, FEW),
    ] {
        let (floor, dlock) =
            flavour.start()?.block_on(rounds(&bench.server.url(), bench.rounds(), tasks))?;
        let of = format!("{tasks} tasks, {}", flavour.label());
        let rate = format!("cycles a second, {of}");
        let server = format!("server's time for a cycle, {of}");
        let client = format!("client's time for a cycle, {of}");
        let pair =
            |of: fn(&Rounds) -> f64, unit| Pair { floor: of(&floor), dlock: of(&dlock), unit };
        let (rates, servers) = (pair(Rounds::rate, ""), pair(Rounds::server, "us"));
        let report = &mut *bench.report;
        if flavour == Flavour::CurrentThread && tasks == MANY {
            report.ratio_at_least(&rate, rates, 0.6);
            report.ratio_at_most(&server, servers, 1.7);
        } else {
            report.ratio(&rate, rates);
            report.ratio(&server, servers);
        }
        report.ratio(&client, pair(Rounds::client, "us"));
    }
    Ok(())
}

/// Rounds of one subject: cycles a second, and microseconds of processor time for a cycle.
#[derive(Default)]
struct Rounds {
    rates: Vec<f64>,
    servers: Vec<f64>,
    clients: Vec<f64>,
}

impl Rounds {
    fn rate(&self) -> f64 {
        highest(&self.rates)
    }

    fn server(&self) -> f64 {
        lowest(&self.servers)
    }

    fn client(&self) -> f64 {
        lowest(&self.clients)
    }

    /// One more round. Gives the subjects back.
    async fn add<C: Cycle>(
        &mut self,
        control: &mut MultiplexedConnection,
        subjects: Vec<C>,
        lasts: Duration,
    ) -> Result<Vec<C>, Failure> {
        let before = Counters::look(control).await?;
        let own = clock::processor_time()?;
        let (subjects, done) = throughput(subjects, lasts).await?;
        let own = (clock::processor_time()? - own).as_secs_f64();
        let counted = before.since(control).await?;
        self.rates.push(done.rate);
        self.servers.push(counted.processor_time() * 1e6 / done.cycles);
        self.clients.push(own * 1e6 / done.cycles);
        Ok(subjects)
    }
}

async fn rounds(url: &str, rounds: usize, tasks: usize) -> Result<(Rounds, Rounds), Failure> {
    let lasts = Duration::from_millis(150);
    let mut control = floor::connect(url).await?;
    let names: Vec<String> = (0..tasks).map(|i| format!("many/{tasks}/{i}")).collect();
    let bare = FloorLock::new(floor::connect(url).await?, "many").await?;
    let mut bare: Vec<_> = names.iter().map(|name| bare.named(name)).collect();
    let locks = dlock::connect(url).await?;
    let mut held = Vec::with_capacity(tasks);
    for name in &names {
        held.push(locks.mutex(name)?);
    }
    (bare, _) = throughput(bare, lasts).await?;
    (held, _) = throughput(held, lasts).await?;

    let (mut floor, mut dlock) = (Rounds::default(), Rounds::default());
    for _ in 0..rounds {
        bare = floor.add(&mut control, bare, lasts).await?;
        held = dlock.add(&mut control, held, lasts).await?;
    }
    Ok((floor, dlock))
}

//! Many tasks, a name each, one connection: what is left of the driver's pipelining.

use std::time::Duration;

use redis::aio::MultiplexedConnection;

use super::{
    Bench,
    counters::Counters,
    floor::{self, FloorLock},
};
use crate::{
    Failure,
    rounds::{Meter, Rounds, pair, throughputs},
    runtime::Flavour,
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
        let both = flavour.start()?.block_on(rounds(&bench.server.url(), bench.rounds(), tasks))?;
        let of = format!("{tasks} tasks, {}", flavour.label());
        let rate = format!("cycles a second, {of}");
        let server = format!("server's time for a cycle, {of}");
        let client = format!("client's time for a cycle, {of}");
        let (rates, servers) = (pair(&both, Rounds::rate, ""), pair(&both, Rounds::server, "us"));
        let report = &mut *bench.report;
        if flavour == Flavour::CurrentThread && tasks == MANY {
            report.ratio_at_least(&rate, rates, 0.6);
            report.ratio_at_most(&server, servers, 1.7);
        } else {
            report.ratio(&rate, rates);
            report.ratio(&server, servers);
        }
        report.ratio(&client, pair(&both, Rounds::client, "us"));
    }
    Ok(())
}

async fn rounds(url: &str, rounds: usize, tasks: usize) -> Result<(Rounds, Rounds), Failure> {
    let lasts = Duration::from_millis(150);
    let mut control = floor::connect(url).await?;
    let names: Vec<String> = (0..tasks).map(|i| format!("many/{tasks}/{i}")).collect();
    let bare = FloorLock::new(floor::connect(url).await?, "many").await?;
    let bare: Vec<_> = names.iter().map(|name| bare.named(name)).collect();
    let locks = dlock::connect(url).await?;
    let mut held = Vec::with_capacity(tasks);
    for name in &names {
        held.push(locks.mutex(name)?);
    }
    throughputs(&mut control, bare, held, rounds, lasts).await
}

impl Meter for MultiplexedConnection {
    async fn server_time(&mut self) -> Result<f64, Failure> {
        Ok(Counters::look(self).await?.processor_time())
    }
}

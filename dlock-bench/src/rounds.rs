//! Floor and dlock in turns, so that what else the machine does meets both.

use std::time::Duration;

use crate::{
    Failure, clock,
    cycle::{Cycle, latency, throughput},
    report::Pair,
    stats::{highest, lowest},
};

/// The median of a cycle in microseconds, in the best round of each. Gives the subjects back.
pub(crate) async fn latencies<F: Cycle, D: Cycle>(
    mut bare: F,
    mut lock: D,
    rounds: usize,
    cycles: usize,
) -> Result<(F, D, Pair), Failure> {
    let (mut floors, mut dlocks) = (Vec::new(), Vec::new());
    for _ in 0..rounds {
        let (floor, dlock);
        (bare, floor) = latency(bare, cycles).await?;
        (lock, dlock) = latency(lock, cycles).await?;
        floors.push(floor);
        dlocks.push(dlock);
    }
    Ok((bare, lock, Pair { floor: lowest(&floors), dlock: lowest(&dlocks), unit: "us" }))
}

/// Whoever knows how much processor time a server has used.
pub(crate) trait Meter: Send {
    /// The seconds up to now.
    fn server_time(&mut self) -> impl Future<Output = Result<f64, Failure>> + Send;
}

/// Rounds of one subject: cycles a second, and microseconds of processor time for a cycle.
#[derive(Debug, Default)]
pub(crate) struct Rounds {
    rates: Vec<f64>,
    servers: Vec<f64>,
    clients: Vec<f64>,
}

impl Rounds {
    /// Cycles a second.
    pub(crate) fn rate(&self) -> f64 {
        highest(&self.rates)
    }

    /// The server's processor time for a cycle.
    pub(crate) fn server(&self) -> f64 {
        lowest(&self.servers)
    }

    /// This process's time for a cycle.
    pub(crate) fn client(&self) -> f64 {
        lowest(&self.clients)
    }

    /// With the rounds of other subjects of the kind.
    pub(crate) fn and(&mut self, more: Self) {
        self.rates.extend(more.rates);
        self.servers.extend(more.servers);
        self.clients.extend(more.clients);
    }

    /// One more round. Gives the subjects back.
    async fn add<C: Cycle>(
        &mut self,
        meter: &mut impl Meter,
        subjects: Vec<C>,
        lasts: Duration,
    ) -> Result<Vec<C>, Failure> {
        let before = meter.server_time().await?;
        let own = clock::processor_time()?;
        let (subjects, done) = throughput(subjects, lasts).await?;
        let own = (clock::processor_time()? - own).as_secs_f64();
        let server = meter.server_time().await? - before;
        self.rates.push(done.rate);
        self.servers.push(server * 1e6 / done.cycles);
        self.clients.push(own * 1e6 / done.cycles);
        Ok(subjects)
    }
}

/// What the floor's subjects and dlock's get done, each round for so long; one is not counted.
pub(crate) async fn throughputs<F: Cycle, D: Cycle>(
    meter: &mut impl Meter,
    bare: Vec<F>,
    locks: Vec<D>,
    rounds: usize,
    lasts: Duration,
) -> Result<(Rounds, Rounds), Failure> {
    let (mut bare, _) = throughput(bare, lasts).await?;
    let (mut locks, _) = throughput(locks, lasts).await?;
    let (mut floor, mut dlock) = (Rounds::default(), Rounds::default());
    for _ in 0..rounds {
        bare = floor.add(meter, bare, lasts).await?;
        locks = dlock.add(meter, locks, lasts).await?;
    }
    Ok((floor, dlock))
}

/// A figure of both.
pub(crate) fn pair(
    (floor, dlock): &(Rounds, Rounds),
    of: fn(&Rounds) -> f64,
    unit: &'static str,
) -> Pair {
    Pair { floor: of(floor), dlock: of(dlock), unit }
}

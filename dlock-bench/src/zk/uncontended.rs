//! One task, one name: how much longer a quiet lock takes than the floor.

use dlock_testlab::zookeeper::{Ensemble, Options, ZooKeeperServer};

use super::{
    Bench, CHECKS,
    counters::Counters,
    floor::{self, FloorLock},
    no_server,
};
use crate::{
    Failure,
    awake::Awake,
    bench::Store,
    clock,
    cycle::{Cycle, latency},
    processors::Server,
    report::Pair,
    runtime::Flavour,
    stats::lowest,
    usage::Usage,
};

/// Cycles in a round.
const CYCLES: usize = 1000;
/// The same where each takes long because three servers have a part in it.
const FEW: usize = 300;

pub(super) fn measure(bench: &mut Bench<'_>) -> Result<(), Failure> {
    let _awake = Awake::keep()?;
    let placed = bench.place(Server::Together)?;
    let seen = run(&bench.server, Flavour::CurrentThread, bench.rounds(), CYCLES)?;
    bench.report.ratio_at_most("p50 of a cycle, all on one processor", seen.p50, 1.15);
    drop(placed);
    let placed = bench.place(Server::Apart)?;
    let apart = run(&bench.server, Flavour::CurrentThread, bench.rounds(), CYCLES)?;
    bench.report.ratio_at_most("p50 of a cycle, the server on another", apart.p50, 1.15);
    drop(placed);
    let two = run(&bench.server, Flavour::TwoWorkers, bench.rounds(), CYCLES)?;
    bench.report.ratio("p50 of a cycle, two threads, all anywhere", two.p50);
    let three = of_three(bench)?;
    bench.report.ratio("p50 of a cycle, one of three servers, all anywhere", three.p50);

    let report = &mut *bench.report;
    report.ratio_at_most("commands of a cycle", seen.commands, 1.02);
    report.ratio("server's time for a cycle, all on one processor", seen.server);
    report.ratio("client's time for a cycle, all on one processor", seen.client);
    Ok(())
}

/// Through a server that follows another one.
fn of_three(bench: &Bench<'_>) -> Result<Seen, Failure> {
    // What stands between the servers runs here, and must not wait for what is measured.
    let links = Flavour::TwoWorkers.start()?;
    let options = Options::new().with_container_checks_every(CHECKS);
    let servers = links.block_on(Ensemble::start(&options)).map_err(no_server)?;
    let follower = links.block_on(servers.followers()).first().copied().ok_or("nobody follows")?;
    run(&servers.nodes()[follower], Flavour::CurrentThread, bench.rounds(), FEW)
}

struct Seen {
    p50: Pair,
    commands: Pair,
    /// Processor time for a cycle.
    server: Pair,
    client: Pair,
}

/// What a cycle took in one round.
struct Round {
    p50: f64,
    commands: f64,
    /// Processor time.
    server: f64,
    client: f64,
}

fn run(
    server: &ZooKeeperServer,
    flavour: Flavour,
    rounds: usize,
    cycles: usize,
) -> Result<Seen, Failure> {
    flavour.start()?.block_on(all_rounds(server, rounds, cycles))
}

/// Each round has sessions of its own. With some, the driver sends two requests in one packet, and
/// with others in two, for as long as they last: floor and dlock would have different luck.
async fn all_rounds(
    server: &ZooKeeperServer,
    rounds: usize,
    cycles: usize,
) -> Result<Seen, Failure> {
    let (mut floor, mut dlock) = (Best::default(), Best::default());
    for _ in 0..rounds {
        let client = floor::connect(&server.address()).await?;
        let locks = dlock::connect(&server.url()).await?;
        floor.add(server, FloorLock::new(&client, "uncontended").await?, cycles).await?;
        dlock.add(server, locks.mutex("uncontended")?, cycles).await?;
    }
    let pair =
        |of: fn(&Round) -> f64, unit| Pair { floor: floor.of(of), dlock: dlock.of(of), unit };
    Ok(Seen {
        p50: pair(|round| round.p50, "us"),
        commands: pair(|round| round.commands, ""),
        server: pair(|round| round.server, "us"),
        client: pair(|round| round.client, "us"),
    })
}

/// The rounds of floor or dlock.
#[derive(Default)]
struct Best(Vec<Round>);

impl Best {
    /// One more.
    async fn add<C: Cycle>(
        &mut self,
        server: &ZooKeeperServer,
        subject: C,
        cycles: usize,
    ) -> Result<(), Failure> {
        // Connections, the server's compiler and caches warm up.
        let (subject, _) = latency(subject, cycles / 4).await?;
        let mut usage = Usage::of(server.pid())?;
        let before = Counters::look(server).await?;
        let (served, own) = (usage.seconds(), clock::processor_time()?);
        let (_, p50) = latency(subject, cycles).await?;
        let own = (clock::processor_time()? - own).as_secs_f64();
        let served = usage.seconds() - served;
        let commands = before.since(server).await?.commands();
        let each = f64::from(u32::try_from(cycles)?);
        let (server, client) = (served * 1e6 / each, own * 1e6 / each);
        self.0.push(Round { p50, commands: commands / each, server, client });
        Ok(())
    }

    fn of(&self, figure: fn(&Round) -> f64) -> f64 {
        lowest(&self.0.iter().map(figure).collect::<Vec<_>>())
    }
}

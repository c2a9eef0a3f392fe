//! One task, one name: how much longer a quiet lock takes than the floor.

use super::{Bench, bare::Bare, floor::FloorLock, server::SqlServer};
use crate::{
    Failure,
    awake::Awake,
    bench::Store,
    clock,
    cycle::{Cycle, latency},
    processors::Server,
    report::Pair,
    rounds::{Meter, latencies},
    runtime::Flavour,
    usage::Usage,
};

/// Cycles in a round, and how many of them where each waits for the disk.
const CYCLES: usize = 1000;
const DURABLE: usize = 50;

pub(super) fn measure(bench: &mut Bench<'_>) -> Result<(), Failure> {
    let _awake = Awake::keep()?;
    let placed = bench.place(Server::Together)?;
    let seen = run(bench, Flavour::CurrentThread)?;
    bench.report.ratio("p50 of a cycle, all on one processor", seen.p50);
    drop(placed);
    let placed = bench.place(Server::Apart)?;
    let apart = run(bench, Flavour::CurrentThread)?;
    // As it is where the server is another machine, and the least of the distance between them.
    bench.report.ratio_at_most("p50 of a cycle, the server on another", apart.p50, 1.35);
    drop(placed);
    let two = run(bench, Flavour::TwoWorkers)?;
    bench.report.ratio("p50 of a cycle, two threads, all anywhere", two.p50);
    match bench.durable {
        false => bench.report.exactly("statements of a cycle", seen.statements, 2.0, 0.02),
        // It takes so long that the server's own ones count.
        true => {
            bench.report.note("statements of a cycle, the server's own too", seen.statements, "")
        }
    }
    bench.report.ratio("server's time for a cycle, all on one processor", seen.server);
    bench.report.ratio("client's time for a cycle, all on one processor", seen.client);
    Ok(())
}

struct Seen {
    p50: Pair,
    /// Of a cycle of dlock.
    statements: f64,
    /// Processor time for a cycle.
    server: Pair,
    client: Pair,
}

fn run(bench: &Bench<'_>, flavour: Flavour) -> Result<Seen, Failure> {
    let usage = Usage::of(bench.server.pid())?;
    let cycles = if bench.durable { DURABLE } else { CYCLES };
    flavour.start()?.block_on(rounds(&bench.server, usage, bench.rounds(), cycles))
}

async fn rounds(
    server: &SqlServer,
    mut usage: Usage,
    rounds: usize,
    cycles: usize,
) -> Result<Seen, Failure> {
    let mut control = server.bare().await?;
    let mut bare = FloorLock::new(server.bare().await?, "uncontended").await?;
    let locks = dlock::connect(&server.url()).await?;
    let mut lock = locks.mutex("uncontended")?;
    // Connections, prepared statements and caches warm up.
    (bare, _) = latency(bare, cycles).await?;
    (lock, _) = latency(lock, cycles).await?;

    let each = f64::from(u32::try_from(cycles)?);
    let (floor, dlock);
    (bare, floor) = used(&mut usage, bare, cycles).await?;
    let before = count(&mut control, &mut lock).await?;
    (lock, dlock) = used(&mut usage, lock, cycles).await?;
    // One more cycle than those in between makes the connection tell of them.
    let statements = (count(&mut control, &mut lock).await? - before) / (each + 1.0);
    let (_, _, p50) = latencies(bare, lock, rounds, cycles).await?;
    let [server, client] =
        [0, 1].map(|of| Pair { floor: floor[of] / each, dlock: dlock[of] / each, unit: "us" });
    Ok(Seen { p50, statements, server, client })
}

/// Microseconds of processor time that server and client use for a round. Gives the subject back.
async fn used<C: Cycle>(
    usage: &mut Usage,
    subject: C,
    cycles: usize,
) -> Result<(C, [f64; 2]), Failure> {
    let (server, client) = (usage.server_time().await?, clock::processor_time()?);
    let (subject, _) = latency(subject, cycles).await?;
    let client = (clock::processor_time()? - client).as_secs_f64();
    Ok((subject, [(usage.server_time().await? - server) * 1e6, client * 1e6]))
}

/// What the server has counted, told by a cycle.
async fn count(control: &mut Bare, lock: &mut impl Cycle) -> Result<f64, Failure> {
    control.settle().await;
    lock.cycle().await?;
    control.statements().await
}

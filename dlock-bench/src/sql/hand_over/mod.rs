//! Several processes that want one fair lock: what it takes until the next one has it, and whether
//! that stays so however many wait.
//!
//! The floor is one round trip: an upsert on the bare connection. A hand-over takes at least two
//! and a message, as the release must be written before the waiter can be told.

mod scene;

use std::time::Duration;

use super::{Bench, server::Kind};
use crate::{
    Failure,
    awake::Awake,
    processors::Server,
    report::Pair,
    stats::{highest, lowest, percentile},
};
use scene::{Crowd, Run, Scene};

/// Each is one client, with connections of its own: as few as there can be, and some.
const PAIR: usize = 2;
const PROCESSES: usize = 8;
/// How long a round of these lasts.
const LASTS: Duration = Duration::from_millis(400);

/// So many clients that no client's share can be off by a turn and look unfair.
const CLIENTS: usize = 32;

/// The processes and the clients of each in the runs that compare crowds: 4 to 64 clients.
const COMPARED: usize = 4;
const CROWDS: [usize; 5] = [1, 2, 4, 8, 16];

pub(super) fn measure(bench: &mut Bench<'_>) -> Result<(), Failure> {
    let mut errors = Vec::new();
    latency(bench, PAIR, &mut errors)?;
    latency(bench, PROCESSES, &mut errors)?;
    shares(bench, &mut errors)?;
    for (how, crowd) in [
        ("each with connections of its own", Crowd::Apart as fn(usize) -> Crowd),
        ("sharing those of 4 processes", Crowd::Sharing),
    ] {
        let growth = growth(bench, how, crowd, &mut errors)?;
        let what = "hand-overs a second, most : least of these";
        match crowd(1) {
            Crowd::Sharing(_) => bench.report.at_most(what, growth, "x", 1.25),
            // Each is one more that PostgreSQL before 19 wakes for every note, or that looks.
            Crowd::Apart(_) => bench.report.note(what, growth, "x"),
        }
    }
    let count = f64::from(u32::try_from(errors.len())?);
    bench.report.exactly("errors that reached a caller in all these runs", count, 0.0, 0.0);
    for error in errors.iter().take(3) {
        eprintln!("dlock-bench: {error}");
    }
    Ok(())
}

/// From the call of the release to the return of the next one's wait.
fn latency(bench: &mut Bench<'_>, clients: usize, errors: &mut Vec<String>) -> Result<(), Failure> {
    let _awake = Awake::keep()?;
    let _placed = bench.place(Server::Apart)?;
    let mut scene = Scene::new(bench, clients)?;
    let (mut floors, mut medians, mut tails) = (Vec::new(), Vec::new(), Vec::new());
    scene.contend(Crowd::Apart(1), LASTS)?;
    for _ in 0..bench.rounds() {
        floors.push(scene.upsert()?);
        let mut run = scene.contend(Crowd::Apart(1), LASTS)?;
        errors.append(&mut run.errors);
        medians.push(run.p50());
        tails.push(percentile(run.holds.latencies(), 99));
    }
    let pair = Pair { floor: lowest(&floors), dlock: lowest(&medians), unit: "us" };
    let what = format!("p50 from release to the waiter's return, {clients} clients");
    match bench.server.kind() {
        // Where nothing waits for the disk, a round trip is shorter than what wakes the processes.
        Kind::Postgres if bench.durable => bench.report.ratio_at_most(&what, pair, 3.0),
        Kind::Postgres => bench.report.ratio(&what, pair),
        // It can't tell the waiter, who has to look.
        Kind::Mariadb => bench.report.ratio(&what, pair),
    }
    bench.report.note("p99 of it", lowest(&tails), "us");
    Ok(())
}

/// Whether each client gets its share, and what the server has to do for a hand-over.
fn shares(bench: &mut Bench<'_>, errors: &mut Vec<String>) -> Result<(), Failure> {
    let lasts = Duration::from_secs(if bench.quick { 4 } else { 15 });
    let mut scene = Scene::new(bench, PROCESSES)?;
    let (mut run, seen) = scene.count(Crowd::Apart(CLIENTS / PROCESSES), lasts)?;
    errors.append(&mut run.errors);
    let report = &mut *bench.report;
    let of = format!("{CLIENTS} clients");
    report.at_most(
        &format!("share that is furthest from the mean, {of}"),
        run.holds.unfairness(),
        "%",
        5.0,
    );
    tell(bench, &run, &of);
    bench.report.note(&format!("writes of a hand-over, {of}"), seen.writes, "");
    bench.report.note(&format!("server's time of a hand-over, {of}"), seen.server, "us");
    Ok(())
}

/// The same number of processes with ever more clients: whether the rate stays.
fn growth(
    bench: &mut Bench<'_>,
    how: &str,
    crowd: fn(usize) -> Crowd,
    errors: &mut Vec<String>,
) -> Result<f64, Failure> {
    let (tries, lasts) = if bench.quick { (2, 1000) } else { (5, 2000) };
    let lasts = Duration::from_millis(lasts);
    bench.report.part(&format!("clients {how}"));
    let mut rates = Vec::new();
    for each in CROWDS {
        // Started anew, as clients that only listen are not for nothing.
        let mut scene = Scene::new(bench, COMPARED)?;
        scene.contend(crowd(each), lasts / 4)?;
        let mut runs: Vec<Run> = Vec::new();
        for _ in 0..tries {
            let mut run = scene.contend(crowd(each), lasts)?;
            errors.append(&mut run.errors);
            runs.push(run);
        }
        // The one that was disturbed least.
        let best = runs.into_iter().max_by(|a, b| a.rate().total_cmp(&b.rate()));
        let best = best.ok_or("no run")?;
        tell(bench, &best, &format!("{} clients", COMPARED * each));
        rates.push(best.rate());
    }
    Ok(highest(&rates) / lowest(&rates))
}

fn tell(bench: &mut Bench<'_>, run: &Run, of: &str) {
    let report = &mut *bench.report;
    report.note(&format!("hand-overs a second, {of}"), run.rate(), "");
    report.note(&format!("p50 of a hand-over, {of}"), run.p50(), "us");
    // A note that got lost shows here: the waiter looks by itself much later.
    let longest = percentile(run.holds.latencies(), 100) / 1e3;
    report.note(&format!("longest of a hand-over, {of}"), longest, "ms");
}

//! Many tasks, a name each: dlock's two connections against one for each task.

use std::time::Duration;

use super::{Bench, floor::FloorLock, server::SqlServer};
use crate::{
    Failure,
    bench::Store,
    rounds::{Rounds, pair, throughputs},
    runtime::Flavour,
    usage::Usage,
};

const TASKS: usize = 32;

pub(super) fn measure(bench: &mut Bench<'_>) -> Result<(), Failure> {
    let usage = Usage::of(bench.server.pid())?;
    for flavour in [Flavour::CurrentThread, Flavour::TwoWorkers] {
        let both =
            flavour.start()?.block_on(rounds(&bench.server, usage.clone(), bench.rounds()))?;
        let of = format!("{TASKS} tasks, {}", flavour.label());
        let rate = format!("cycles a second, {of}");
        let rates = pair(&both, Rounds::rate, "");
        let report = &mut *bench.report;
        match flavour {
            Flavour::CurrentThread => report.ratio_at_least(&rate, rates, 2.0),
            Flavour::TwoWorkers => report.ratio(&rate, rates),
        }
        let server = format!("server's time for a cycle, {of}");
        report.ratio(&server, pair(&both, Rounds::server, "us"));
        let client = format!("client's time for a cycle, {of}");
        report.ratio(&client, pair(&both, Rounds::client, "us"));
    }
    Ok(())
}

async fn rounds(
    server: &SqlServer,
    mut usage: Usage,
    rounds: usize,
) -> Result<(Rounds, Rounds), Failure> {
    let lasts = Duration::from_millis(200);
    let locks = dlock::connect(&server.url()).await?;
    let (mut bare, mut held) = (Vec::with_capacity(TASKS), Vec::with_capacity(TASKS));
    for task in 0..TASKS {
        let name = format!("many/{task}");
        bare.push(FloorLock::new(server.bare().await?, &name).await?);
        held.push(locks.mutex(&name)?);
    }
    throughputs(&mut usage, bare, held, rounds, lasts).await
}

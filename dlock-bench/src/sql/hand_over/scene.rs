//! The processes of a measurement, and what the server has counted of them.

use std::time::Duration;

use tokio::runtime::Runtime;

use crate::{
    Failure,
    bench::Store,
    crew::{Crew, Holds},
    cycle::latency,
    runtime::Flavour,
    sql::{Bench, bare::Bare, floor::Upsert},
    stats::median,
    usage::Usage,
};

const NAME: &str = "hand-over";
/// Upserts in a round of the floor, and how many of them where each waits for the disk.
const UPSERTS: usize = 1000;
const DURABLE: usize = 50;
/// Makes every connection tell what it has counted.
const SHORT: Duration = Duration::from_millis(200);

/// The clients of each process.
#[derive(Clone, Copy, Debug)]
pub(super) enum Crowd {
    /// So many that have connections of their own.
    Apart(usize),
    /// So many tasks that share those of one.
    Sharing(usize),
}

/// One run of all clients against each other.
#[derive(Debug)]
pub(super) struct Run {
    pub(super) holds: Holds,
    pub(super) errors: Vec<String>,
    lasts: Duration,
}

/// What the server did for one hand-over.
#[derive(Clone, Copy, Debug)]
pub(super) struct Seen {
    /// Operations that were written.
    pub(super) writes: f64,
    /// Processor time in microseconds.
    pub(super) server: f64,
}

/// Processes over one server.
pub(super) struct Scene {
    runtime: Runtime,
    control: Bare,
    /// Kept from round to round.
    upsert: Option<Upsert>,
    upserts: usize,
    usage: Usage,
    crew: Crew,
}

impl Run {
    /// Hand-overs a second.
    pub(super) fn rate(&self) -> f64 {
        self.holds.hand_overs() / self.lasts.as_secs_f64()
    }

    /// The median in microseconds.
    pub(super) fn p50(&self) -> f64 {
        median(self.holds.latencies())
    }
}

impl Scene {
    /// Starts so many processes.
    pub(super) fn new(bench: &Bench<'_>, processes: usize) -> Result<Self, Failure> {
        let server = &bench.server;
        let upserts = if bench.durable { DURABLE } else { UPSERTS };
        let runtime = Flavour::CurrentThread.start()?;
        let control = runtime.block_on(server.bare())?;
        let upsert = runtime.block_on(async {
            let upsert = Upsert::new(server.bare().await?, NAME).await?;
            let (upsert, _) = latency(upsert, upserts).await?;
            Ok::<_, Failure>(upsert)
        })?;
        // The table is made once, rather than by all at one time.
        runtime.block_on(dlock::connect(&server.url()))?;
        let usage = Usage::of(server.pid())?;
        let crew = Crew::start(&server.url(), processes)?;
        Ok(Self { runtime, control, upsert: Some(upsert), upserts, usage, crew })
    }

    /// The median of a round trip, in microseconds.
    pub(super) fn upsert(&mut self) -> Result<f64, Failure> {
        let upsert = self.upsert.take().ok_or("the floor has failed")?;
        let (upsert, p50) = self.runtime.block_on(latency(upsert, self.upserts))?;
        self.upsert = Some(upsert);
        Ok(p50)
    }

    /// Has all clients take the lock and give it back, for so long.
    pub(super) fn contend(&mut self, crowd: Crowd, lasts: Duration) -> Result<Run, Failure> {
        let (clients, tasks) = match crowd {
            Crowd::Apart(clients) => (clients, 1),
            Crowd::Sharing(tasks) => (1, tasks),
        };
        self.crew.connect(clients)?;
        let contest = self.crew.contend(NAME, clients, tasks, lasts)?;
        Ok(Run { holds: contest.holds, errors: contest.errors, lasts })
    }

    /// The same, with what the server did for it.
    pub(super) fn count(&mut self, crowd: Crowd, lasts: Duration) -> Result<(Run, Seen), Failure> {
        self.contend(crowd, SHORT)?;
        let (_, before) = self.look(crowd)?;
        let used = self.usage.seconds();
        let run = self.contend(crowd, lasts)?;
        let server = (self.usage.seconds() - used) * 1e6 / run.holds.hand_overs();
        let (short, after) = self.look(crowd)?;
        let writes = (after - before) / (run.holds.hand_overs() + short.holds.hand_overs());
        Ok((run, Seen { writes, server }))
    }

    /// What the server has counted, told by a short run.
    fn look(&mut self, crowd: Crowd) -> Result<(Run, f64), Failure> {
        self.runtime.block_on(self.control.settle());
        let run = self.contend(crowd, SHORT)?;
        let writes = self.runtime.block_on(self.control.writes())?;
        Ok((run, writes))
    }
}

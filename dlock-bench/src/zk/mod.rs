//! What dlock costs over ZooKeeper.

pub(crate) mod counters;
pub(crate) mod floor;
mod hand_over;
mod local;
mod many_names;
mod one_time_names;
mod renewal;
mod uncontended;

use std::time::Duration;

use dlock_testlab::{
    Stop,
    zookeeper::{Options, ZooKeeperServer},
};

use crate::{
    Failure,
    args::Args,
    bench::{self, Measurement, Store},
    processors,
    report::Report,
    runtime::Flavour,
};

/// What a measurement works with.
type Bench<'a> = bench::Bench<'a, ZooKeeperServer>;

/// How often a server looks for directories that are empty, unless it is told otherwise: so seldom
/// that locks hardly ever find theirs gone.
pub(crate) const CHECKS: Duration = Duration::from_secs(60);

/// The measurements.
pub(crate) const MEASUREMENTS: &[Measurement<ZooKeeperServer>] = &[
    ("uncontended", "one task, one name", uncontended::measure),
    ("many_names", "512 names at one time, one session", many_names::measure),
    ("hand_over", "several sessions that want one fair lock", hand_over::measure),
    ("local", "64 tasks of one process, the floor: 64 threads with Curator", local::measure),
    ("renewal", "10,000 locks that are held for long", renewal::measure),
    ("one_time_names", "10,000 names that are used once", one_time_names::measure),
];

impl Store for ZooKeeperServer {
    fn url(&self) -> String {
        format!("zk://{}", self.address())
    }

    fn pid(&self) -> Option<u32> {
        self.pid()
    }

    fn threads(&self) -> Vec<u32> {
        self.pid().map(processors::threads).unwrap_or_default()
    }
}

/// Takes all measurements that are asked for, over a server that nobody else uses.
pub(crate) fn measure(args: &Args, report: &mut Report) -> Result<(), Failure> {
    let options = Options::new().with_container_checks_every(CHECKS);
    let runtime = Flavour::CurrentThread.start()?;
    let server = runtime.block_on(ZooKeeperServer::start(&options)).map_err(no_server)?;
    let version = runtime.block_on(counters::version(&server))?;
    report.heading(&format!("ZooKeeper {version}, forceSync=no: figures of the protocol"));
    drop(runtime);
    Bench { server, quick: args.quick, durable: args.durable, report }.take(MEASUREMENTS, args)
}

/// Why there is no server, or it does not answer.
fn no_server(stop: Stop) -> Failure {
    format!("no server: {stop:?}").into()
}

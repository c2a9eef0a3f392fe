//! What dlock costs over Redis.

mod counters;
mod floor;
pub(crate) mod hand_over;
mod many_names;
mod one_time_names;
mod renewal;
mod uncontended;

use dlock_testkit::servers::redis::{Options, RedisServer};

use crate::{
    Failure,
    args::Args,
    processors::{Placed, Server},
    report::Report,
    runtime::Flavour,
};

/// A measurement over this server.
type Measure = fn(&mut Bench<'_>) -> Result<(), Failure>;

/// The measurements: name, what it is about, and how.
pub(crate) const MEASUREMENTS: &[(&str, &str, Measure)] = &[
    ("uncontended", "one task, one name", uncontended::measure),
    ("many_names", "512 tasks, a name each, one connection", many_names::measure),
    ("hand_over", "8 processes that want one fair lock", hand_over::measure),
    ("renewal", "10,000 locks that are held for long", renewal::measure),
    ("one_time_names", "10,000 names that are used once", one_time_names::measure),
];

/// What a measurement works with.
pub(crate) struct Bench<'a> {
    server: RedisServer,
    quick: bool,
    report: &'a mut Report,
}

impl Bench<'_> {
    /// Chooses the processor of the server.
    fn place(&self, place: Server) -> Result<Placed, Failure> {
        Placed::keep(self.server.pid().ok_or("the server is gone")?, place)
    }

    /// How many rounds floor and dlock take in turns. Many short ones find more quiet moments than
    /// a few long ones.
    fn rounds(&self) -> usize {
        if self.quick { 6 } else { 25 }
    }
}

/// Takes all measurements that are asked for, over a server that nobody else uses.
pub(crate) fn measure(args: &Args, report: &mut Report) -> Result<(), Failure> {
    let server = Flavour::CurrentThread.start()?.block_on(RedisServer::start(&Options::new()));
    let server = server.map_err(|stop| format!("no server: {stop:?}"))?;
    let mut bench = Bench { server, quick: args.quick, report };
    for (name, about, measure) in MEASUREMENTS {
        if args.wants(name) {
            bench.report.title(&format!("{name}: {about}"));
            measure(&mut bench).map_err(|failure| format!("{name}: {failure}"))?;
        }
    }
    Ok(())
}

//! What dlock costs over Redis.

pub(crate) mod counters;
pub(crate) mod floor;
pub(crate) mod hand_over;
mod many_names;
mod one_time_names;
mod renewal;
mod uncontended;

pub(crate) use hand_over::Messages;

use dlock_testlab::redis::{Options, RedisServer};

use crate::{
    Failure,
    args::Args,
    bench::{self, Measurement, Store},
    report::Report,
    runtime::Flavour,
};

/// What a measurement works with.
type Bench<'a> = bench::Bench<'a, RedisServer>;

/// The measurements.
pub(crate) const MEASUREMENTS: &[Measurement<RedisServer>] = &[
    ("uncontended", "one task, one name", uncontended::measure),
    ("many_names", "512 tasks, a name each, one connection", many_names::measure),
    ("hand_over", "8 processes that want one fair lock", hand_over::measure),
    ("renewal", "10,000 locks that are held for long", renewal::measure),
    ("one_time_names", "10,000 names that are used once", one_time_names::measure),
];

impl Store for RedisServer {
    fn url(&self) -> String {
        self.url()
    }

    fn pid(&self) -> Option<u32> {
        self.pid()
    }
}

/// Takes all measurements that are asked for, over a server that nobody else uses.
pub(crate) fn measure(args: &Args, report: &mut Report) -> Result<(), Failure> {
    let server = Flavour::CurrentThread.start()?.block_on(RedisServer::start(&Options::new()));
    let server = server.map_err(|stop| format!("no server: {stop:?}"))?;
    Bench { server, quick: args.quick, durable: args.durable, report }.take(MEASUREMENTS, args)
}

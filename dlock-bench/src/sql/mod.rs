//! What dlock costs over the database servers: PostgreSQL, and MariaDB for those that speak MySQL.

pub(crate) mod bare;
pub(crate) mod floor;
mod hand_over;
mod long_life;
mod many_names;
pub(crate) mod server;
mod uncontended;

pub(crate) use server::Kind;

use crate::{
    Failure,
    args::Args,
    bench::{self, Measurement},
    report::Report,
    runtime::Flavour,
    sql::server::SqlServer,
};

/// What a measurement works with.
type Bench<'a> = bench::Bench<'a, SqlServer>;

/// The measurements.
pub(crate) const MEASUREMENTS: &[Measurement<SqlServer>] = &[
    ("uncontended", "one task, one name", uncontended::measure),
    ("many_names", "32 tasks, a name each, two connections", many_names::measure),
    ("hand_over", "several processes that want one fair lock", hand_over::measure),
    ("long_life", "one name, 200,000 times, and what stays of it", long_life::measure),
];

/// Takes all measurements that are asked for, over a server that nobody else uses.
pub(crate) fn measure(kind: Kind, args: &Args, report: &mut Report) -> Result<(), Failure> {
    let runtime = Flavour::CurrentThread.start()?;
    let server = runtime.block_on(SqlServer::start(kind, args.durable))?;
    let about = match args.durable {
        false => "fsync off: figures of the protocol rather than of the disk",
        true => "durable: each commit waits for the disk",
    };
    report.heading(&format!("{}, {about}", runtime.block_on(server.version())?));
    drop(runtime);
    Bench { server, quick: args.quick, durable: args.durable, report }.take(MEASUREMENTS, args)
}

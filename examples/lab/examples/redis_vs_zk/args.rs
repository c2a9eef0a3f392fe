//! The command line.

use std::{path::PathBuf, time::Duration};

use dlock_testlab::Stop;
use lexopt::{Arg, Parser, ValueExt as _};

/// The arguments.
#[derive(Clone, Debug)]
pub(crate) struct Args {
    pub(crate) urls: Vec<String>,
    pub(crate) svg: PathBuf,
    /// The lease of the holders that the faults affect.
    pub(crate) lease: Duration,
    /// The number of times that an uncontended lock is acquired.
    pub(crate) rounds: usize,
    /// The time for which a lock is contended, and the number of clients.
    pub(crate) span: Duration,
    pub(crate) clients: u32,
}

impl Args {
    /// Reads the command line.
    pub(crate) fn parse() -> Result<Self, Stop> {
        let mut args = Self {
            urls: Vec::from_iter(std::env::var("DLOCK_URL").ok()),
            // Next to the program, in the directory of the build.
            svg: std::env::current_exe()?.with_file_name("redis_vs_zk.svg"),
            lease: Duration::from_secs(3),
            rounds: 2000,
            span: Duration::from_secs(5),
            clients: 4,
        };
        let mut parser = Parser::from_env();
        while let Some(arg) = parser.next()? {
            match arg {
                Arg::Long("quick") => {
                    args.lease = Duration::from_secs(1);
                    args.rounds = 200;
                    args.span = Duration::from_secs(1);
                }
                Arg::Long("svg") => args.svg = parser.value()?.into(),
                Arg::Long("url") => args.urls.push(parser.value()?.string()?),
                other => return Err(other.unexpected().into()),
            }
        }
        Ok(args)
    }
}

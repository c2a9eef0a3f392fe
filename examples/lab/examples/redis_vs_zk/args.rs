//! The command line.

use std::{path::PathBuf, time::Duration};

use dlock_testlab::Stop;
use lexopt::{Arg, Parser, ValueExt as _};

/// What was asked for.
#[derive(Clone, Debug)]
pub(crate) struct Args {
    pub(crate) urls: Vec<String>,
    pub(crate) svg: PathBuf,
    /// The lease of the holders that come to harm.
    pub(crate) lease: Duration,
    /// How often a quiet lock is taken.
    pub(crate) rounds: usize,
    /// How long a lock is contended, and by how many clients.
    pub(crate) span: Duration,
    pub(crate) clients: u32,
}

impl Args {
    /// Reads the command line.
    pub(crate) fn parse() -> Result<Self, Stop> {
        let mut args = Self {
            urls: Vec::from_iter(std::env::var("DLOCK_URL").ok()),
            // Beside the program, where builds go.
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

//! A Java program as a process that answers lines.

use dlock_testlab::{Stop, zookeeper::JavaProgram};
use rustix::time::{ClockId, clock_gettime};
use tokio::runtime::Runtime;

use super::{Talk, answer};
use crate::{Failure, clock, runtime::Flavour, store::Server};

const CURATOR: &str = include_str!("../../peers/java/Curator.java");

/// A program with Curator's recipes.
pub(crate) struct Java {
    program: JavaProgram,
    /// Declared after the program, whose pipes need the runtime.
    runtime: Runtime,
}

impl Java {
    /// Starts the program.
    pub(crate) fn start(server: &Server) -> Result<Self, Failure> {
        let runtime = Flavour::CurrentThread.start()?;
        let url = server.url();
        let address = url.trim_start_matches("zk://").to_owned();
        // Java's clock leaves out the time for which the machine was suspended.
        let monotonic = clock_gettime(ClockId::Monotonic);
        let behind = clock::now()
            .saturating_sub(u64::try_from(monotonic.tv_sec)? * 1_000_000_000)
            .saturating_sub(u64::try_from(monotonic.tv_nsec)?);
        let started = runtime.block_on(async {
            JavaProgram::start(CURATOR, &[&address, &behind.to_string()]).await
        });
        Ok(Self { program: started.map_err(stopped)?, runtime })
    }
}

impl Talk for Java {
    fn say(&mut self, line: &str) -> Result<(), Failure> {
        self.runtime.block_on(self.program.say(line)).map_err(stopped)
    }

    fn answer(&mut self) -> Result<String, Failure> {
        answer(&self.runtime.block_on(self.program.line()).map_err(stopped)?)
    }

    fn pid(&self) -> Option<u32> {
        self.program.pid()
    }
}

fn stopped(stop: Stop) -> Failure {
    format!("{stop:?}").into()
}

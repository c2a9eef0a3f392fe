//! The runtimes that are measured on: the choice changes what a hop to the driver's task costs.

use tokio::runtime::{Builder, Runtime};

use crate::Failure;

/// A kind of tokio runtime.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Flavour {
    /// One thread for everything. The targets are for this one: less is left to the scheduler.
    CurrentThread,
    /// Two threads, so that a task and the connection's task may sit on different ones.
    TwoWorkers,
}

impl Flavour {
    /// Starts one.
    pub(crate) fn start(self) -> Result<Runtime, Failure> {
        Ok(match self {
            Self::CurrentThread => Builder::new_current_thread().enable_all().build()?,
            Self::TwoWorkers => {
                Builder::new_multi_thread().worker_threads(2).enable_all().build()?
            }
        })
    }

    /// As it stands in the table.
    pub(crate) const fn label(self) -> &'static str {
        match self {
            Self::CurrentThread => "one thread",
            Self::TwoWorkers => "two threads",
        }
    }
}

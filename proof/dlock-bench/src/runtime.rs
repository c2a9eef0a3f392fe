//! The runtimes of the subjects. The choice changes the cost of a switch to the driver's task.

use tokio::runtime::{Builder, Runtime};

use crate::Failure;

/// A kind of tokio runtime.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Flavour {
    /// One thread for everything. The targets apply to this one, because the scheduler has less
    /// influence.
    CurrentThread,
    /// Two threads, so that a task and the connection's task may run on different ones.
    TwoWorkers,
}

impl Flavour {
    /// Starts a runtime of this kind.
    pub(crate) fn start(self) -> Result<Runtime, Failure> {
        Ok(match self {
            Self::CurrentThread => Builder::new_current_thread().enable_all().build()?,
            Self::TwoWorkers => {
                Builder::new_multi_thread().worker_threads(2).enable_all().build()?
            }
        })
    }

    /// Returns the text for the table.
    pub(crate) const fn label(self) -> &'static str {
        match self {
            Self::CurrentThread => "one thread",
            Self::TwoWorkers => "two threads",
        }
    }
}

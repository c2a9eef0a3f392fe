//! The log of a process of holders.

use std::{
    fmt,
    fs::{File, OpenOptions},
    io::Write,
    path::Path,
    sync::atomic::{AtomicU64, Ordering},
};

use dlock_core::{FencingToken, Instant};
use dlock_testkit::{Stop, Verdict, support::now};

use super::{
    line::{Line, What},
    resource::Writer,
};

/// The log of one process. A written line survives the death of the process.
#[derive(Debug)]
pub(super) struct Log {
    to: To,
    next: AtomicU64,
}

#[derive(Debug)]
enum To {
    Files { process: usize, file: File, resource: Writer },
    Simulation(Box<dyn Collector>),
}

/// Receives the lines and the writes of a simulated process.
pub(super) trait Collector: fmt::Debug + Send + Sync {
    fn line(&self, hold: Option<u64>, at: Instant, what: What);
    fn write(&self, hold: u64, at: Instant, token: FencingToken, name: &str);
}

impl Log {
    /// Opens the log file to append to it, and connects to the resource.
    pub(super) fn open(process: usize, path: &Path, resource: &Path) -> Result<Self, Stop> {
        let file = OpenOptions::new().create(true).append(true).open(path)?;
        let resource = Writer::open(process, resource)?;
        Ok(Self { to: To::Files { process, file, resource }, next: AtomicU64::new(1) })
    }

    /// Returns the log of a simulated process.
    pub(super) fn of(collector: impl Collector + 'static) -> Self {
        Self { to: To::Simulation(Box::new(collector)), next: AtomicU64::new(1) }
    }

    /// Returns whether the process is simulated.
    pub(super) fn is_simulated(&self) -> bool {
        matches!(self.to, To::Simulation(_))
    }

    /// Records that an attempt begins. Returns the number that identifies it in later lines.
    pub(super) fn ask(&self, what: What) -> Result<u64, Stop> {
        let hold = self.next.fetch_add(1, Ordering::Relaxed);
        self.write(hold, now(), what)?;
        Ok(hold)
    }

    /// Writes to the resource that the lock protects, and not to the log.
    pub(super) fn apply(&self, hold: u64, token: FencingToken, name: &str) -> Verdict {
        match &self.to {
            To::Files { resource, .. } => resource.write(hold, token, name),
            To::Simulation(collector) => {
                collector.write(hold, now(), token, name);
                Ok(())
            }
        }
    }

    /// Writes one line about an acquisition, in one system call.
    pub(super) fn write(&self, hold: u64, at: Instant, what: What) -> Verdict {
        self.append(Some(hold), at, what)
    }

    /// Writes one line about the process, in one system call.
    pub(super) fn write_own(&self, at: Instant, what: What) -> Verdict {
        self.append(None, at, what)
    }

    fn append(&self, hold: Option<u64>, at: Instant, what: What) -> Verdict {
        match &self.to {
            To::Files { process, file, .. } => {
                let line = Line { process: *process, hold, at, what };
                // Several tasks write at the same time: the system appends each write as a whole.
                let mut file = file;
                Ok(file.write_all(format!("{line}\n").as_bytes())?)
            }
            To::Simulation(collector) => {
                collector.line(hold, at, what);
                Ok(())
            }
        }
    }
}

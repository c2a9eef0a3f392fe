//! The log file of a process.

use std::{
    fs::{File, OpenOptions},
    io::Write,
    path::Path,
    sync::atomic::{AtomicU64, Ordering},
};

use dlock_core::{FencingToken, Guard, Instant};
use dlock_testkit::{Stop, Verdict, support::now};

use super::{
    line::{Line, What},
    resource::Writer,
};

/// The log of one process. A written line survives the death of the process.
#[derive(Debug)]
pub(super) struct Log {
    process: usize,
    file: File,
    resource: Writer,
    next: AtomicU64,
}

impl Log {
    /// Opens the log file to append to it, and connects to the resource.
    pub(super) fn open(process: usize, path: &Path, resource: &Path) -> Result<Self, Stop> {
        let file = OpenOptions::new().create(true).append(true).open(path)?;
        let resource = Writer::open(process, resource)?;
        Ok(Self { process, file, resource, next: AtomicU64::new(1) })
    }

    /// Records that an attempt begins. Returns the number that identifies it in later lines.
    pub(super) fn ask(&self, what: What) -> Result<u64, Stop> {
        let hold = self.next.fetch_add(1, Ordering::Relaxed);
        self.write(hold, now(), what)?;
        Ok(hold)
    }

    /// Writes to the resource that the lock protects, and not to the log.
    pub(super) fn apply(&self, hold: u64, token: FencingToken, name: &str) -> Verdict {
        self.resource.write(hold, token, name)
    }

    /// Writes one line about an acquisition, in one system call.
    pub(super) fn write(&self, hold: u64, at: Instant, what: What) -> Verdict {
        self.append(&Line { process: self.process, hold: Some(hold), at, what })
    }

    /// Writes one line about the process, in one system call.
    pub(super) fn write_own(&self, at: Instant, what: What) -> Verdict {
        self.append(&Line { process: self.process, hold: None, at, what })
    }

    fn append(&self, line: &Line) -> Verdict {
        // Several tasks write at the same time: the system appends each write as a whole.
        Ok((&self.file).write_all(format!("{line}\n").as_bytes())?)
    }
}

/// Returns the current time and the local deadline of the guard, which may be reported too early
/// but never too late. The deadline is `None` once the lock is lost.
pub(super) fn hold_times(guard: &Guard) -> (Instant, Option<Instant>) {
    // The order matters: if the process is stopped in between, the computed deadline is too early,
    // not too late.
    let at = now();
    let left = guard.remaining();
    (at, (!left.is_zero()).then(|| at.saturating_add(left)))
}

//! The file into which a process writes what happens to it.

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

/// The log of one process. A line that was written survives the death of the process.
#[derive(Debug)]
pub(super) struct Log {
    process: usize,
    file: File,
    resource: Writer,
    next: AtomicU64,
}

impl Log {
    /// Opens a file to write at its end, and the way to the resource.
    pub(super) fn open(process: usize, path: &Path, resource: &Path) -> Result<Self, Stop> {
        let file = OpenOptions::new().create(true).append(true).open(path)?;
        let resource = Writer::open(process, resource)?;
        Ok(Self { process, file, resource, next: AtomicU64::new(1) })
    }

    /// An attempt begins. The number by which it is spoken of from now on.
    pub(super) fn ask(&self, what: What) -> Result<u64, Stop> {
        let hold = self.next.fetch_add(1, Ordering::Relaxed);
        self.write(hold, now(), what)?;
        Ok(hold)
    }

    /// Writes to what the lock guards, and not to the log.
    pub(super) fn apply(&self, hold: u64, token: FencingToken, name: &str) -> Verdict {
        self.resource.write(hold, token, name)
    }

    /// Writes one line about an acquisition, in one piece.
    pub(super) fn write(&self, hold: u64, at: Instant, what: What) -> Verdict {
        self.append(&Line { process: self.process, hold: Some(hold), at, what })
    }

    /// Writes one line about the process.
    pub(super) fn write_own(&self, at: Instant, what: What) -> Verdict {
        self.append(&Line { process: self.process, hold: None, at, what })
    }

    fn append(&self, line: &Line) -> Verdict {
        // Tasks write at the same time: the system appends whole writes one after the other.
        Ok((&self.file).write_all(format!("{line}\n").as_bytes())?)
    }
}

/// Now, and until when the guard is to be believed, or earlier; `None` once it is lost.
pub(super) fn believed(guard: &Guard) -> (Instant, Option<Instant>) {
    // In this order: whatever stops the process in between, the deadline is not put too late.
    let at = now();
    let left = guard.remaining();
    (at, (!left.is_zero()).then(|| at.saturating_add(left)))
}

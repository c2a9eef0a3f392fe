//! The file into which a process writes what happens to it.

use std::{
    fs::{File, OpenOptions},
    io::Write,
    path::Path,
    sync::atomic::{AtomicU64, Ordering},
};

use dlock_core::{FencingToken, Guard, Instant, Mode};

use super::{
    line::{Line, Phase, What},
    resource::Writer,
};
use crate::{Stop, context::now};

/// The log of one process. A line that was written survives the death of the process.
#[derive(Debug)]
pub(super) struct Log {
    file: File,
    resource: Writer,
    next: AtomicU64,
}

impl Log {
    /// Opens a file to write at its end, and the way to the resource.
    pub(super) fn open(path: &Path, resource: &Path) -> Result<Self, Stop> {
        let file = OpenOptions::new().create(true).append(true).open(path)?;
        Ok(Self { file, resource: Writer::open(resource)?, next: AtomicU64::new(1) })
    }

    /// An attempt begins. The number by which it is spoken of from now on.
    pub(super) fn ask(
        &self,
        task: usize,
        phase: Phase,
        mode: Mode,
        name: &str,
    ) -> Result<u64, Stop> {
        let hold = self.next.fetch_add(1, Ordering::Relaxed);
        let name = name.to_owned();
        self.write(hold, What::Ask { task, phase, mode, at: now(), name })?;
        Ok(hold)
    }

    /// Writes to what the lock guards, and not to the log.
    pub(super) fn apply(&self, hold: u64, token: FencingToken, name: &str) -> Result<(), Stop> {
        self.resource.write(hold, token, name)
    }

    /// Writes one line, in one piece.
    pub(super) fn write(&self, hold: u64, what: What) -> Result<(), Stop> {
        let line = format!("{}\n", Line { hold, what });
        // Tasks write at the same time: the system appends whole writes one after the other.
        Ok((&self.file).write_all(line.as_bytes())?)
    }
}

/// Now, and until when the guard is to be believed, or earlier; `None` once it is lost.
pub(super) fn believed(guard: &Guard) -> (Instant, Option<Instant>) {
    // In this order: whatever stops the process in between, the deadline is not put too late.
    let at = now();
    let left = guard.remaining();
    (at, (!left.is_zero()).then(|| at.saturating_add(left)))
}

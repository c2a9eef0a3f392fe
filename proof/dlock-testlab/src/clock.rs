//! A wall clock that tests can step, for the servers that were started with it.
//!
//! A small library is preloaded into the server. It adds an offset to the system's wall clock. Its
//! source is compiled once per process, which needs a C compiler and Linux. The offset is in a file
//! that the servers have mapped, so a step takes effect in all of them at once, while they run. The
//! clocks of the tests and of the machine don't change. The clock can also stand still.

use std::{
    fs::{File, Permissions, set_permissions},
    os::unix::fs::{FileExt, PermissionsExt},
    path::PathBuf,
    sync::Arc,
    time::Duration,
};

use parking_lot::Mutex;
use tokio::sync::OnceCell;

use super::{directory::Directory, machine::find};
use crate::{Stop, Verdict};

/// The library's source, which is part of this package.
const SOURCE: &str = include_str!("../shim/clock.c");

const COMPILE: &str = "cc -shared -fPIC -O2 -o clock.so clock.c";
const LIBRARY: &str = "clock.so";
const OFFSET: &str = "offset";
/// The position in the file of the time at which the clock stands still.
const STILL: u64 = 8;

/// Never dropped: its watchdog removes the directory when the process ends.
static SHIM: OnceCell<Directory> = OnceCell::const_new();

/// The wall clock of all servers that are started with it (`Options::with_clock`). A restarted
/// server keeps it. It runs at the rate of the machine's clock and can be stepped while servers
/// run.
///
/// Only the wall clock is stepped. The monotonic clock of a server stays correct, as it does when
/// the clock of a real machine is set. Clones are the same clock.
#[derive(Clone, Debug)]
pub struct SteppedClock(Arc<Shared>);

#[derive(Debug)]
struct Shared {
    offset: Mutex<i64>,
    file: File,
    library: PathBuf,
    directory: Directory,
}

impl SteppedClock {
    /// Returns a clock with an offset of zero.
    ///
    /// # Errors
    /// [`Stop::missing`] if there is no C compiler, or the system is not Linux.
    pub async fn start() -> Result<Self, Stop> {
        let library = SHIM.get_or_try_init(compiled).await?.path().join(LIBRARY);
        let directory = open_directory()?;
        let path = directory.path().join(OFFSET);
        let file = File::create_new(&path)?;
        set_permissions(&path, Permissions::from_mode(0o644))?;
        let clock = Self(Arc::new(Shared { offset: Mutex::new(0), file, library, directory }));
        clock.reset()?;
        Ok(clock)
    }

    /// Returns the environment variables that make a program use this clock.
    pub fn env(&self) -> [(&'static str, PathBuf); 2] {
        let file = self.0.directory.path().join(OFFSET);
        [("LD_PRELOAD", self.0.library.clone()), ("DLOCK_CLOCK_FILE", file)]
    }

    /// Steps the clock forward. The step has taken effect when this returns.
    ///
    /// # Errors
    /// If the file can't be written.
    pub fn forward(&self, by: Duration) -> Verdict {
        self.set(|offset| offset.saturating_add(nanos(by)))
    }

    /// Steps the clock back. The step has taken effect when this returns.
    ///
    /// # Errors
    /// If the file can't be written.
    pub fn back(&self, by: Duration) -> Verdict {
        self.set(|offset| offset.saturating_sub(nanos(by)))
    }

    /// Makes the clock stand still at this time since 1970, until the next step.
    ///
    /// # Errors
    /// If the file can't be written.
    pub fn stop_at(&self, time: Duration) -> Verdict {
        Ok(self.0.file.write_all_at(&nanos(time).to_ne_bytes(), STILL)?)
    }

    /// Sets the offset to zero.
    ///
    /// # Errors
    /// If the file can't be written.
    pub fn reset(&self) -> Verdict {
        self.set(|_| 0)
    }

    /// Returns by how many nanoseconds this clock is ahead of the machine's. The number is negative
    /// if this clock is behind.
    pub fn offset(&self) -> i64 {
        *self.0.offset.lock()
    }

    fn set(&self, to: impl FnOnce(i64) -> i64) -> Verdict {
        let mut offset = self.0.offset.lock();
        let stepped = to(*offset);
        // Written in place: the servers have mapped this file and would not see a replacement.
        self.0.file.write_all_at(&stepped.to_ne_bytes(), 0)?;
        self.0.file.write_all_at(&0_i64.to_ne_bytes(), STILL)?;
        *offset = stepped;
        Ok(())
    }
}

async fn compiled() -> Result<Directory, Stop> {
    if !cfg!(target_os = "linux") {
        return Err(Stop::missing("the clocks of servers can be stepped on Linux only"));
    }
    if find("cc").is_none() {
        return Err(Stop::missing("no C compiler is installed: apt-get install gcc libc6-dev"));
    }
    let directory = open_directory()?;
    directory.write("clock.c", SOURCE)?;
    directory.run(COMPILE, &[]).await?;
    set_permissions(directory.path().join(LIBRARY), Permissions::from_mode(0o755))?;
    Ok(directory)
}

/// Creates a directory that all accounts may read, because servers may run as other accounts.
fn open_directory() -> Result<Directory, Stop> {
    let directory = Directory::new("dlock-clock-", None, "")?;
    set_permissions(directory.path(), Permissions::from_mode(0o755))?;
    Ok(directory)
}

fn nanos(time: Duration) -> i64 {
    i64::try_from(time.as_nanos()).unwrap_or(i64::MAX)
}

//! How much processor time a server has used, as the system counts it.

use std::{fs, path::Path};

use crate::{Failure, rounds::Meter};

/// A server: a process, and those that it has started.
#[derive(Clone, Copy, Debug)]
pub(super) struct Usage(pub(super) u32);

impl Meter for Usage {
    async fn server_time(&mut self) -> Result<f64, Failure> {
        Ok(self.seconds())
    }
}

impl Usage {
    /// The seconds that those of its threads have used that still run. Not a number where the
    /// system does not tell.
    pub(super) fn seconds(self) -> f64 {
        let Ok(processes) = fs::read_dir("/proc") else { return f64::NAN };
        let paths = processes.flatten().map(|process| process.path());
        let own = paths.filter(|path| self.is_of(path)).flat_map(|path| {
            let threads = fs::read_dir(path.join("task")).into_iter().flatten().flatten();
            threads.filter_map(|thread| nanos(&thread.path())).collect::<Vec<_>>()
        });
        let sum = own.fold((0.0, 0usize), |(sum, count), nanos| (sum + nanos, count + 1));
        if sum.1 == 0 { f64::NAN } else { sum.0 / 1e9 }
    }

    fn is_of(self, process: &Path) -> bool {
        let id = process.file_name().and_then(|name| name.to_str()?.parse().ok());
        id == Some(self.0) || (id.is_some() && parent(process) == Some(self.0))
    }
}

/// `ID (NAME) STATE PARENT ...`, where the name may be anything.
fn parent(process: &Path) -> Option<u32> {
    let stat = fs::read_to_string(process.join("stat")).ok()?;
    let (_, rest) = stat.rsplit_once(')')?;
    rest.split_whitespace().nth(1)?.parse().ok()
}

/// How long a thread has run.
fn nanos(thread: &Path) -> Option<f64> {
    let times = fs::read_to_string(thread.join("schedstat")).ok()?;
    times.split_whitespace().next()?.parse().ok()
}

#[cfg(test)]
#[cfg(target_os = "linux")]
mod tests {
    use super::*;

    #[test]
    fn a_process_has_used_some_time_and_nobody_none() {
        assert!(Usage(std::process::id()).seconds() > 0.0);
        assert!(Usage(u32::MAX).seconds().is_nan());
    }
}

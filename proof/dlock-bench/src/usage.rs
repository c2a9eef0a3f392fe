//! The processor time that a server has used, as the system counts it.

use std::{
    collections::HashMap,
    fs,
    path::{Path, PathBuf},
};

use crate::Failure;

/// The usage of a server: of a process and of the processes that it has started.
#[derive(Clone, Debug)]
pub(crate) struct Usage {
    server: u32,
    /// The last known nanoseconds of each thread, including threads that have ended.
    threads: HashMap<PathBuf, f64>,
}

impl Usage {
    /// Returns the usage of the server with this first process.
    pub(crate) fn of(server: Option<u32>) -> Result<Self, Failure> {
        let server = server.ok_or("the server is gone")?;
        Ok(Self { server, threads: HashMap::new() })
    }

    /// Returns the seconds that its threads have used, including threads seen before; not a number
    /// if the system does not report them.
    pub(crate) fn seconds(&mut self) -> f64 {
        let processes = fs::read_dir("/proc").into_iter().flatten().flatten();
        for process in processes.map(|process| process.path()) {
            if !self.is_of(&process) {
                continue;
            }
            let threads = fs::read_dir(process.join("task")).into_iter().flatten().flatten();
            for path in threads.map(|thread| thread.path()) {
                if let Some(nanos) = nanos(&path) {
                    self.threads.insert(path, nanos);
                }
            }
        }
        if self.threads.is_empty() { f64::NAN } else { self.threads.values().sum::<f64>() / 1e9 }
    }

    fn is_of(&self, process: &Path) -> bool {
        let id = process.file_name().and_then(|name| name.to_str()?.parse().ok());
        id == Some(self.server) || (id.is_some() && parent(process) == Some(self.server))
    }
}

/// Parses `ID (NAME) STATE PARENT ...`, where the name may contain any characters.
fn parent(process: &Path) -> Option<u32> {
    let stat = fs::read_to_string(process.join("stat")).ok()?;
    let (_, rest) = stat.rsplit_once(')')?;
    rest.split_whitespace().nth(1)?.parse().ok()
}

/// Returns the time for which a thread has run.
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
        assert!(Usage::of(Some(std::process::id())).unwrap().seconds() > 0.0);
        assert!(Usage::of(Some(u32::MAX)).unwrap().seconds().is_nan());
        assert!(Usage::of(None).is_err());
    }

    #[test]
    fn a_thread_that_has_ended_counts() {
        let mut usage = Usage::of(Some(std::process::id())).unwrap();
        usage.threads.insert(PathBuf::from("/proc/0/task/0"), 1e12);
        assert!(usage.seconds() > 1e3);
    }
}

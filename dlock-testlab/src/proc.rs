//! How a process is, as the system says in `/proc`.

use std::{fs, path::Path, thread::sleep, time::Duration};

use crate::Stop;

/// How often to look whether a process is stopped.
const POLL: Duration = Duration::from_millis(1);

/// How many times at most: a backstop for one that waits for its disk.
const LOOKS: usize = 10_000;

/// Whether the process is stopped, with all its threads, as by [`pause`](super::redis::RedisServer::pause).
/// `false` for one that is gone, and everywhere but on Linux.
pub fn is_stopped(pid: u32) -> bool {
    let threads = states(pid);
    !threads.is_empty() && threads.iter().all(|state| *state == 'T')
}

/// Waits until a process is stopped that was told to stop, which takes it a moment; `false` when it
/// has ended. Where the system does not say how processes are, they are taken for stopped.
pub(super) fn until_stopped(pid: u32) -> Result<bool, Stop> {
    if !Path::new("/proc/self/task").exists() {
        return Ok(true);
    }
    for _ in 0..LOOKS {
        match states(pid).as_slice() {
            states if states.iter().all(|state| matches!(state, 'Z' | 'X')) => return Ok(false),
            states if states.iter().all(|state| *state == 'T') => return Ok(true),
            _ => sleep(POLL),
        }
    }
    Err(Stop::failed(format!("process {pid} is not stopped, although it was told to")))
}

/// The state of each thread.
fn states(pid: u32) -> Vec<char> {
    let Ok(threads) = fs::read_dir(format!("/proc/{pid}/task")) else {
        return Vec::new();
    };
    let stats = threads.flatten().map(|thread| fs::read_to_string(thread.path().join("stat")));
    // A thread that ended in between has none.
    stats.flatten().filter_map(|stat| state(&stat)).collect()
}

/// Behind the name, which stands in parentheses and may contain some.
fn state(stat: &str) -> Option<char> {
    stat.rsplit_once(") ")?.1.chars().next()
}

#[cfg(test)]
mod tests {
    use std::process::{Command, Stdio};

    use super::*;

    #[test]
    fn a_state_stands_behind_any_name() {
        assert_eq!(state("7 (a) T (b) c) S 1 7"), Some('S'));
        assert_eq!(state("7 (a"), None);
    }

    #[test]
    fn a_running_or_ended_process_is_not_stopped() {
        let mut process = Command::new("sleep").arg("60").stdin(Stdio::null()).spawn().unwrap();
        let pid = process.id();
        assert!(!is_stopped(pid) && !is_stopped(std::process::id()));
        process.kill().unwrap();
        process.wait().unwrap();
        assert!(!is_stopped(pid));
        if cfg!(target_os = "linux") {
            assert!(!until_stopped(pid).unwrap());
        }
    }
}

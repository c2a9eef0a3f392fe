//! The state of a process, from `/proc`.

use std::{fs, path::Path, thread::sleep, time::Duration};

use crate::Stop;

/// The pause between two checks whether a process is stopped.
const POLL: Duration = Duration::from_millis(1);

/// The maximum number of checks: a backstop for a process that waits for its disk.
const LOOKS: usize = 10_000;

/// Whether the process with all its threads is stopped, for instance by
/// [`pause`](super::redis::RedisServer::pause). `false` if it has ended, and on all systems except
/// Linux.
pub fn is_stopped(pid: u32) -> bool {
    let threads = states(pid);
    !threads.is_empty() && threads.iter().all(|state| *state == 'T')
}

/// Waits until a process is stopped after it got a stop signal, which takes a moment. Returns
/// `false` if it has ended. On systems without `/proc`, processes count as stopped.
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

/// Returns the state of each thread.
fn states(pid: u32) -> Vec<char> {
    let Ok(threads) = fs::read_dir(format!("/proc/{pid}/task")) else {
        return Vec::new();
    };
    let stats = threads.flatten().map(|thread| fs::read_to_string(thread.path().join("stat")));
    // A thread that has ended since the listing has no state.
    stats.flatten().filter_map(|stat| state(&stat)).collect()
}

/// The state is the field after the name. The name is in parentheses and may contain some.
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

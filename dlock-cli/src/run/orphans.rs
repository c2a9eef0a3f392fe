//! Processes that have lost their parents.
//!
//! As the first process of a container, dlock becomes the parent of each process whose own parent
//! has ended. When such a process ends, it stays as a zombie until dlock has waited for it.

use std::fs;

use rustix::process::{Pid, WaitOptions, waitpid};
use tokio::signal::unix::{Signal, SignalKind, signal};

/// Notices that a child of this process has ended, if it becomes the parent of orphans.
pub(super) struct Orphans(Option<Signal>);

impl Orphans {
    pub(super) fn of_this_process() -> Self {
        let first = std::process::id() == 1;
        Self(first.then(|| signal(SignalKind::child()).ok()).flatten())
    }

    /// Waits until children have ended. Never returns if orphans have another parent.
    ///
    /// Cancel safe.
    pub(super) async fn arrive(&mut self) {
        if let Some(signal) = &mut self.0
            && signal.recv().await.is_some()
        {
            return;
        }
        std::future::pending().await
    }
}

/// Waits for the orphans that have ended, but not for the command: its exit code is still needed.
pub(super) fn reap(command: Pid) {
    for one in processes().filter(|one| one.is_zombie && one.parent == 1 && one.id != command) {
        let _ = waitpid(Some(one.id), WaitOptions::NOHANG);
    }
}

/// Whether a process of this group runs. A zombie does not, and nobody may ever wait for it.
pub(super) fn group_runs(group: Pid) -> bool {
    if rustix::process::test_kill_process_group(group).is_err() {
        return false;
    }
    let mut any = false;
    for one in processes() {
        any = true;
        if one.group == group.as_raw_nonzero().get() && !one.is_zombie {
            return true;
        }
    }
    // Without /proc there is no difference between the two.
    !any
}

/// A process, as /proc describes it.
struct Process {
    id: Pid,
    is_zombie: bool,
    parent: i32,
    group: i32,
}

/// Returns all processes; none if the system has no /proc.
fn processes() -> impl Iterator<Item = Process> {
    let entries = fs::read_dir("/proc").into_iter().flatten().flatten();
    entries.filter_map(|entry| {
        let id = entry.file_name().to_str()?.parse().ok().and_then(Pid::from_raw)?;
        parsed(id, &fs::read_to_string(entry.path().join("stat")).ok()?)
    })
}

/// Parses `ID (NAME) STATE PARENT GROUP ...`. A name may contain anything.
fn parsed(id: Pid, stat: &str) -> Option<Process> {
    let (_, rest) = stat.rsplit_once(')')?;
    let mut fields = rest.split_whitespace();
    let is_zombie = matches!(fields.next()?, "Z" | "X");
    let mut number = || fields.next()?.parse().ok();
    Some(Process { id, is_zombie, parent: number()?, group: number()? })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_is_parsed_whatever_its_name_is() {
        let id = Pid::from_raw(7).unwrap();
        let one = parsed(id, "7 (a) Z 9 (b) Z 1 5 0 0 -1").unwrap();
        assert!(one.is_zombie);
        assert_eq!((one.parent, one.group), (1, 5));
        assert!(!parsed(id, "7 (sh) S 1 5 0").unwrap().is_zombie);
        assert!(parsed(id, "").is_none());
    }

    #[cfg(target_os = "linux")]
    #[test]
    fn a_group_of_zombies_does_not_run() {
        use std::{
            os::unix::process::CommandExt as _,
            process::{Command, Stdio},
        };

        let mut child = Command::new("cat").stdin(Stdio::piped()).process_group(0).spawn().unwrap();
        let group = Pid::from_child(&child);
        assert!(group_runs(group));
        drop(child.stdin.take());
        while !processes().any(|one| one.id == group && one.is_zombie) {
            std::thread::yield_now();
        }
        // A signal still reaches the group.
        assert!(rustix::process::test_kill_process_group(group).is_ok());
        assert!(!group_runs(group));
        child.wait().unwrap();
    }
}

//! Which processors run what, where the system lets us choose.

use std::fs;

use rustix::process::Pid;

use crate::Failure;

/// While this lives, the server has a processor of its own, as if it were on another machine, and
/// what is started from now on has the others.
///
/// Left to itself, the scheduler puts server and client now on one processor and now on two, by
/// luck, and that makes a difference of several times to a round trip.
#[derive(Debug)]
pub(crate) struct Placed {
    server: Vec<Pid>,
    all: Vec<usize>,
}

impl Placed {
    /// Places these threads of the server, and those of this process with the processes and
    /// threads that they start. Does nothing where there is but one processor.
    pub(crate) fn keep(server: &[u32]) -> Result<Self, Failure> {
        let server: Vec<Pid> = server.iter().copied().filter_map(pid).collect();
        if server.is_empty() {
            return Err("a server without a process".into());
        }
        let placed = Self { server, all: all()? };
        if let [first, others @ ..] = &placed.all[..]
            && !others.is_empty()
        {
            for thread in &placed.server {
                // One that has ended meanwhile needs no place.
                let _ = bind(Some(*thread), &[*first]);
            }
            bind_own(others)?;
        }
        Ok(placed)
    }
}

impl Drop for Placed {
    fn drop(&mut self) {
        for thread in &self.server {
            let _ = bind(Some(*thread), &self.all);
        }
        let _ = bind_own(&self.all);
    }
}

/// Has all threads of this process run on these processors only: a driver may keep one for all of
/// its connections, which was started in an earlier place.
fn bind_own(processors: &[usize]) -> Result<(), Failure> {
    for thread in threads(std::process::id()).into_iter().filter_map(pid) {
        let _ = bind(Some(thread), processors);
    }
    bind(None, processors)
}

/// The ids of a process's threads; none where that can't be found out.
pub(crate) fn threads(process: u32) -> Vec<u32> {
    let tasks = fs::read_dir(format!("/proc/{process}/task")).into_iter().flatten().flatten();
    tasks.filter_map(|task| task.file_name().to_str()?.parse().ok()).collect()
}

fn pid(id: u32) -> Option<Pid> {
    i32::try_from(id).ok().and_then(Pid::from_raw)
}

/// The processors that this thread may use; none where that can't be found out.
#[cfg(target_os = "linux")]
pub(crate) fn all() -> Result<Vec<usize>, Failure> {
    use rustix::thread::{CpuSet, sched_getaffinity};
    let set = sched_getaffinity(None)?;
    Ok((0..CpuSet::MAX_CPU).filter(|processor| set.is_set(*processor)).collect())
}

/// Has a thread, or this one, run on these processors only.
#[cfg(target_os = "linux")]
pub(crate) fn bind(thread: Option<Pid>, processors: &[usize]) -> Result<(), Failure> {
    use rustix::thread::{CpuSet, sched_setaffinity};
    let mut set = CpuSet::new();
    processors.iter().for_each(|processor| set.set(*processor));
    Ok(sched_setaffinity(thread, &set)?)
}

/// The processors that this thread may use; none where that can't be found out.
#[cfg(not(target_os = "linux"))]
pub(crate) fn all() -> Result<Vec<usize>, Failure> {
    Ok(Vec::new())
}

/// Has a thread, or this one, run on these processors only.
#[cfg(not(target_os = "linux"))]
pub(crate) fn bind(_thread: Option<Pid>, _processors: &[usize]) -> Result<(), Failure> {
    Ok(())
}

//! The processors: which of them a process uses, and that none sleeps.
//!
//! A round trip between idle processes is mostly the time that a processor takes to wake up. On a
//! virtual machine this is many times as long as driver and server need. It would hide the cost of
//! dlock, and it varies with the other load. So while latencies are measured this executable starts
//! itself again to spin on all processors, with the lowest priority: a process with work preempts it
//! at once, as on a busy machine.

use std::{
    fs,
    io::Read,
    process::{Child, Command, Stdio},
};

use rustix::process::{Pid, nice};

use crate::Failure;

/// While this value lives, the server has a separate processor, as if it were on another machine,
/// and processes that start later share the others.
///
/// Otherwise the scheduler places server and client on one processor or on two, by chance, and a
/// round trip may take several times as long.
#[derive(Debug)]
pub(crate) struct Placed {
    server: Vec<Pid>,
    all: Vec<usize>,
}

impl Placed {
    /// Places these threads of the server, and the threads of this process with all processes and
    /// threads that they start. Does nothing if there is only one processor.
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
                // A thread that has ended meanwhile needs no place.
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

/// Restricts all threads of this process to these processors. A driver may keep one thread for all
/// its connections that was started in an earlier place.
fn bind_own(processors: &[usize]) -> Result<(), Failure> {
    for thread in threads(std::process::id()).into_iter().filter_map(pid) {
        let _ = bind(Some(thread), processors);
    }
    bind(None, processors)
}

/// Returns the ids of a process's threads; none if the system does not report them.
pub(crate) fn threads(process: u32) -> Vec<u32> {
    let tasks = fs::read_dir(format!("/proc/{process}/task")).into_iter().flatten().flatten();
    tasks.filter_map(|task| task.file_name().to_str()?.parse().ok()).collect()
}

fn pid(id: u32) -> Option<Pid> {
    i32::try_from(id).ok().and_then(Pid::from_raw)
}

/// Returns the processors that this thread may use; none if the system does not report them.
#[cfg(target_os = "linux")]
pub(crate) fn all() -> Result<Vec<usize>, Failure> {
    use rustix::thread::{CpuSet, sched_getaffinity};
    let set = sched_getaffinity(None)?;
    Ok((0..CpuSet::MAX_CPU).filter(|processor| set.is_set(*processor)).collect())
}

/// Restricts a thread, or the current one, to these processors.
#[cfg(target_os = "linux")]
pub(crate) fn bind(thread: Option<Pid>, processors: &[usize]) -> Result<(), Failure> {
    use rustix::thread::{CpuSet, sched_setaffinity};
    let mut set = CpuSet::new();
    processors.iter().for_each(|processor| set.set(*processor));
    Ok(sched_setaffinity(thread, &set)?)
}

/// Returns the processors that this thread may use; none if the system does not report them.
#[cfg(not(target_os = "linux"))]
pub(crate) fn all() -> Result<Vec<usize>, Failure> {
    Ok(Vec::new())
}

/// Restricts a thread, or the current one, to these processors.
#[cfg(not(target_os = "linux"))]
pub(crate) fn bind(_thread: Option<Pid>, _processors: &[usize]) -> Result<(), Failure> {
    Ok(())
}

/// The environment variable that makes a process spin, with the priority of idle or of busy
/// processes.
const SPINS: &str = "DLOCK_BENCH_SPINS";

/// While this value lives, no processor sleeps.
#[derive(Debug)]
pub(crate) struct Awake(Child);

impl Awake {
    /// Starts the spinning process.
    pub(crate) fn keep() -> Result<Self, Failure> {
        Self::spinning("idle")
    }

    fn spinning(priority: &str) -> Result<Self, Failure> {
        let spins = Command::new(std::env::current_exe()?)
            .env(SPINS, priority)
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .spawn()?;
        Ok(Self(spins))
    }
}

impl Drop for Awake {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// While this value lives, each processor has work of the usual priority, which competes with that
/// of the measured processes.
#[derive(Debug)]
pub(crate) struct Busy(
    #[expect(dead_code, reason = "it ends the process when it is dropped")] Awake,
);

impl Busy {
    /// Starts the spinning process.
    pub(crate) fn keep() -> Result<Self, Failure> {
        Ok(Self(Awake::spinning("busy")?))
    }
}

/// Whether this process is the spinning one.
pub(crate) fn is_spinning() -> bool {
    std::env::var_os(SPINS).is_some()
}

/// Spins until the parent has ended, however it ended.
pub(crate) fn spin() -> Result<(), Failure> {
    if std::env::var_os(SPINS).is_some_and(|priority| priority == "idle") {
        nice(19)?;
    }
    for processor in all()? {
        std::thread::spawn(move || {
            // Two spinning threads on one processor would let another processor sleep.
            let _ = bind(None, &[processor]);
            loop {
                std::hint::spin_loop();
            }
        });
    }
    std::io::stdin().read_to_end(&mut Vec::new())?;
    Ok(())
}

//! Which processors run what, where the system lets us choose.

use rustix::process::Pid;

use crate::Failure;

/// Where the server runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Server {
    /// On the processor of all others. Nobody waits for another processor to take notice, so a
    /// round trip is the work that it takes and nothing else.
    Together,
    /// On one of its own, as if it were on another machine.
    Apart,
}

/// While this lives, the server and what is started from now on keep to their processors.
///
/// Left to itself, the scheduler puts server and client now on one processor and now on two, by
/// luck, and that makes a difference of several times to a round trip.
#[derive(Debug)]
pub(crate) struct Placed {
    server: Pid,
    all: Vec<usize>,
}

impl Placed {
    /// Places the server, and this thread with the processes and threads that it starts. Does
    /// nothing where there is but one processor.
    pub(crate) fn keep(server: u32, place: Server) -> Result<Self, Failure> {
        let server = Pid::from_raw(i32::try_from(server)?).ok_or("a server without a process")?;
        let placed = Self { server, all: all()? };
        if let [first, others @ ..] = &placed.all[..]
            && !others.is_empty()
        {
            bind(Some(server), &[*first])?;
            match place {
                Server::Together => bind(None, &[*first])?,
                Server::Apart => bind(None, others)?,
            }
        }
        Ok(placed)
    }
}

impl Drop for Placed {
    fn drop(&mut self) {
        let _ = bind(Some(self.server), &self.all);
        let _ = bind(None, &self.all);
    }
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

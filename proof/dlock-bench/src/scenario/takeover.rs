//! The time until another process has the lock of a holder that ended without a release.
//!
//! Holders in processes of their own are killed, frozen, or cut off from the server, while a further
//! process waits for their locks. The faults are spread over the time between two renewals, because
//! the rest of a lease depends on its last renewal.

use std::time::Duration;

use dlock_testlab::is_stopped;
use rustix::process::{Pid, Signal, kill_process};

use super::{Counter, Profile, Scenario};
use crate::{
    Failure, clock,
    crew::{
        contestant::Contestant,
        team::{Figures, Team},
    },
    figures::{Figure, percentile},
    own::Own,
    processors::Busy,
    store::Store,
};

/// The lengths of a lease in seconds; on ZooKeeper and etcd, of a session.
const SECONDS: [u64; 5] = [1, 2, 5, 10, 30];

/// The longest lease of a quick run, and of a run with busy processors.
const SHORT: u64 = 5;

/// The number of holders of each fault.
const HOLDERS: u32 = 8;

/// The pause between two checks whether a process is frozen.
const PAUSE: Duration = Duration::from_millis(1);

/// Returns the scenarios of all leases.
pub(super) fn all() -> impl Iterator<Item = Box<dyn Scenario>> {
    let idle = SECONDS.into_iter().map(|seconds| Takeover { seconds, is_busy: false });
    let busy = SECONDS.into_iter().filter(|seconds| *seconds <= SHORT);
    let busy = busy.map(|seconds| Takeover { seconds, is_busy: true });
    idle.chain(busy).map(|scenario| Box::new(scenario) as Box<dyn Scenario>)
}

/// A takeover with this lease.
struct Takeover {
    seconds: u64,
    /// Whether other processes use all processors.
    is_busy: bool,
}

/// An end without a release.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Fault {
    /// The process is killed.
    Killed,
    /// The process is stopped by a signal, as on a machine that is suspended.
    Frozen,
    /// Its network is cut.
    Cut,
}

impl Fault {
    const ALL: [Self; 3] = [Self::Killed, Self::Frozen, Self::Cut];

    /// Returns the quantities that are measured.
    const fn figures(self) -> [Figure; 2] {
        match self {
            Self::Killed => [Figure::KilledP50, Figure::KilledP99],
            Self::Frozen => [Figure::FrozenP50, Figure::FrozenP99],
            Self::Cut => [Figure::CutP50, Figure::CutP99],
        }
    }

    const fn word(self) -> &'static str {
        match self {
            Self::Killed => "killed",
            Self::Frozen => "frozen",
            Self::Cut => "cut",
        }
    }

    /// Returns the name that a holder keeps. Its lock is the first one below that name.
    fn name(self, prefix: &str, place: u32) -> String {
        format!("{prefix}/{}-{place}", self.word())
    }

    /// Makes it happen to a process. Returns the time just before it did.
    fn happen(self, holders: &Team, place: u32) -> Result<u64, Failure> {
        let place = usize::try_from(place)?;
        let id = *holders.pids().get(place).ok_or("no process")?;
        let pid = i32::try_from(id).ok().and_then(Pid::from_raw).ok_or("no process id")?;
        let now = clock::now();
        match self {
            Self::Killed => kill_process(pid, Signal::KILL)?,
            Self::Frozen => {
                kill_process(pid, Signal::STOP)?;
                while !is_stopped(id) {
                    std::thread::sleep(PAUSE);
                }
            }
            Self::Cut => holders.relays.as_ref().ok_or("no network")?.cut(place),
        }
        Ok(now)
    }
}

impl Scenario for Takeover {
    fn profile(&self) -> Profile {
        let seconds = self.seconds;
        let about = "from the end of a holder to the next one";
        let profile = match self.is_busy {
            false => Profile::of_rate(
                format!("takeover-{seconds}"),
                format!("{about}, with a lease of {seconds} s"),
            ),
            true => Profile::of_rate(
                format!("takeover-busy-{seconds}"),
                format!("{about}, with a lease of {seconds} s and no idle processor"),
            ),
        };
        let is_long = self.is_busy || seconds > SHORT;
        Profile { main: Figure::KilledP50, is_long, ..profile }
    }

    fn baselines(&self, store: Store) -> Result<Vec<Own>, &'static str> {
        match store {
            Store::Memory => Err("its locks end with their process"),
            _ => Ok(Vec::new()),
        }
    }

    fn rules_out(&self, contestant: &Contestant) -> Option<&'static str> {
        match contestant {
            Contestant::Own(Own::Dlock, "") => None,
            Contestant::Own(..) => Some("its locks have no lease"),
            Contestant::Peer(_) => Some("its lease can't be chosen"),
        }
    }

    fn count(
        &self,
        team: &mut Team,
        counter: &mut Counter<'_>,
        _lasts: Duration,
    ) -> Result<Figures, Failure> {
        let lease = Duration::from_secs(self.seconds);
        let contestant = Contestant::hurried(counter.server.store, self.seconds);
        let prefix = team.fresh_name(&self.profile().name);
        let mut holders = Vec::new();
        for fault in Fault::ALL {
            let size = usize::try_from(HOLDERS)?;
            let mut group = match (fault, counter.server.address()) {
                (Fault::Cut, None) => continue,
                (Fault::Cut, Some(_)) => counter.relayed(contestant.clone(), size)?,
                _ => counter.team(contestant.clone(), size)?,
            };
            let place = |place| u32::try_from(place).unwrap_or_default();
            group.ask(|at| {
                format!("keep {} 1 {}", fault.name(&prefix, place(at)), lease.as_millis())
            })?;
            holders.push((fault, group));
        }
        let _busy = if self.is_busy { Some(Busy::keep()?) } else { None };
        let names = holders.iter().flat_map(|(fault, _)| {
            (0..HOLDERS).map(|place| format!(" {}/0", fault.name(&prefix, place)))
        });
        team.say(&format!("next {}{}", lease.as_millis(), names.collect::<String>()))?;

        // Each lease is renewed at least once before its holder's end.
        std::thread::sleep(lease / 2);
        let mut ends: Vec<Vec<u64>> = vec![Vec::new(); holders.len()];
        for place in 0..HOLDERS {
            for ((fault, group), ends) in holders.iter().zip(&mut ends) {
                ends.push(fault.happen(group, place)?);
            }
            std::thread::sleep(lease / 3 / HOLDERS);
        }
        let got = times(&team.answer()?)?;
        let (mut figures, mut needless) = (Vec::new(), 0);
        let count = usize::try_from(HOLDERS)?;
        for (((fault, _), ends), got) in holders.iter().zip(&ends).zip(got.chunks(count)) {
            let (took, lost) = took(ends, got);
            needless += lost;
            let [p50, p99] = fault.figures();
            figures.push((p50, percentile(took.clone(), 50) / 1e6));
            figures.push((p99, percentile(took, 99) / 1e6));
        }
        figures.push((Figure::Needless, f64::from(needless)));
        Ok(figures)
    }
}

/// Returns the times from the end of each holder to the next hold, and the number of holds that began
/// before the end.
fn took(ends: &[u64], got: &[u64]) -> (Vec<Duration>, u32) {
    let pairs = ends.iter().zip(got);
    let (after, before): (Vec<_>, Vec<_>) = pairs.partition(|(end, got)| got >= end);
    let took = after.into_iter().map(|(end, got)| clock::between(*end, *got)).collect();
    (took, u32::try_from(before.len()).unwrap_or(u32::MAX))
}

fn times(answer: &str) -> Result<Vec<u64>, Failure> {
    answer.split_whitespace().map(|time| Ok(time.parse()?)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_hold_before_the_end_of_the_first_is_needless() {
        let (took, needless) = took(&[100, 200, 300], &[150, 190, 400]);
        assert_eq!(took, [Duration::from_nanos(50), Duration::from_nanos(100)]);
        assert_eq!(needless, 1);
    }
}

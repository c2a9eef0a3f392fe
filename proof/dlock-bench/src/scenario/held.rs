//! The cost of holding many locks for a long time.

use std::{fs, time::Duration};

use super::{Counter, Profile, Scenario};
use crate::{
    Failure, clock,
    crew::{
        contestant::Contestant,
        team::{Figures, Team, numbers},
    },
    figures::Figure,
    own::Own,
    store::Store,
};

/// The default lease; a renewal is due after a third of it.
const LEASE: Duration = Duration::from_secs(30);
/// A lease with which a short run contains a renewal of each lock. It is not used for so many locks
/// that their number determines the cost.
const SHORT_LEASE: Duration = Duration::from_secs(6);
/// Runs with rounds shorter than this use the short lease.
const SHORT: Duration = Duration::from_millis(300);

/// The number of locks that are held before memory is measured: some for each task that acquires
/// them.
const FIRST: usize = 1000;

/// The number of locks.
pub(super) struct Held(pub(super) usize);

impl Held {
    fn lease(&self, lasts: Duration) -> Duration {
        if lasts < SHORT && !self.profile().is_long { SHORT_LEASE } else { LEASE }
    }
}

impl Scenario for Held {
    fn profile(&self) -> Profile {
        let about = format!("{} locks that are held and renewed", self.0);
        let profile = Profile::of_rate(format!("held-{}", self.0), about);
        Profile { main: Figure::ClientCore, is_long: self.0 > 10_000, ..profile }
    }

    fn baselines(&self, _store: Store) -> Result<Vec<Own>, &'static str> {
        Ok(Vec::new())
    }

    fn rules_out(&self, contestant: &Contestant) -> Option<&'static str> {
        match contestant {
            Contestant::Own(Own::Dlock, "") => None,
            Contestant::Own(..) => Some("its locks have no lease"),
            Contestant::Peer(_) => Some("what its renewals cost is not measured"),
        }
    }

    fn count(
        &self,
        team: &mut Team,
        counter: &mut Counter<'_>,
        lasts: Duration,
    ) -> Result<Figures, Failure> {
        let lease = self.lease(lasts);
        let pid = team.pid().ok_or("no process")?;
        // The memory that each task allocates for its first locks does not count for the others.
        team.ask(|_| format!("keep first {FIRST} {}", lease.as_millis()))?;
        let without = resident(pid)?;
        team.ask(|_| format!("keep held {} {}", self.0, lease.as_millis()))?;
        let with = resident(pid)?;
        let count = f64::from(u32::try_from(self.0)?);
        let mut figures = vec![(Figure::Bytes, (with - without) / count)];

        // The first renewal sorts the locks into batches.
        let between = lease / 3;
        std::thread::sleep(between + between / 2);
        let (looked, start) = (counter.look()?, clock::now());
        let before = team.spent();
        let lasts = lease * 2 / 3;
        let answers = team.ask(|_| format!("watch {}", lasts.as_millis()))?;
        let spent = team.spent().since(before);
        let took = clock::since(start).as_secs_f64();
        let commands = looked.until(counter.look()?);
        let [late, lost, looking] = numbers(&answers)?[..] else {
            return Err(format!("no figures of locks that are held: {answers:?}").into());
        };
        figures.push((Figure::Late, late + lost));
        // Checking each lock twice a second takes more time than renewing it.
        figures.push((Figure::ClientCore, 100.0 * (spent.clients - looking) / took));
        figures.push((Figure::ServerCore, 100.0 * spent.server / took));
        figures.push((Figure::CommandRate, commands / took));
        Ok(figures)
    }
}

/// Returns the bytes of resident memory of a process.
fn resident(pid: u32) -> Result<f64, Failure> {
    let status = fs::read_to_string(format!("/proc/{pid}/status"))?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
    let kib = line.and_then(|line| line.split_whitespace().next()).ok_or("no VmRSS")?;
    Ok(kib.parse::<f64>()? * 1024.0)
}

#[cfg(test)]
#[cfg(target_os = "linux")]
mod tests {
    use super::*;

    #[test]
    fn this_process_has_some_memory() {
        assert!(resident(std::process::id()).unwrap() > 4096.0);
        assert!(resident(u32::MAX).is_err());
    }
}

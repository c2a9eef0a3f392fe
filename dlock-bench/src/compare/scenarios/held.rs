//! Many locks that are held for long: what keeping them costs.

use std::{fs, time::Duration};

use super::{Counter, Scenario};
use crate::{
    Failure, clock,
    compare::{
        contestant::Contestant,
        figures::Figure,
        own::Own,
        store::Store,
        team::{Figures, Team, numbers},
    },
};

/// That of a lock which nobody has chosen one for; a renewal is due after a third of it.
const LEASE: Duration = Duration::from_secs(30);
/// So that a short run sees a renewal of each; not for so many that their number is what counts.
const SHORT_LEASE: Duration = Duration::from_secs(6);
/// A run that asks for shorter rounds has the short lease.
const SHORT: Duration = Duration::from_millis(300);

/// How many are there before memory is looked at: some for each task that takes them.
const FIRST: usize = 1000;

/// So many.
pub(super) struct Held(pub(super) usize);

impl Held {
    fn lease(&self, lasts: Duration) -> Duration {
        if lasts < SHORT && !self.is_long() { SHORT_LEASE } else { LEASE }
    }
}

impl Scenario for Held {
    fn name(&self) -> String {
        format!("held-{}", self.0)
    }

    fn about(&self) -> String {
        format!("{} locks that are held and renewed", self.0)
    }

    fn main(&self) -> Figure {
        Figure::ClientCore
    }

    fn is_long(&self) -> bool {
        self.0 > 10_000
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

    /// Everything is in [`Self::count`]: it is one long round.
    fn round(&self, _team: &mut Team, _lasts: Duration) -> Result<Figures, Failure> {
        Ok(Vec::new())
    }

    fn count(
        &self,
        team: &mut Team,
        counter: &mut Counter<'_>,
        lasts: Duration,
    ) -> Result<Figures, Failure> {
        let lease = self.lease(lasts);
        let pid = team.pid().ok_or("no process")?;
        // What the first locks of each task bring in is not each one's.
        team.ask(|_| format!("keep first {FIRST} {}", lease.as_millis()))?;
        let without = resident(pid)?;
        team.ask(|_| format!("keep held {} {}", self.0, lease.as_millis()))?;
        let with = resident(pid)?;
        let count = f64::from(u32::try_from(self.0)?);
        let mut figures = vec![(Figure::Bytes, (with - without) / count)];

        // The first renewal sorts them into batches.
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
        // To look at each lock twice a second takes longer than to keep it.
        figures.push((Figure::ClientCore, 100.0 * (spent.clients - looking) / took));
        figures.push((Figure::ServerCore, 100.0 * spent.server / took));
        figures.push((Figure::CommandRate, commands / took));
        Ok(figures)
    }
}

/// The bytes of memory that a process has.
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

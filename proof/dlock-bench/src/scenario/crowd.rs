//! Clients in several processes that want one lock.
//!
//! Each process is like an application's: its tasks share the connections. A baseline is a part
//! that every hand-off needs: a message in a ring of the processes, or a row that one client
//! writes.

use std::time::Duration;

use super::{Counter, Profile, Scenario};
use crate::{
    Failure,
    crew::{
        contestant::Contestant,
        team::{Figures, Team},
    },
    figures::{Figure, median, percentile},
    own::Own,
    store::Store,
};

const PROCESSES: usize = 8;
/// The minimum number of turns per client for its share to be meaningful.
const TURNS: usize = 4;
/// A short run that makes the server's processes report their counters.
const SHORT: Duration = Duration::from_millis(100);

/// This number of clients.
pub(super) struct Crowd(pub(super) usize);

impl Crowd {
    fn tasks(&self) -> usize {
        self.0 / PROCESSES
    }

    /// The time in which each client gets its turns.
    fn lasts(&self, lasts: Duration) -> Duration {
        if self.0 > 64 { lasts * 3 } else { lasts }
    }
}

impl Scenario for Crowd {
    fn profile(&self) -> Profile {
        let about = format!("{} clients in {PROCESSES} processes that want one lock", self.0);
        Profile::of_rate(format!("crowd-{}", self.0), about)
    }

    fn processes(&self, _store: Store, contestant: &Contestant) -> usize {
        if contestant.own() == Some(Own::Row) { 1 } else { PROCESSES }
    }

    fn baselines(&self, store: Store) -> Result<Vec<Own>, &'static str> {
        match store {
            Store::Memory => Err("it reaches one process alone"),
            Store::Postgres => Ok(vec![Own::Row, Own::Push]),
            store if store.is_sql() => Ok(vec![Own::Row]),
            _ => Ok(vec![Own::Push]),
        }
    }

    fn rules_out(&self, contestant: &Contestant) -> Option<&'static str> {
        let jvms = contestant.is_slow_to_warm() && self.0 > 64;
        jvms.then_some("its 512 threads would compete for the processors rather than for the lock")
    }

    fn round(&self, team: &mut Team, lasts: Duration) -> Result<Figures, Failure> {
        match team.contestant.own() {
            Some(Own::Row) => return team.one_task(lasts, "uncontended row"),
            Some(Own::Push) => {
                let took = team.ring(Duration::ZERO, lasts)?;
                let ways = f64::from(u32::try_from(took.len())?);
                let rate = ways / lasts.as_secs_f64();
                return Ok(vec![(Figure::Rate, rate), (Figure::P50, median(took))]);
            }
            _ => {}
        }
        let (name, lasts) = (team.fresh_name("crowd"), self.lasts(lasts));
        let contest = team.contend(&name, self.tasks(), Duration::ZERO, lasts)?;
        let holds = &contest.holds;
        let mut figures = vec![
            (Figure::Rate, holds.hand_offs() / lasts.as_secs_f64()),
            (Figure::P50, median(holds.crossings())),
            (Figure::P99, percentile(holds.crossings(), 99)),
            (Figure::Fairness, holds.evenness(TURNS).unwrap_or(f64::NAN)),
        ];
        figures.extend(contest.spent.each(contest.all));
        Ok(figures)
    }

    fn count(
        &self,
        team: &mut Team,
        counter: &mut Counter<'_>,
        lasts: Duration,
    ) -> Result<Figures, Failure> {
        match team.contestant.own() {
            Some(Own::Row | Own::Push) => return Ok(Vec::new()),
            // Some connections of a large pool may stay idle, and then their counters are not
            // reported.
            None if counter.server.store == Store::Postgres => return Ok(Vec::new()),
            _ => {}
        }
        let tasks = self.tasks();
        let mut run = |lasts| {
            let name = team.fresh_name("crowd");
            Ok::<_, Failure>(team.contend(&name, tasks, Duration::ZERO, lasts)?.all)
        };
        if counter.settle() {
            run(SHORT)?;
        }
        let before = counter.look()?;
        let mut hand_offs = run(self.lasts(lasts))?;
        if counter.settle() {
            hand_offs += run(SHORT)?;
        }
        let commands = before.until(counter.look()?);
        Ok(vec![(Figure::Commands, commands / hand_offs)])
    }
}

/// The number of waiters of a large crowd, and the limit for all of them to get the lock.
const WAITERS: usize = 10_000;
const LIMIT: Duration = Duration::from_secs(60);

/// Very many clients that want one lock, once each.
pub(super) struct LargeCrowd;

impl Scenario for LargeCrowd {
    fn profile(&self) -> Profile {
        let about = format!("{WAITERS} clients in {PROCESSES} processes that want one lock once");
        Profile { is_long: true, ..Profile::of_rate("large-crowd", about) }
    }

    fn processes(&self, _store: Store, _contestant: &Contestant) -> usize {
        PROCESSES
    }

    fn baselines(&self, store: Store) -> Result<Vec<Own>, &'static str> {
        match store {
            Store::Memory => Err("it reaches one process alone"),
            _ => Ok(Vec::new()),
        }
    }

    fn rules_out(&self, contestant: &Contestant) -> Option<&'static str> {
        match contestant {
            Contestant::Peer(peer) if peer.has_threads() => {
                Some("its threads would compete for the processors rather than for the lock")
            }
            Contestant::Peer(peer) if !peer.fair => Some("it has no queue"),
            _ => None,
        }
    }

    fn count(
        &self,
        team: &mut Team,
        _counter: &mut Counter<'_>,
        _lasts: Duration,
    ) -> Result<Figures, Failure> {
        let name = team.fresh_name("large-crowd");
        let contest = team.queue(&name, WAITERS / PROCESSES, LIMIT)?;
        let (holds, all) = (&contest.holds, f64::from(u32::try_from(WAITERS)?));
        let mut figures = vec![
            (Figure::Rate, holds.hand_offs() / holds.took().as_secs_f64()),
            (Figure::P50, median(holds.crossings())),
            (Figure::P99, percentile(holds.crossings(), 99)),
            (Figure::Unserved, all - contest.all),
        ];
        figures.extend(contest.spent.each(contest.all));
        Ok(figures)
    }
}

/// The time for which each holds the lock. So the other one waits for it by then.
const HELD: Duration = Duration::from_millis(2);

/// Two processes that want one lock: the time from the release in one process to the grant in the
/// other.
pub(super) struct HandOff(Duration);

impl HandOff {
    /// Returns the scenario over a network with this delay, for which each holds the lock longer.
    pub(super) fn over(delay: Duration) -> Self {
        Self(HELD + 8 * delay)
    }
}

impl Default for HandOff {
    fn default() -> Self {
        Self(HELD)
    }
}

impl Scenario for HandOff {
    fn profile(&self) -> Profile {
        Profile::of_latency(
            "hand-off",
            "from the release in one process to the next hold in another",
        )
    }

    fn processes(&self, _store: Store, contestant: &Contestant) -> usize {
        if contestant.own() == Some(Own::Row) { 1 } else { 2 }
    }

    fn baselines(&self, store: Store) -> Result<Vec<Own>, &'static str> {
        match store {
            Store::Memory => Err("it reaches one process alone"),
            store if store.pushes() => Ok(vec![Own::Push]),
            _ => Ok(vec![Own::Row]),
        }
    }

    fn round(&self, team: &mut Team, lasts: Duration) -> Result<Figures, Failure> {
        let took = match team.contestant.own() {
            Some(Own::Row) => return team.one_task(lasts, "uncontended row"),
            Some(Own::Push) => team.ring(self.0, lasts)?,
            _ => {
                let name = team.fresh_name("hand-off");
                team.contend(&name, 1, self.0, lasts)?.holds.crossings()
            }
        };
        // A round without a hand-off has no figure.
        Ok(vec![(Figure::P99, percentile(took.clone(), 99)), (Figure::P50, median(took))])
    }
}

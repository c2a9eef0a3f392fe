//! Many tasks: each with a separate name, all with one lock, or all with a read-write lock.

use std::time::Duration;

use super::{Profile, Scenario, bare};
use crate::{
    Failure,
    crew::{
        contestant::Contestant,
        team::{Figures, Team},
    },
    figures::Figure,
    own::Own,
    store::Store,
};

/// This number of tasks of one process, each with a separate name.
pub(super) struct Many(pub(super) usize);

impl Many {
    /// The time in which each task gets its turns.
    fn lasts(&self, lasts: Duration) -> Duration {
        if self.0 > 64 { lasts * 3 } else { lasts }
    }
}

impl Scenario for Many {
    fn profile(&self) -> Profile {
        let about = format!("{} tasks of one process, a name each", self.0);
        Profile::of_rate(format!("many-{}", self.0), about)
    }

    fn baselines(&self, store: Store) -> Result<Vec<Own>, &'static str> {
        Ok(match store {
            Store::Redis => vec![Own::Same, Own::Bare],
            store => vec![bare(store)],
        })
    }

    fn round(&self, team: &mut Team, lasts: Duration) -> Result<Figures, Failure> {
        let mut figures = team.counts(self.lasts(lasts), |_| format!("spread many {}", self.0))?;
        // The tasks do not compete with each other.
        figures.retain(|(figure, _)| *figure != Figure::Fairness);
        Ok(figures)
    }
}

const TASKS: usize = 64;

/// Many tasks of one process that want one lock.
pub(super) struct Local;

impl Scenario for Local {
    fn profile(&self) -> Profile {
        Profile::of_rate("local", format!("{TASKS} tasks of one process that want one lock"))
    }

    fn baselines(&self, _store: Store) -> Result<Vec<Own>, &'static str> {
        Ok(vec![Own::Tokio])
    }

    fn round(&self, team: &mut Team, lasts: Duration) -> Result<Figures, Failure> {
        let name = team.fresh_name("local");
        team.counts(lasts, |_| format!("local {name} {TASKS}"))
    }
}

const PROCESSES: usize = 4;
const TASKS_OF_EACH: usize = 16;
/// The number of reads in 100 cycles.
const READS: usize = 95;

/// A read-write lock that is mostly read-locked, by tasks of several processes; for memory, of one
/// process.
///
/// The baseline is the same number of tasks, each with a lock of the bare driver, so that no task
/// waits.
pub(super) struct ReadMostly;

impl Scenario for ReadMostly {
    fn profile(&self) -> Profile {
        let about = format!(
            "one read-write lock, {READS} % reads, {TASKS_OF_EACH} tasks of each of {PROCESSES} processes"
        );
        Profile::of_rate("rw", about)
    }

    fn processes(&self, store: Store, _contestant: &Contestant) -> usize {
        if store == Store::Memory { 1 } else { PROCESSES }
    }

    fn baselines(&self, store: Store) -> Result<Vec<Own>, &'static str> {
        Ok(vec![bare(store)])
    }

    fn round(&self, team: &mut Team, lasts: Duration) -> Result<Figures, Failure> {
        let name = team.fresh_name("rw");
        match team.contestant.own() {
            Some(Own::Bare) => {
                team.counts(lasts, |place| format!("spread rw-{place} {TASKS_OF_EACH}"))
            }
            _ => team.counts(lasts, |_| format!("rw {name} {TASKS_OF_EACH} {READS}")),
        }
    }
}

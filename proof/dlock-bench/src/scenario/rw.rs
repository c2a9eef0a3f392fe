//! A read-write lock that is mostly read-locked, by tasks of several processes; for memory, of one
//! process.
//!
//! The baseline is the same number of tasks, each with a lock of the bare driver, so that no task
//! waits.

use std::time::Duration;

use super::{Scenario, bare};
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

const PROCESSES: usize = 4;
const TASKS: usize = 16;
/// The number of reads in 100 cycles.
const READS: usize = 95;

pub(super) struct ReadMostly;

impl Scenario for ReadMostly {
    fn name(&self) -> String {
        "rw".to_owned()
    }

    fn about(&self) -> String {
        format!(
            "one read-write lock, {READS} % reads, {TASKS} tasks of each of {PROCESSES} processes"
        )
    }

    fn main(&self) -> Figure {
        Figure::Rate
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
            Some(Own::Bare) => team.counts(lasts, |place| format!("spread rw-{place} {TASKS}")),
            _ => team.counts(lasts, |_| format!("rw {name} {TASKS} {READS}")),
        }
    }
}

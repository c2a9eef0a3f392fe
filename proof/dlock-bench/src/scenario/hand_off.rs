//! Two processes that want one lock: the time from the release in one process to the grant in the
//! other.

use std::time::Duration;

use super::Scenario;
use crate::{
    Failure,
    crew::{
        contestant::Contestant,
        team::{Figures, Team},
    },
    figures::Figure,
    own::Own,
    stats::{median, percentile},
    store::Store,
};

/// The time for which each holds the lock. So the other one waits for it by then.
const HELD: Duration = Duration::from_millis(2);

pub(super) struct HandOff;

impl Scenario for HandOff {
    fn name(&self) -> String {
        "hand-off".to_owned()
    }

    fn about(&self) -> String {
        "from the release in one process to the next hold in another".to_owned()
    }

    fn main(&self) -> Figure {
        Figure::P50
    }

    fn processes(&self, _store: Store, contestant: &Contestant) -> usize {
        if contestant.own() == Some(Own::Row) { 1 } else { 2 }
    }

    fn is_awake(&self) -> bool {
        true
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
            Some(Own::Push) => team.ring(HELD, lasts)?,
            _ => {
                let name = team.fresh_name("hand-off");
                team.contend(&name, 1, HELD, lasts)?.holds.crossings()
            }
        };
        // A round without a hand-off has no figure.
        Ok(vec![(Figure::P99, percentile(took.clone(), 99)), (Figure::P50, median(took))])
    }
}

//! One task with locks that no other client wants.

use std::time::Duration;

use super::{Profile, Scenario, bare};
use crate::{
    Failure,
    crew::team::{Figures, Team},
    own::Own,
    store::Store,
};

/// One name.
pub(super) struct Uncontended;

impl Scenario for Uncontended {
    fn profile(&self) -> Profile {
        Profile::of_latency("uncontended", "a lock that nobody else wants, taken and given back")
    }

    fn baselines(&self, store: Store) -> Result<Vec<Own>, &'static str> {
        Ok(match store {
            Store::Redis => vec![Own::Same, Own::Bare],
            store if store.is_sql() => vec![Own::Same, Own::Bare, Own::Row],
            store => vec![bare(store)],
        })
    }

    fn round(&self, team: &mut Team, lasts: Duration) -> Result<Figures, Failure> {
        team.one_task(lasts, "uncontended lock")
    }
}

const NAMES: usize = 8;

/// Several names that are acquired together.
pub(super) struct Several;

impl Scenario for Several {
    fn profile(&self) -> Profile {
        Profile::of_latency(
            "multi",
            format!("{NAMES} names taken together, that nobody else wants"),
        )
    }

    fn baselines(&self, store: Store) -> Result<Vec<Own>, &'static str> {
        Ok(vec![bare(store)])
    }

    fn round(&self, team: &mut Team, lasts: Duration) -> Result<Figures, Failure> {
        team.one_task(lasts, &format!("multi {NAMES} multi"))
    }
}

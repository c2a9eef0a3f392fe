//! One task with locks that no other client wants.

use std::time::Duration;

use super::{Scenario, bare};
use crate::{
    Failure,
    crew::team::{Figures, Team},
    figures::Figure,
    own::Own,
    store::Store,
};

/// One name.
pub(super) struct Uncontended;

impl Scenario for Uncontended {
    fn name(&self) -> String {
        "uncontended".to_owned()
    }

    fn about(&self) -> String {
        "a lock that nobody else wants, taken and given back".to_owned()
    }

    fn main(&self) -> Figure {
        Figure::P50
    }

    fn is_awake(&self) -> bool {
        true
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
    fn name(&self) -> String {
        "multi".to_owned()
    }

    fn about(&self) -> String {
        format!("{NAMES} names taken together, that nobody else wants")
    }

    fn main(&self) -> Figure {
        Figure::P50
    }

    fn is_awake(&self) -> bool {
        true
    }

    fn baselines(&self, store: Store) -> Result<Vec<Own>, &'static str> {
        Ok(vec![bare(store)])
    }

    fn round(&self, team: &mut Team, lasts: Duration) -> Result<Figures, Failure> {
        team.one_task(lasts, &format!("multi {NAMES} multi"))
    }
}

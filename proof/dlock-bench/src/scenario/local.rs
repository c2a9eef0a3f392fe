//! Many tasks of one process that want one lock.

use std::time::Duration;

use super::Scenario;
use crate::{
    Failure,
    crew::team::{Figures, Team},
    figures::Figure,
    own::Own,
    store::Store,
};

const TASKS: usize = 64;

pub(super) struct Local;

impl Scenario for Local {
    fn name(&self) -> String {
        "local".to_owned()
    }

    fn about(&self) -> String {
        format!("{TASKS} tasks of one process that want one lock")
    }

    fn main(&self) -> Figure {
        Figure::Rate
    }

    fn baselines(&self, _store: Store) -> Result<Vec<Own>, &'static str> {
        Ok(vec![Own::Tokio])
    }

    fn round(&self, team: &mut Team, lasts: Duration) -> Result<Figures, Failure> {
        let name = team.fresh_name("local");
        team.counts(lasts, |_| format!("local {name} {TASKS}"))
    }
}

//! Several names that are acquired together.

use std::time::Duration;

use super::{Scenario, bare};
use crate::{
    Failure,
    crew::team::{Figures, Team},
    figures::Figure,
    own::Own,
    store::Store,
};

const NAMES: usize = 8;

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

//! Many tasks of one process, each with a separate name.

use std::time::Duration;

use super::{Scenario, bare};
use crate::{
    Failure,
    crew::team::{Figures, Team},
    figures::Figure,
    own::Own,
    store::Store,
};

/// The number of tasks.
pub(super) struct Many(pub(super) usize);

impl Many {
    /// The time in which each task gets its turns.
    fn lasts(&self, lasts: Duration) -> Duration {
        if self.0 > 64 { lasts * 3 } else { lasts }
    }
}

impl Scenario for Many {
    fn name(&self) -> String {
        format!("many-{}", self.0)
    }

    fn about(&self) -> String {
        format!("{} tasks of one process, a name each", self.0)
    }

    fn main(&self) -> Figure {
        Figure::Rate
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

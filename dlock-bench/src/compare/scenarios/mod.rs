//! What the contestants have to do.

mod crowd;
mod hand_over;
mod held;
mod local;
mod many;
mod multi;
mod quiet;
mod rw;

use std::time::Duration;

use super::{
    contestant::Contestant,
    figures::Figure,
    own::Own,
    store::{Server, Store},
    team::{Figures, Team},
};
use crate::Failure;

/// Something that they have to do.
pub(crate) trait Scenario {
    /// As it is called on the command line.
    fn name(&self) -> String;

    /// In a few words.
    fn about(&self) -> String;

    /// The figure that says most.
    fn main(&self) -> Figure;

    /// How many processes a contestant has.
    fn processes(&self, _store: Store, _contestant: &Contestant) -> usize {
        1
    }

    /// Whether the processors are kept awake, as it is about how long something takes.
    fn is_awake(&self) -> bool {
        false
    }

    /// Whether it takes too long for a quick run.
    fn is_long(&self) -> bool {
        false
    }

    /// Floors that are measured; the first is the one that ratios are to. The error says why it
    /// makes no sense over a store.
    fn floors(&self, store: Store) -> Result<Vec<Own>, &'static str>;

    /// Why a contestant can't take part.
    fn rules_out(&self, _contestant: &Contestant) -> Option<&'static str> {
        None
    }

    /// One round of a contestant.
    fn round(&self, team: &mut Team, lasts: Duration) -> Result<Figures, Failure>;

    /// What is counted once after all rounds.
    fn count(
        &self,
        _team: &mut Team,
        _counter: &mut Counter<'_>,
        _lasts: Duration,
    ) -> Result<Figures, Failure> {
        Ok(Vec::new())
    }
}

/// Who looks at the server's own counters.
pub(crate) struct Counter<'a> {
    pub(crate) server: &'a mut Server,
    pub(crate) runtime: &'a tokio::runtime::Runtime,
}

impl Counter<'_> {
    /// What it has counted.
    pub(crate) fn look(&mut self) -> Result<super::store::Look, Failure> {
        self.runtime.block_on(self.server.look())
    }

    /// Waits until whatever its clients do next makes them tell what they have counted; whether
    /// they have to be made to.
    pub(crate) fn settle(&mut self) -> bool {
        self.runtime.block_on(self.server.settle())
    }
}

/// All scenarios.
pub(crate) fn all() -> Vec<Box<dyn Scenario>> {
    vec![
        Box::new(quiet::Quiet),
        Box::new(many::Many(64)),
        Box::new(many::Many(512)),
        Box::new(local::Local),
        Box::new(crowd::Crowd(8)),
        Box::new(crowd::Crowd(64)),
        Box::new(crowd::Crowd(512)),
        Box::new(hand_over::HandOver),
        Box::new(held::Held(10_000)),
        Box::new(held::Held(100_000)),
        Box::new(rw::ReadMostly),
        Box::new(multi::Several),
    ]
}

/// The bare driver, or tokio where there is none.
fn bare(store: Store) -> Own {
    if store == Store::Memory { Own::Tokio } else { Own::Bare }
}

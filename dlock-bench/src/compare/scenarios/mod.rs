//! What the contestants have to do.

mod crowd;
mod hand_over;
mod held;
mod local;
mod long_life;
mod many;
mod multi;
mod one_time_names;
mod quiet;
mod rw;

use std::time::Duration;

use super::{
    contestant::Contestant,
    figures::Figure,
    options::Options,
    own::Own,
    store::{Server, Store, Sweeps},
    team::{Figures, Team},
};
use crate::{Failure, clock};

/// The pause between two looks at what is left.
const PAUSE: Duration = Duration::from_millis(50);

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

    /// Baselines that are measured; the first is the one that ratios are to. The error says why it
    /// makes no sense over a store.
    fn baselines(&self, store: Store) -> Result<Vec<Own>, &'static str>;

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
    pub(crate) options: &'a Options,
}

impl Counter<'_> {
    /// Starts an empty server of the same store, for counts that other locks would disturb.
    pub(crate) fn apart(&self, sweeps: Sweeps) -> Result<Server, Failure> {
        self.runtime.block_on(Server::start(self.server.store, self.options.disk, sweeps))
    }

    /// Looks at another server.
    pub(crate) fn at<'b>(&'b self, server: &'b mut Server) -> Counter<'b> {
        Counter { server, runtime: self.runtime, options: self.options }
    }

    /// Starts so many processes of a contestant over the server.
    pub(crate) fn team(&self, contestant: Contestant, size: usize) -> Result<Team, Failure> {
        Team::start(contestant, self.server, size, self.options.flavour)
    }

    /// The keys, rows or nodes that free locks have left in it.
    pub(crate) fn entries(&mut self) -> Result<f64, Failure> {
        self.runtime.block_on(self.server.entries())
    }

    /// The bytes that these take.
    pub(crate) fn bytes(&mut self) -> Result<f64, Failure> {
        self.runtime.block_on(self.server.bytes())
    }

    /// Waits until free locks have nothing left in it. Returns what is still there at the end, which
    /// is not zero when that takes too long, and the time that it took.
    pub(crate) fn until_empty(&mut self, patience: Duration) -> Result<(f64, Duration), Failure> {
        let start = clock::now();
        loop {
            let (left, took) = (self.entries()?, clock::since(start));
            if left == 0.0 || took > patience {
                return Ok((left, took));
            }
            std::thread::sleep(PAUSE);
        }
    }

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
        Box::new(long_life::LongLife),
        Box::new(one_time_names::OneTimeNames),
    ]
}

/// Why a contestant can't take part in a scenario that counts what dlock's locks leave in a store.
fn leaves_uncounted(contestant: &Contestant) -> Option<&'static str> {
    match contestant {
        Contestant::Peer(_) => Some("what its locks leave is not measured"),
        Contestant::Own(Own::Dlock, option) if !option.is_empty() => {
            Some("it has another table, which is not looked at")
        }
        Contestant::Own(..) => None,
    }
}

/// The bare driver, or tokio where there is none.
fn bare(store: Store) -> Own {
    if store == Store::Memory { Own::Tokio } else { Own::Bare }
}

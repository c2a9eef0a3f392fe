//! The scenarios.

mod crowd;
mod held;
mod long_life;
mod one_time_names;
mod tasks;
mod uncontended;

use std::time::Duration;

use crate::{
    Failure, clock,
    crew::{
        contestant::Contestant,
        team::{Figures, Team},
    },
    figures::Figure,
    own::{Flavour, Own},
    store::{Server, Setup, Store, Sweeps},
};

/// The pause between two checks of what is left.
const PAUSE: Duration = Duration::from_millis(50);

/// A scenario.
pub(crate) trait Scenario {
    /// Returns the name on the command line.
    fn name(&self) -> String;

    /// Returns a short description.
    fn about(&self) -> String;

    /// Returns the most important quantity.
    fn main(&self) -> Figure;

    /// Returns the number of processes of a contestant.
    fn processes(&self, _store: Store, _contestant: &Contestant) -> usize {
        1
    }

    /// Whether the processors are kept awake, because the scenario measures latencies.
    fn is_awake(&self) -> bool {
        false
    }

    /// Whether the scenario takes too long for a quick run.
    fn is_long(&self) -> bool {
        false
    }

    /// Returns the baselines. The first is the one for ratios. The error is the reason why the
    /// scenario makes no sense for a store.
    fn baselines(&self, store: Store) -> Result<Vec<Own>, &'static str>;

    /// Returns the reason why a contestant can't take part, if there is one.
    fn rules_out(&self, _contestant: &Contestant) -> Option<&'static str> {
        None
    }

    /// Runs one round of a contestant.
    fn round(&self, team: &mut Team, lasts: Duration) -> Result<Figures, Failure>;

    /// Runs the counts that are done once after all rounds.
    fn count(
        &self,
        _team: &mut Team,
        _counter: &mut Counter<'_>,
        _lasts: Duration,
    ) -> Result<Figures, Failure> {
        Ok(Vec::new())
    }
}

/// Access to the server's own counters.
pub(crate) struct Counter<'a> {
    pub(crate) server: &'a mut Server,
    pub(crate) runtime: &'a tokio::runtime::Runtime,
    pub(crate) setup: Setup,
    pub(crate) flavour: Flavour,
}

impl Counter<'_> {
    /// Starts an empty server of the same store, for counts that other locks would disturb.
    pub(crate) fn apart(&self, sweeps: Sweeps) -> Result<Server, Failure> {
        self.runtime.block_on(Server::start(self.server.store, self.setup, sweeps))
    }

    /// Returns a counter of another server.
    pub(crate) fn at<'b>(&'b self, server: &'b mut Server) -> Counter<'b> {
        Counter { server, runtime: self.runtime, setup: self.setup, flavour: self.flavour }
    }

    /// Starts `size` processes of a contestant on the server.
    pub(crate) fn team(&self, contestant: Contestant, size: usize) -> Result<Team, Failure> {
        Team::start(contestant, self.server, size, self.flavour)
    }

    /// Returns the number of keys, rows or nodes that free locks have left on the server.
    pub(crate) fn entries(&mut self) -> Result<f64, Failure> {
        self.runtime.block_on(self.server.entries())
    }

    /// Returns their size in bytes.
    pub(crate) fn bytes(&mut self) -> Result<f64, Failure> {
        self.runtime.block_on(self.server.bytes())
    }

    /// Waits until free locks have left nothing on the server. Returns the number of entries that
    /// remain at the end, which is not zero if this takes too long, and the time that it took.
    pub(crate) fn until_empty(&mut self, limit: Duration) -> Result<(f64, Duration), Failure> {
        let start = clock::now();
        loop {
            let (left, took) = (self.entries()?, clock::since(start));
            if left == 0.0 || took > limit {
                return Ok((left, took));
            }
            std::thread::sleep(PAUSE);
        }
    }

    /// Returns the server's counters.
    pub(crate) fn look(&mut self) -> Result<crate::store::Look, Failure> {
        self.runtime.block_on(self.server.look())
    }

    /// Waits until the next action of a client makes the server report all its counts. Returns
    /// whether such an action is needed.
    pub(crate) fn settle(&mut self) -> bool {
        self.runtime.block_on(self.server.settle())
    }
}

/// Returns all scenarios.
pub(crate) fn all() -> Vec<Box<dyn Scenario>> {
    vec![
        Box::new(uncontended::Uncontended),
        Box::new(tasks::Many(64)),
        Box::new(tasks::Many(512)),
        Box::new(tasks::Local),
        Box::new(crowd::Crowd(8)),
        Box::new(crowd::Crowd(64)),
        Box::new(crowd::Crowd(512)),
        Box::new(crowd::HandOff),
        Box::new(held::Held(10_000)),
        Box::new(held::Held(100_000)),
        Box::new(tasks::ReadMostly),
        Box::new(uncontended::Several),
        Box::new(long_life::LongLife),
        Box::new(one_time_names::OneTimeNames),
    ]
}

/// Returns the reason why a contestant can't take part in a scenario that counts what dlock's locks
/// leave in a store.
fn leaves_uncounted(contestant: &Contestant) -> Option<&'static str> {
    match contestant {
        Contestant::Peer(_) => Some("what its locks leave is not measured"),
        Contestant::Own(Own::Dlock, option) if !option.is_empty() => {
            Some("it has another table, which is not looked at")
        }
        Contestant::Own(..) => None,
    }
}

/// Returns the bare driver, or tokio for a store without one.
fn bare(store: Store) -> Own {
    if store == Store::Memory { Own::Tokio } else { Own::Bare }
}

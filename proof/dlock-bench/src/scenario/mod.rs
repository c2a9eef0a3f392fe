//! The scenarios.

mod crowd;
mod held;
mod long_life;
mod network;
mod one_time_names;
mod takeover;
mod tasks;
mod uncontended;

use std::time::Duration;

use crate::{
    Failure, clock,
    crew::{
        contestant::Contestant,
        relays::Relays,
        team::{Figures, Team},
    },
    figures::Figure,
    own::{Flavour, Own},
    store::{Server, Setup, Store, Sweeps},
};

/// The pause between two checks of what is left.
const PAUSE: Duration = Duration::from_millis(50);

/// The name and the purpose of a scenario.
pub(crate) struct Profile {
    /// The name on the command line.
    pub(crate) name: String,
    /// A short description.
    pub(crate) about: String,
    /// The most important quantity.
    pub(crate) main: Figure,
    /// Whether the processors are kept awake, because the scenario measures latencies.
    pub(crate) is_awake: bool,
    /// Whether the scenario takes too long for a quick run.
    pub(crate) is_long: bool,
}

impl Profile {
    fn of_rate(name: impl Into<String>, about: impl Into<String>) -> Self {
        let (name, about) = (name.into(), about.into());
        Self { name, about, main: Figure::Rate, is_awake: false, is_long: false }
    }

    fn of_latency(name: impl Into<String>, about: impl Into<String>) -> Self {
        Self { main: Figure::P50, is_awake: true, ..Self::of_rate(name, about) }
    }
}

/// A scenario.
pub(crate) trait Scenario {
    /// Returns its name and its purpose.
    fn profile(&self) -> Profile;

    /// Returns the number of processes of a contestant.
    fn processes(&self, _store: Store, _contestant: &Contestant) -> usize {
        1
    }

    /// Returns the baselines. The first is the one for ratios. The error is the reason why the
    /// scenario makes no sense for a store.
    fn baselines(&self, store: Store) -> Result<Vec<Own>, &'static str>;

    /// Returns the reason why a contestant can't take part, if there is one.
    fn rules_out(&self, _contestant: &Contestant) -> Option<&'static str> {
        None
    }

    /// Returns the time that bytes need from a client to the server or back, beside that of the
    /// loopback interface.
    fn delay(&self) -> Option<Duration> {
        None
    }

    /// Runs one round of a contestant. A scenario without rounds does all its work in
    /// [`count`](Self::count).
    fn round(&self, _team: &mut Team, _lasts: Duration) -> Result<Figures, Failure> {
        Ok(Vec::new())
    }

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
        Team::start(contestant, self.server, size, self.flavour, None)
    }

    /// Starts `size` processes of a contestant, each over a relay to the server.
    pub(crate) fn relayed(&self, contestant: Contestant, size: usize) -> Result<Team, Failure> {
        let relays = Relays::start(self.server, size, Duration::ZERO)?;
        Team::start(contestant, self.server, size, self.flavour, Some(relays))
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
    let mut all: Vec<Box<dyn Scenario>> = vec![
        Box::new(uncontended::Uncontended),
        Box::new(tasks::Many(64)),
        Box::new(tasks::Many(512)),
        Box::new(tasks::Local),
        Box::new(crowd::Crowd(8)),
        Box::new(crowd::Crowd(64)),
        Box::new(crowd::Crowd(512)),
        Box::new(crowd::LargeCrowd),
        Box::new(crowd::HandOff::default()),
        Box::new(held::Held(10_000)),
        Box::new(held::Held(100_000)),
        Box::new(tasks::ReadMostly),
        Box::new(uncontended::Several),
        Box::new(long_life::LongLife),
        Box::new(one_time_names::OneTimeNames),
    ];
    all.extend(network::all());
    all.extend(takeover::all());
    all
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

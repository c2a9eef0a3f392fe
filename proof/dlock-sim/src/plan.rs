//! What a seed draws: the load, the network, the clocks, and the faults with their times.
//!
//! Each seed draws a mix of its own, since a fault of timing needs a region of its own: a belief that
//! counts from the answer is wrong only where answers are slower than the margin. The faults are drawn
//! before the run, so that a run can leave some of them out without changing the others.

use std::time::Duration;

use dlock_soak::{Kind as LockKind, Load};

use crate::{
    faults::{Fault, Kind, Micros, What, rate},
    machine::messages::MessageFaults,
    mutant::Mutant,
    network::Latency,
    random::Rng,
};

/// The longest time by which steps of the server's clock prolong a lease, in microseconds.
const BACK: i64 = 3_000_000;
/// The longest time in which a piece arrives that was slow.
const SLOWEST: Micros = 1_500_000;

/// The store of a world.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum StoreKind {
    Redis,
    /// The lock machine of the core, behind single messages.
    Machine,
}

impl StoreKind {
    /// Returns the store with this name.
    pub(crate) fn named(name: &str) -> Option<Self> {
        match name {
            "redis" => Some(Self::Redis),
            "machine" => Some(Self::Machine),
            _ => None,
        }
    }

    fn can_have(self, kind: Kind) -> bool {
        // The machine has neither connections nor scripts.
        self == Self::Redis || !matches!(kind, Kind::Reset | Kind::CacheForgotten)
    }
}

/// A world before it begins.
#[derive(Clone, Debug)]
pub(crate) struct Plan {
    pub(crate) seed: u64,
    pub(crate) store: StoreKind,
    pub(crate) mutant: Option<Mutant>,
    pub(crate) messages: MessageFaults,
    pub(crate) url: String,
    pub(crate) load: Load,
    pub(crate) processes: usize,
    pub(crate) latency: Latency,
    /// Whether the store's data are on its disk, and a restart guard waits if they are lost.
    pub(crate) guarded: bool,
    pub(crate) response_timeout: Micros,
    /// The rates of the clocks of processes, in turn.
    pub(crate) rates: Vec<i64>,
    /// The rate of the store's clock at the beginning.
    pub(crate) store_rate: i64,
    pub(crate) storm: Micros,
    pub(crate) faults: Vec<Fault>,
}

impl Plan {
    /// Draws the world of this seed, with this store or any.
    pub(crate) fn of(seed: u64, store: Option<StoreKind>) -> Self {
        let any = Rng::new(seed, "store").pick(&[StoreKind::Redis, StoreKind::Machine]);
        let store = store.unwrap_or(any);
        let messages = match store {
            StoreKind::Redis => MessageFaults::default(),
            StoreKind::Machine => MessageFaults::of(seed),
        };
        let mut rng = Rng::new(seed, "plan");
        let milliseconds = |of: &[u64]| -> Vec<Duration> {
            of.iter().map(|ms| Duration::from_millis(*ms)).collect()
        };
        let leases = milliseconds(rng.pick(&[
            &[300, 400, 500][..],
            &[100, 1000],
            &[2000],
            &[5000, 1000],
            &[10_000],
        ]));
        let longest = leases.iter().copied().max().unwrap_or_default();
        let response_timeout = rng.pick(&[100, 300, 500, 1000, 2000]);
        let guarded = rng.chance(200_000) && store == StoreKind::Redis;
        let mut url = format!(
            "redis://10.0.0.1:6379?dlock.response_timeout={response_timeout}ms&dlock.retention=60s"
        );
        if guarded {
            url += &format!("&dlock.restart_guard={}ms", longest.as_millis());
        }
        let tasks = usize::try_from(rng.within(1..7)).unwrap_or(1);
        let processes = usize::try_from(rng.within(2..6)).unwrap_or(2);
        let load = Load::new("sim")
            .with_tasks(tasks)
            .with_leases(&leases)
            .with_cancels(rng.pick(&[0, 5, 15, 60]))
            .with_long_holds(rng.pick(&[2, 5, 30, 70]));
        let load = match rng.below(4) {
            0 => load.without_locks().with_lock(LockKind::Mutex, &["sim/a"]),
            1 => load.with_mutexes("sim/many", 8),
            _ => load,
        };
        let usual: (Micros, Micros) =
            rng.pick(&[(100, 1000), (300, 3000), (5_000, 20_000), (20_000, 60_000)]);
        // Connecting takes several round trips, which the timeout has to allow for.
        let most = response_timeout * 1000 / 12;
        let usual = (usual.0.min(most / 2), usual.1.min(most));
        let slow = rng.pick(&[0, 1_000, 20_000, 200_000]);
        let latency = Latency {
            usual: usual.0..usual.1,
            slow: (slow, 10_000..rng.pick(&[50_000, 200_000, SLOWEST])),
        };
        let rates = (0..8).map(|_| rate(&mut rng)).collect();
        let store_rate = rate(&mut rng);
        let storm = rng.pick(&[5_000_000, 20_000_000, 40_000_000]);
        let faults = Fault::draw(&mut rng, storm, processes, store);
        Self {
            seed,
            store,
            mutant: None,
            messages,
            url,
            load,
            processes,
            latency,
            guarded,
            response_timeout: response_timeout * 1000,
            rates,
            store_rate,
            storm,
            faults,
        }
    }

    /// The longest lease, in microseconds.
    pub(crate) fn longest_lease(&self) -> Micros {
        Micros::try_from(self.load.longest_lease().as_micros()).unwrap_or(Micros::MAX)
    }

    /// Leaves out all faults but those with these numbers.
    pub(crate) fn keep(&mut self, numbers: &[usize]) {
        self.faults.retain(|fault| numbers.contains(&fault.number));
    }

    /// Leaves out slow messages, and other faults of messages.
    pub(crate) fn without_slow_messages(&mut self) {
        self.messages = MessageFaults::default();
        self.latency.slow.0 = 0;
    }

    /// Returns whether the plan has a fault of this kind.
    pub(crate) fn has(&self, kind: Kind) -> bool {
        self.faults.iter().any(|fault| fault.what.kind() == kind)
    }
}

impl Fault {
    /// Draws the faults of a storm of this length.
    fn draw(rng: &mut Rng, storm: Micros, processes: usize, store: StoreKind) -> Vec<Self> {
        // Each seed has kinds of its own, and its own pace.
        let share = rng.pick(&[200_000, 500_000, 1_000_000]);
        let mut kinds: Vec<Kind> =
            Kind::INJECTED.into_iter().filter(|_| rng.chance(share)).collect();
        kinds.retain(|kind| store.can_have(*kind));
        // Tokens may fall if the data and the time are lost.
        if kinds.contains(&Kind::Emptied) {
            kinds.retain(|kind| *kind != Kind::ClockBack);
        }
        let pause = rng.pick(&[50_000, 200_000, 800_000]);
        let (mut faults, mut at) = (Vec::new(), 300_000);
        // How far the server's clock is behind the latest time that it has shown before a step.
        let mut behind = 0;
        while at < storm && !kinds.is_empty() {
            let mut what = What::draw(rng, &kinds, processes);
            if let What::Step { by } = &mut what {
                *by = (*by).max(behind - BACK);
                behind = (behind - *by).max(0);
            }
            if !matches!(what, What::Step { by: 0 }) {
                faults.push(Self { number: faults.len(), at, what });
            }
            at += rng.within(1..2 * pause);
        }
        faults
    }
}

//! What a seed draws: the load, the network, the clocks, and the faults with their times.
//!
//! Each seed draws a mix of its own, since a fault of timing needs a region of its own: a lease that
//! counts from the answer is wrong only where answers are slower than the margin. The faults are drawn
//! before the run, so that a run can leave some of them out without changing the others.

use std::time::Duration;

use dlock_soak::{Kind as LockKind, Load};

use crate::{
    faults::{self, Fault, INJECTED, Kind, Latency, MessageFaults, Micros, micros, rate},
    random::Rng,
};

/// The longest time by which steps of the server's clock prolong a lease, in microseconds.
const BACK: i64 = 3_000_000;
/// What the names of jobs begin with. The store keeps their locks after their processes have ended.
pub(crate) const JOB: &str = "sim/job";
/// The jobs of a load that has little else: each of them runs rarely.
const JOBS: [&str; 6] = [JOB, "sim/job/2", "sim/job/3", "sim/job/4", "sim/job/5", "sim/job/6"];
/// The longest time in which a piece arrives that was slow.
const SLOWEST: Micros = 1_500_000;

/// A world before it begins.
#[derive(Clone, Debug)]
pub(crate) struct Plan {
    pub(crate) seed: u64,
    /// The name of a deliberate mistake.
    pub(crate) mutant: Option<&'static str>,
    pub(crate) messages: MessageFaults,
    /// The URL of the store, if clients have one.
    pub(crate) url: String,
    pub(crate) load: Load,
    /// The minimum time of the job.
    at_least: Duration,
    /// How long the store keeps the session of a client that is silent, if it has sessions.
    pub(crate) session: Duration,
    pub(crate) processes: usize,
    pub(crate) latency: Latency,
    /// Whether the store's data are on its disk, and a restart guard waits if they are lost.
    pub(crate) guarded: bool,
    pub(crate) response_timeout: Micros,
    /// The rates of the clocks of processes, in turn.
    pub(crate) rates: Vec<i64>,
    /// The rates of the servers' clocks at the beginning.
    pub(crate) server_rates: Vec<i64>,
    pub(crate) storm: Micros,
    pub(crate) faults: Vec<Fault>,
}

impl Plan {
    /// Draws the world of this seed, for a store with so many servers, which can have these faults.
    pub(crate) fn of(seed: u64, kinds: &[Kind], hosts: usize) -> Self {
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
        let response_timeout = rng.pick(&[100, 300, 500, 1000, 2000]);
        let tasks = usize::try_from(rng.within(1..7)).unwrap_or(1);
        let processes = usize::try_from(rng.within(2..6)).unwrap_or(2);
        let load = Load::new("sim")
            .with_tasks(tasks)
            .with_leases(&leases)
            .with_lock_delay(Duration::from_millis(rng.pick(&[0, 0, 0, 50, 500])))
            .with_cancels(rng.pick(&[0, 5, 15, 60]))
            .with_long_holds(rng.pick(&[2, 5, 30, 70]));
        let longest = load.longest_lease();
        let at_least = (longest * rng.pick(&[1, 2, 4, 10])).min(longest + Duration::from_secs(4));
        let job = LockKind::Job(at_least);
        let load = match rng.below(5) {
            0 => load.without_locks().with_lock(LockKind::Mutex, &["sim/a"]),
            1 => load.with_mutexes("sim/many", 8),
            2 => JOBS
                .into_iter()
                .fold(load.without_locks().with_lock(LockKind::Mutex, &["sim/a"]), |load, name| {
                    load.with_lock(job, &[name])
                }),
            _ => load
                .with_lock(LockKind::Reentrant, &["sim/b"])
                .with_lock(LockKind::Across, &["sim/b", "sim/a"])
                .with_lock(job, &[JOB])
                .with_lock(LockKind::Election, &["sim/leader"]),
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
        let server_rates = (0..hosts).map(|_| rate(&mut rng)).collect();
        let storm = rng.pick(&[5_000_000, 20_000_000, 40_000_000]);
        let faults = draw_faults(&mut rng, storm, processes, (kinds, hosts));
        Self {
            seed,
            mutant: None,
            messages: MessageFaults::default(),
            url: String::new(),
            load,
            at_least,
            session: Duration::ZERO,
            processes,
            latency,
            guarded: false,
            response_timeout: response_timeout * 1000,
            rates,
            server_rates,
            storm,
            faults,
        }
    }

    /// The longest time for which the store keeps a lock without a holder, in microseconds.
    pub(crate) fn longest_hold(&self) -> Micros {
        micros(self.load.longest_lease().max(self.at_least).max(self.session))
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
}

/// Draws the faults of a storm of this length, for a store with so many servers.
fn draw_faults(
    rng: &mut Rng,
    storm: Micros,
    processes: usize,
    (possible, hosts): (&[Kind], usize),
) -> Vec<Fault> {
    // Each seed has kinds of its own, and its own pace.
    let share = rng.pick(&[200_000, 500_000, 1_000_000]);
    let of_store = possible.iter().copied().filter(|kind| !INJECTED.contains(kind));
    let kinds = INJECTED.into_iter().chain(of_store);
    let mut kinds: Vec<Kind> = kinds.filter(|_| rng.chance(share)).collect();
    kinds.retain(|kind| possible.contains(kind));
    let mut pause = rng.pick(&[50_000, 200_000, 800_000]);
    // One kind alone, and often, meets itself and the load in ways that it would not among others.
    if rng.chance(150_000)
        && let Some(kind) = (!kinds.is_empty()).then(|| rng.pick(&kinds))
    {
        kinds = vec![kind];
        pause = 200_000;
    }
    // Tokens may fall if the data and the time are lost.
    if [faults::EMPTIED, faults::CLOCK_BACK].iter().all(|kind| kinds.contains(kind)) {
        let without = rng.pick(&[faults::EMPTIED, faults::CLOCK_BACK]);
        kinds.retain(|kind| *kind != without);
    }
    let (mut all, mut at) = (Vec::new(), 300_000);
    // How far each server's clock is behind the latest time that it has shown before a step.
    let mut behind = vec![0; hosts];
    while at < storm && !kinds.is_empty() {
        let mut fault = Fault { at, ..Fault::draw(rng, &kinds, processes, hosts) };
        let steps = [faults::CLOCK_FORWARD, faults::CLOCK_BACK].contains(&fault.kind);
        if steps {
            let behind = &mut behind[fault.host];
            fault.by = fault.by.max(*behind - BACK);
            *behind = (*behind - fault.by).max(0);
        }
        if !steps || fault.by != 0 {
            all.push(Fault { number: all.len(), ..fault });
        }
        at += rng.within(1..2 * pause);
    }
    all
}

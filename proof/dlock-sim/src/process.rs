//! A simulated process: a tokio runtime of its own, with a clock that runs at a rate of its own.
//!
//! The runtime has one thread and paused time. In each millisecond of the world, the process's clock
//! is set, and the runtime runs until its timers have come as far and no task can go on. A frozen
//! process does not run. When it goes on, its clock shows the true time at once, and all timers that
//! are due fire together, before or after the bytes that have arrived meanwhile are read.

use std::{sync::Arc, time::Duration};

use dlock_core::{Error, Instant, Locks, Note, Noted, sim};
use dlock_soak::{Story, ToWorld};
use dlock_testkit::Stop;
use tokio::{
    runtime::{Builder, Runtime},
    task::JoinHandle,
};

use crate::{
    faults::Micros,
    mutant, network,
    plan::Plan,
    world::{self, NOTE, Store, say},
};

/// How long a process tries to connect before it asks again.
const PAUSE: Duration = Duration::from_millis(50);

/// What a machine's clock shows when its process is born: an hour.
const BORN_AT: u64 = 3_600_000_000_000;

/// The clock of a process.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ProcessClock {
    born: Micros,
    /// Its rate, in millionths above one.
    ppm: i64,
}

impl ProcessClock {
    /// The nanoseconds that have passed on this clock.
    fn passed(self, now: Micros) -> u64 {
        let passed = i128::from(now - self.born) * i128::from(1_000_000 + self.ppm) / 1000;
        u64::try_from(passed).unwrap_or(0)
    }

    /// The time of the world at which this clock shows that, in nanoseconds.
    fn in_world(self, at: Instant) -> Instant {
        let passed = i128::from(at.as_nanos().saturating_sub(BORN_AT)) * 1_000_000;
        let passed = passed / i128::from(1_000_000 + self.ppm);
        Instant::from_nanos(self.born * 1000 + u64::try_from(passed).unwrap_or(0))
    }
}

/// How the work of a process ended: as [`Story::work`] returns it.
type Ended = Result<Option<Error>, Stop>;

/// A process from its birth to its death.
pub(crate) struct Process {
    /// Its number; no other process has had it.
    pub(crate) number: usize,
    runtime: Option<Runtime>,
    clock: ProcessClock,
    /// The milliseconds that tokio's clock has shown.
    ticks: u64,
    /// The deliberate mistake in its code.
    mistake: Option<&'static str>,
    /// Until when it is frozen, and whether its timers come first then.
    frozen: Option<(Micros, bool)>,
    /// It was told to leave.
    pub(crate) leaves: bool,
    main: Option<JoinHandle<Ended>>,
}

impl Process {
    /// Begins to work.
    pub(crate) fn begin(number: usize, ppm: i64, plan: &Plan, story: &Arc<Story>) -> Self {
        let (now, store) = world::with(|world| (world.now, world.store));
        let runtime = Builder::new_current_thread()
            .enable_time()
            .start_paused(true)
            .rng_seed(tokio::runtime::RngSeed::from_bytes(&number.to_le_bytes()))
            .build()
            .expect("a runtime without I/O needs nothing");
        let clock = ProcessClock { born: now, ppm };
        let mut process = Self {
            number,
            runtime: None,
            clock,
            ticks: 0,
            mistake: mutant::of_process(plan.mutant, number),
            frozen: None,
            leaves: false,
            main: None,
        };
        process.enter(now);
        say!("process {number} begins");
        let (story, plan) = (Arc::clone(story), plan.clone());
        let to_world: Arc<ToWorld> = Arc::new(move |at| clock.in_world(at));
        process.main = Some(runtime.spawn(async move {
            let locks = connected(store, number, &plan).await?;
            story.work(number, plan.seed.wrapping_add(number as u64), locks, to_world).await
        }));
        process.runtime = Some(runtime);
        process
    }

    /// Lets the process run until its clock and its timers have reached the world's time.
    pub(crate) fn run(&mut self, now: Micros) {
        match self.frozen {
            Some((until, _)) if now < until => return,
            Some((_, timers_first)) => self.thaw(now, timers_first),
            None => {}
        }
        self.enter(now);
        let ticks = self.ticks_until(now);
        if let Some(runtime) = self.runtime.as_ref().filter(|_| !ticks.is_zero()) {
            runtime.block_on(async { tokio::time::sleep(ticks).await });
        }
    }

    /// The time until now that tokio's clock has not shown yet, in whole milliseconds. It will show
    /// it.
    fn ticks_until(&mut self, now: Micros) -> Duration {
        let due = self.clock.passed(now) / 1_000_000;
        Duration::from_millis(due - std::mem::replace(&mut self.ticks, due))
    }

    /// Freezes until this time. Returns false if it is frozen already.
    pub(crate) fn freeze(&mut self, until: Micros, timers_first: bool) -> bool {
        let begins = self.frozen.is_none();
        if begins {
            self.frozen = Some((until, timers_first));
        }
        begins
    }

    /// Goes on after it was frozen. Either its timers or the bytes that have arrived come first.
    fn thaw(&mut self, now: Micros, timers_first: bool) {
        self.frozen = None;
        self.enter(now);
        let ticks = self.ticks_until(now);
        let Some(runtime) = &self.runtime else { return };
        runtime.block_on(async {
            if !timers_first {
                tokio::task::yield_now().await;
            }
            tokio::time::advance(ticks).await;
        });
    }

    /// Dies at once, wherever its tasks are.
    pub(crate) fn kill(&mut self, now: Micros, with_machine: bool) {
        world::with(|world| world.abandon(self.number, with_machine));
        self.enter(now);
        self.main = None;
        self.runtime = None;
    }

    /// Returns whether it has ended by itself.
    pub(crate) fn has_ended(&self) -> bool {
        self.main.as_ref().is_none_or(JoinHandle::is_finished)
    }

    /// Ends a process that has ended by itself.
    pub(crate) fn end(&mut self, now: Micros) -> Ended {
        self.enter(now);
        let (Some(runtime), Some(main)) = (self.runtime.take(), self.main.take()) else {
            return Ok(None);
        };
        let verdict = runtime.block_on(main);
        drop(runtime);
        world::with(|world| world.abandon(self.number, false));
        verdict.map_err(|panic| Stop::failed(format!("a panic: {panic}")))?
    }

    /// The code that runs is that of this process from now on.
    fn enter(&self, now: Micros) {
        sim::run(sim::Process {
            clock: BORN_AT + self.clock.passed(now),
            number: self.number,
            mistake: self.mistake,
            connect: network::connect,
        });
    }
}

/// Connects to the store, as often as it takes. Each claim has the number of its process as a note.
async fn connected(store: &'static dyn Store, number: usize, plan: &Plan) -> Result<Locks, Error> {
    loop {
        match store.connect(number, plan).await {
            Err(error) if error.is_transient() => tokio::time::sleep(PAUSE).await,
            answer => return Locks::new(Noted::new(answer?, Note::new(&note(number))?)),
        }
    }
}

/// The note of all claims of a process.
pub(crate) fn note(number: usize) -> String {
    format!("{NOTE}{number}.")
}

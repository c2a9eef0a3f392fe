//! Holders in the process of the test: the processes of a simulation.
//!
//! A simulation has one thread and a clock of its own. Its processes do the same work as those of a
//! [`Running`](super::Running) load, and one [`Story`] collects what all of them do, in place of log
//! files and of a socket for the resource.

use std::{
    collections::{BTreeMap, HashMap},
    fmt,
    sync::Arc,
};

use dlock_core::{Fence, FencingToken, Instant, Locks};
use dlock_testkit::{Stop, Verdict};
use parking_lot::Mutex;
use tokio::sync::watch;

use super::{
    child::Crew,
    line::{Line, Phase, What, When},
    plan::{Load, Orders},
    record::{Broke, Excuse, FaultRecord, KILL, Record, Run},
    report::Report,
    resource::Write,
    worker::{Collector, Log},
};

/// Converts a time of a process's clock to the time of the simulation.
pub type ToWorld = dyn Fn(Instant) -> Instant + Send + Sync;

/// All that happens in a simulation, in the time of the simulation.
#[derive(Debug)]
pub struct Story {
    load: Load,
    inner: Mutex<Inner>,
}

#[derive(Debug, Default)]
struct Inner {
    records: Vec<Record>,
    fences: HashMap<String, Fence>,
    phases: BTreeMap<usize, watch::Sender<Phase>>,
    phase: Option<Phase>,
    grants: usize,
    calm: Option<Instant>,
    well: Option<Instant>,
}

/// The part of a story that one process writes.
struct Chapter {
    process: usize,
    story: Arc<Story>,
    to_world: Arc<ToWorld>,
}

impl Story {
    /// Returns the story of this load, which begins with faults.
    pub fn new(load: Load) -> Arc<Self> {
        Arc::new(Self { load, inner: Mutex::default() })
    }

    /// Works as the process with this number until all processes are told to end, or this one to
    /// [leave](Self::leave). Then it shuts down its locks.
    ///
    /// # Errors
    /// If a panic ended one of its tasks, or the shutdown fails.
    ///
    /// # Cancel safety
    /// Dropping the future drops all tasks, as the death of a process does, if the runtime is dropped
    /// as well.
    pub async fn work(
        self: &Arc<Self>,
        process: usize,
        seed: u64,
        locks: Locks,
        to_world: Arc<ToWorld>,
    ) -> Verdict {
        let mut orders = Orders::default();
        for line in self.load.lines(process) {
            orders.take(&line)?;
        }
        orders.seed = seed;
        let phases = {
            let mut inner = self.inner.lock();
            let (sender, phases) = watch::channel(inner.phase.unwrap_or(Phase::Storm));
            inner.phases.insert(process, sender);
            phases
        };
        let mut ending = phases.clone();
        let chapter = Chapter { process, story: Arc::clone(self), to_world };
        let crew = Crew::begin(locks, orders, phases, Log::of(chapter))?;
        // The sender lives for as long as the story.
        let _ = ending.wait_for(|phase| *phase == Phase::End).await;
        crew.end().await
    }

    /// Tells one process to end and to leave nothing behind.
    pub fn leave(&self, process: usize) {
        if let Some(sender) = self.inner.lock().phases.get(&process) {
            sender.send_replace(Phase::End);
        }
    }

    /// Tells all processes that the faults are over.
    pub fn calm(&self, at: Instant) {
        self.tell(Phase::Calm, |inner| inner.calm = Some(at));
    }

    /// Tells all processes that no attempt may fail or wait for long from now on.
    pub fn well(&self, at: Instant) {
        self.tell(Phase::Well, |inner| inner.well = Some(at));
    }

    /// Tells all processes to end.
    pub fn end(&self) {
        self.tell(Phase::End, |_| {});
    }

    fn tell(&self, phase: Phase, also: impl FnOnce(&mut Inner)) {
        let mut inner = self.inner.lock();
        inner.phase = Some(phase);
        also(&mut inner);
        for sender in inner.phases.values() {
            // A process that was told to leave continues to do so.
            sender.send_if_modified(|now| {
                let goes_on = *now != Phase::End;
                if goes_on {
                    *now = phase;
                }
                goes_on
            });
        }
    }

    /// Notes a fault of the store or of the network, or of this process.
    pub fn note(&self, fault: &str, at: Instant, until: Instant, process: Option<usize>) {
        let fault = FaultRecord { at, until, fault: fault.to_owned(), process };
        self.inner.lock().records.push(Record::Fault(fault));
    }

    /// Notes that this process was killed, which ends its holds.
    pub fn killed(&self, process: usize, at: Instant) {
        self.note(KILL, at, at, Some(process));
    }

    /// Declares that the store lost data between these moments, or let leases expire too early. See
    /// [`Running::excuse`](super::Running::excuse).
    pub fn excuse(&self, at: Instant, excused_until: Instant) {
        self.inner.lock().records.push(Record::Excuse(Excuse { at, excused_until }));
    }

    /// Notes a panic or an error of this process.
    pub fn broke(&self, process: usize, at: Instant, broke: String) {
        self.inner.lock().records.push(Record::Broke(Broke { at, process, broke }));
    }

    /// Returns the number of grants so far.
    pub fn grants(&self) -> usize {
        self.inner.lock().grants
    }

    /// Returns all that happened between these moments.
    ///
    /// # Errors
    /// If the records contradict each other.
    pub fn report(&self, began: Instant, ended: Instant) -> Result<Report, Stop> {
        let inner = self.inner.lock();
        let mut records = inner.records.clone();
        records.push(Record::Run(Run {
            began,
            names: self.load.names(),
            longest_lease: self.load.longest_lease(),
            faults_noted: self.load.faults_noted,
            calm: inner.calm.unwrap_or(ended),
            well: inner.well.unwrap_or(ended),
            ended,
        }));
        drop(inner);
        Report::of(records)
    }
}

impl Collector for Chapter {
    fn line(&self, hold: Option<u64>, at: Instant, mut what: What) {
        match &mut what {
            What::Got { until, .. } | What::Keep { until } => *until = (self.to_world)(*until),
            What::Late { since } => *since = (self.to_world)(*since),
            _ => {}
        }
        let is_grant = matches!(what, What::Got { .. });
        let line = Line { process: self.process, hold, at: (self.to_world)(at), what };
        let mut inner = self.story.inner.lock();
        let is_idle = matches!(line.what, What::Uses { when: When::Idle, .. });
        if is_idle && inner.phase.is_none() {
            // It ends while faults are injected: its last operations continue until the faults end.
            return;
        }
        inner.grants += usize::from(is_grant);
        inner.records.push(Record::Did(line));
    }

    fn write(&self, hold: u64, at: Instant, token: FencingToken, name: &str) {
        let mut inner = self.story.inner.lock();
        let fence = inner.fences.entry(name.to_owned()).or_default();
        let passed = fence.admit(token).is_ok();
        let (at, grant) = ((self.to_world)(at), (self.process, hold));
        inner.records.push(Record::Wrote(Write {
            at,
            grant,
            name: name.to_owned(),
            token,
            passed,
        }));
    }
}

impl fmt::Debug for Chapter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Chapter").field("process", &self.process).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use dlock_core::Memory;
    use dlock_testkit::support::now;
    use tokio::{task::JoinSet, time::sleep};

    use super::*;

    /// Two processes over one store in memory: their story is judged as the logs of real ones are.
    #[tokio::test]
    async fn processes_of_one_test_have_one_story() {
        let story = Story::new(Load::new("story"));
        let (store, began) = (Memory::new(), now());
        let mut processes = JoinSet::new();
        for process in 0..2 {
            let locks = Locks::new(store.clone()).unwrap();
            let story = Arc::clone(&story);
            processes.spawn(async move { story.work(process, 7, locks, Arc::new(|at| at)).await });
        }
        while story.grants() < 20 {
            sleep(Duration::from_millis(10)).await;
        }
        story.leave(0);
        processes.join_next().await.unwrap().unwrap().unwrap();
        story.calm(now());
        story.end();
        processes.join_next().await.unwrap().unwrap().unwrap();
        let report = story.report(began, now()).unwrap();
        assert!(report.grants() >= 20 && report.grants() == story.grants(), "{report}");
        assert_eq!(report.overlaps(), [""; 0]);
        assert_eq!(report.token_violations(), [""; 0]);
    }
}

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

use dlock_core::{Error, Fence, FencingToken, Instant, Locks};
use dlock_testkit::Stop;
use parking_lot::Mutex;
use tokio::sync::watch;

use super::{
    child::Crew,
    line::{Line, Phase, Wanted, What, When},
    log::{Collector, Log},
    plan::{Load, Orders},
    record::{Broke, Excuse, FaultRecord, KILL, LostGrant, Record, Run},
    report::Report,
    resource::Write,
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
    /// The attempts and holds that have not ended, by process and number.
    open: BTreeMap<(usize, u64), Open>,
    calm: Option<Instant>,
    well: Option<Instant>,
}

/// An attempt or a hold that has not ended.
#[derive(Debug)]
struct Open {
    kind: Wanted,
    name: String,
    /// The token and the local deadline, once it is granted.
    grant: Option<(FencingToken, Instant)>,
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
    /// [leave](Self::leave). Then it shuts down its locks. Returns the error of the shutdown, if
    /// the store has not answered in time.
    ///
    /// # Errors
    /// If a panic ended one of its tasks, or a holder was broken in another way.
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
    ) -> Result<Option<Error>, Stop> {
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
        self.inner.lock().open.retain(|(of, _), _| *of != process);
        self.note(KILL, at, at, Some(process));
    }

    /// Declares that the store lost these grants at this time, or let their leases expire too early.
    /// Holds of these tokens are excused until the ends of the leases: for their loss, and also for
    /// overlaps, unless the store `is_guarded` and grants nothing until then.
    pub fn excuse(&self, at: Instant, lost: Vec<LostGrant>, is_guarded: bool) {
        let excuse = Excuse { lost: Some(lost), is_guarded, ..Excuse::of_any(at, at) };
        self.inner.lock().records.push(Record::Excuse(excuse));
    }

    /// Notes a panic or an error of this process.
    pub fn broke(&self, process: usize, at: Instant, broke: String) {
        self.inner.lock().records.push(Record::Broke(Broke { at, process, broke }));
    }

    /// Returns the locks that guards hold at this time by their own knowledge: the process, the name
    /// and the token of each.
    pub fn held(&self, at: Instant) -> Vec<(usize, String, FencingToken)> {
        let inner = self.inner.lock();
        let held = inner.open.iter().filter_map(|((process, _), open)| {
            let (token, until) = open.grant?;
            (until > at).then(|| (*process, open.name.clone(), token))
        });
        held.collect()
    }

    /// Returns whether a process has a guard of this lock with one of these tokens. A multi-lock may
    /// have the grants of some of its locks before it has them all.
    pub fn owns(&self, process: usize, name: &str, (first, last): (u64, u64)) -> bool {
        let inner = self.inner.lock();
        let mut open = inner.open.range((process, 0)..=(process, u64::MAX));
        open.any(|(_, open)| {
            open.name == name
                && match open.grant {
                    Some((token, _)) => (first..=last).contains(&token.get()),
                    None => open.kind == Wanted::Multi,
                }
        })
    }

    /// Returns the number of grants so far.
    pub fn grants(&self) -> usize {
        self.inner.lock().grants
    }

    /// Returns all that happened between these moments, which the story then forgets.
    ///
    /// # Errors
    /// If the records contradict each other.
    pub fn report(&self, began: Instant, ended: Instant) -> Result<Report, Stop> {
        let mut inner = self.inner.lock();
        let mut records = std::mem::take(&mut inner.records);
        records.push(Record::Run(Run {
            began,
            names: self.load.names(),
            longest_lease: self.load.longest_lease(),
            lock_delay: self.load.lock_delay,
            faults_noted: self.load.faults_noted,
            calm: inner.calm.unwrap_or(ended),
            well: inner.well.unwrap_or(ended),
            ended,
        }));
        drop(inner);
        Report::of(records)
    }
}

impl Inner {
    fn follow(&mut self, hold: (usize, u64), what: &What) {
        match what {
            What::Ask { name, kind, .. } => {
                self.open.insert(hold, Open { kind: *kind, name: name.clone(), grant: None });
            }
            What::Got { token, until } => {
                self.open.entry(hold).and_modify(|open| open.grant = Some((*token, *until)));
            }
            What::Keep { until } => {
                let grant = self.open.get_mut(&hold).and_then(|open| open.grant.as_mut());
                grant.into_iter().for_each(|grant| grant.1 = *until);
            }
            What::Let {} | What::Lost { .. } | What::Not { .. } => drop(self.open.remove(&hold)),
            _ => {}
        }
    }
}

impl Collector for Chapter {
    fn line(&self, hold: Option<u64>, at: Instant, mut what: What) {
        match &mut what {
            What::Got { until, .. } | What::Keep { until } | What::Promise { until } => {
                *until = (self.to_world)(*until);
            }
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
        if let Some(hold) = hold {
            inner.follow((self.process, hold), &line.what);
        }
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

    use async_trait::async_trait;
    use dlock_core::{
        AcquireRequest, Acquired, Answer, Backend, Claim, Error, Grant, Guarantees, LockName,
        LockState, Memory, Released, Renewal, Renewed,
    };
    use dlock_testkit::support::now;
    use tokio::{task::JoinSet, time::sleep};

    use super::*;
    use crate::{breach::Check, plan::Kind};

    /// Two processes over one store in memory: their story is judged as the logs of real ones are.
    #[tokio::test]
    async fn processes_of_one_test_have_one_story() {
        let load = Load::new("story").with_leases(&[Duration::from_secs(10)]).with_long_holds(0);
        let load = load
            .with_lock(Kind::Reentrant, &["story/b"])
            .with_lock(Kind::Across, &["story/b", "story/a"])
            .with_lock(Kind::Job(Duration::from_millis(100)), &["story/job"])
            .with_lock(Kind::Election, &["story/leader"]);
        let story = Story::new(load);
        let (store, began) = (Memory::new(), now());
        let mut processes = JoinSet::new();
        for process in 0..2 {
            let locks = Locks::new(store.clone()).unwrap();
            let story = Arc::clone(&story);
            processes.spawn(async move { story.work(process, 7, locks, Arc::new(|at| at)).await });
        }
        let grants = async |count| {
            while story.grants() < count {
                sleep(Duration::from_millis(10)).await;
            }
        };
        grants(200).await;
        story.leave(0);
        assert!(processes.join_next().await.unwrap().unwrap().unwrap().is_none());
        story.calm(now());
        story.well(now());
        grants(story.grants() + 200).await;
        story.end();
        assert!(processes.join_next().await.unwrap().unwrap().unwrap().is_none());
        let report = story.report(began, now()).unwrap();
        assert!(report.grants() >= 400 && report.grants() == story.grants(), "{report}");
        report.check().unwrap();
    }

    /// A store that has lost its data when it answers a renewal, after a while.
    #[derive(Debug)]
    struct Forgetful(Arc<Memory>);

    #[async_trait]
    impl Backend for Forgetful {
        fn store(&self) -> &str {
            self.0.store()
        }

        fn guarantees(&self) -> Guarantees {
            self.0.guarantees()
        }

        fn acquire(&self, request: &AcquireRequest) -> Answer<Acquired> {
            self.0.acquire(request)
        }

        async fn granted(&self, request: &AcquireRequest) -> Result<Grant, Error> {
            self.0.granted(request).await
        }

        async fn renew(&self, renewals: &[Renewal]) -> Result<Vec<Renewed>, Error> {
            sleep(Duration::from_millis(30)).await;
            Ok(vec![Renewed::Forgotten; renewals.len()])
        }

        fn release(&self, claim: &Claim) -> Answer<Released> {
            self.0.release(claim)
        }

        async fn inspect(&self, name: &LockName) -> Result<LockState, Error> {
            self.0.inspect(name).await
        }
    }

    #[tokio::test]
    async fn a_loss_that_a_downgrade_reports_is_recorded() {
        let load = Load::new("story").without_locks().with_lock(Kind::ReadWrite, &["story/c"]);
        let (story, began) = (Story::new(load), now());
        story.excuse(began, Vec::new(), false);
        let locks = Locks::new(Arc::new(Forgetful(Memory::new()))).unwrap();
        let of = Arc::clone(&story);
        let process = of.work(0, 7, locks, Arc::new(|at| at));
        let end = async {
            while story.grants() < 60 {
                sleep(Duration::from_millis(10)).await;
            }
            story.end();
        };
        let (ended, ()) = tokio::join!(process, end);
        assert!(ended.unwrap().is_none());
        let report = story.report(began, now()).unwrap();
        assert!(report.warned() > 0, "{report}");
        let found = report.violations();
        assert!(found.iter().all(|found| found.check != Check::Losses), "{found:?}");
    }
}

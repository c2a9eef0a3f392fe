//! What came of a load.

use std::{collections::BTreeMap, fmt, path::Path, time::Duration};

use dlock_core::{DynBackend, Instant, LockName};
use dlock_testkit::{Stop, Verdict, support::now};
use tokio::time::sleep;

use super::{
    belief::{self, Tale},
    lateness::Lateness,
    line::{BUSY, CANCELLED, Line, Phase, REFUSED, TIMEOUT, UNAVAILABLE},
    record::{self, Excuse, FaultRecord, KILL, Record, Run},
    resource::{self, Write},
    times::Times,
};

/// How much later than the longest lease a lock may be free that nobody holds.
const ORPHANS: Duration = Duration::from_secs(5);

/// What came of a load: who held what when, and how the attempts went.
#[derive(Clone, Debug)]
pub struct Report {
    /// Everything that follows is of these, which are in order of time.
    records: Vec<Record>,
    pub(super) run: Run,
    pub(super) by_name: BTreeMap<String, Vec<Tale>>,
    pub(super) writes: Vec<Write>,
    pub(super) faults: Vec<FaultRecord>,
    pub(super) excuses: Vec<Excuse>,
    pub(super) idle: BTreeMap<usize, Times>,
}

impl Report {
    pub(super) fn of(mut records: Vec<Record>) -> Result<Self, Stop> {
        records.sort_by_key(Record::at);
        let (mut writes, mut faults, mut excuses) = (Vec::new(), Vec::new(), Vec::new());
        let mut run = None;
        for record in &records {
            match record {
                Record::Wrote(write) => writes.push(write.clone()),
                Record::Fault(fault) => faults.push(fault.clone()),
                Record::Excuse(excuse) => excuses.push(*excuse),
                Record::Run(of) => run = Some(of.clone()),
                Record::Did(_) | Record::Broke(_) => {}
            }
        }
        let run = run.ok_or_else(|| Stop::failed("a history does not say of which run it is"))?;
        let killed = faults.iter().filter(|fault| fault.fault == KILL);
        let killed = killed.filter_map(|fault| fault.process.map(|number| (number, fault.at)));
        let tales = belief::tales(lines(&records), &killed.collect())?;
        let idle = belief::idle(lines(&records));
        let mut by_name: BTreeMap<String, Vec<Tale>> =
            run.names.iter().map(|name| (name.clone(), Vec::new())).collect();
        for tale in tales {
            by_name.entry(tale.name.clone()).or_default().push(tale);
        }
        Ok(Self { records, run, by_name, writes, faults, excuses, idle })
    }

    /// Reads a history that was [written](Self::write_history), to judge it again.
    ///
    /// # Errors
    /// When it can't be read.
    pub fn read_history(file: &Path) -> Result<Self, Stop> {
        Self::of(record::read(file)?)
    }

    /// Writes the whole story into a file, in order of time: a JSON object a line for everything
    /// that the processes did, that was done to them, and that reached the resource.
    ///
    /// # Errors
    /// When it can't be written.
    pub fn write_history(&self, file: &Path) -> Verdict {
        record::write(&self.records, file)
    }

    /// The names that somebody holds or waits for although all have let go: waits for that until
    /// the longest lease and five seconds more have passed.
    ///
    /// # Errors
    /// When the store can't be asked.
    pub async fn orphans(&self, backend: &DynBackend) -> Result<Vec<String>, Stop> {
        let end = now().saturating_add(self.run.longest_lease + ORPHANS);
        let mut left = Vec::new();
        for name in self.by_name.keys() {
            let name = LockName::new(name)?;
            loop {
                let state = backend.inspect(&name).await?;
                if state.is_free() {
                    break;
                }
                if now() >= end {
                    left.push(format!("{name:?}: {state:?}"));
                    break;
                }
                sleep(Duration::from_millis(50)).await;
            }
        }
        Ok(left)
    }

    /// How many holds the store did not know any more while they were to be believed.
    pub fn revoked(&self) -> usize {
        self.all().filter(|tale| tale.was_revoked()).count()
    }

    /// How many holders were told that the clock of the store had stepped, or that the store had
    /// lost what it knew.
    pub fn told_of_trouble(&self) -> usize {
        self.all().filter(|tale| tale.told_of_trouble().is_some()).count()
    }

    /// How many locks were granted.
    pub fn grants(&self) -> usize {
        self.all().filter(|tale| tale.got.is_some()).count()
    }

    /// How many attempts were dropped half-way.
    pub fn cancelled(&self) -> usize {
        self.count(CANCELLED)
    }

    /// How many holds ended before they were let go.
    pub fn lost(&self) -> usize {
        self.all().filter(|tale| tale.lost.is_some()).count()
    }

    /// How many attempts failed because the store was out of reach.
    pub fn unavailable(&self) -> usize {
        self.count(UNAVAILABLE) + self.count(REFUSED)
    }

    /// How many writes reached the resource after one of a newer holder, and were refused.
    pub fn late_writes(&self) -> usize {
        resource::late(&self.writes)
    }

    /// How late holders were told that their leases had ended.
    pub fn lateness(&self) -> Lateness {
        Lateness::of(self.all(), &self.idle)
    }

    /// The longest time from asking to holding.
    pub fn longest_wait(&self) -> Duration {
        waited(self.all())
    }

    /// The longest time from asking to holding once all was well.
    fn longest_wait_in_peace(&self) -> Duration {
        waited(self.all().filter(|tale| tale.phase == Phase::Well))
    }

    pub(super) fn all(&self) -> impl Iterator<Item = &Tale> + Clone {
        self.by_name.values().flatten()
    }

    pub(super) fn lines(&self) -> impl Iterator<Item = &Line> + Clone {
        lines(&self.records)
    }

    /// What processes did that they never must.
    pub(super) fn broken(&self) -> impl Iterator<Item = String> {
        self.records.iter().filter_map(|record| match record {
            Record::Broke(broke) => Some(format!("process {}: {}", broke.process, broke.broke)),
            _ => None,
        })
    }

    /// When it began.
    pub fn began(&self) -> Instant {
        self.run.began
    }

    fn count(&self, how: &str) -> usize {
        let named = |tale: &&Tale| tale.not.as_ref().is_some_and(|(_, not, _)| not == how);
        self.all().filter(named).count()
    }

    /// Checks that enough happened for a verdict.
    ///
    /// # Errors
    /// When fewer locks were granted.
    pub fn at_least(&self, grants: usize) -> Result<&Self, Stop> {
        match self.grants() >= grants {
            true => Ok(self),
            false => Err(Stop::failed(format!("too little for a verdict: {self}"))),
        }
    }
}

/// Of a load that did nothing.
impl Default for Report {
    fn default() -> Self {
        Self {
            records: Vec::new(),
            run: Run::of_nothing(),
            by_name: BTreeMap::new(),
            writes: Vec::new(),
            faults: Vec::new(),
            excuses: Vec::new(),
            idle: BTreeMap::new(),
        }
    }
}

fn lines(records: &[Record]) -> impl Iterator<Item = &Line> + Clone {
    records.iter().filter_map(|record| match record {
        Record::Did(line) => Some(line),
        _ => None,
    })
}

fn waited<'a>(tales: impl Iterator<Item = &'a Tale>) -> Duration {
    let waited = tales.filter_map(|tale| tale.got.map(|(at, _)| at.since(tale.asked)));
    waited.max().unwrap_or_default()
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{} grants of {} attempts in {:.1?} of harm and the peace after it: {} busy, {} timed \
             out, {} cancelled, {} without the store, {} lost, {} of these revoked, {} gone before \
             their release; {} processes killed; {} writes, {} of these late and refused; \
             longest wait in peace {:.0?}",
            self.grants(),
            self.all().count(),
            self.run.calm.since(self.run.began),
            self.count(BUSY),
            self.count(TIMEOUT),
            self.cancelled(),
            self.unavailable(),
            self.lost(),
            self.revoked(),
            self.all().filter(|tale| tale.was_gone()).count(),
            self.faults.iter().filter(|fault| fault.fault == KILL).count(),
            self.writes.len(),
            self.late_writes(),
            self.longest_wait_in_peace()
        )
    }
}

//! The results of a load.

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt,
    path::Path,
    time::Duration,
};

use dlock_core::{DynBackend, Instant, LockName, Mode};
use dlock_testkit::{Stop, Verdict, support::now};
use tokio::time::sleep;

use super::{
    breach::{Breach, Check},
    history::{self, Acquisition},
    lateness::Lateness,
    line::{BUSY, CANCELLED, Line, Phase, REFUSED, TIMEOUT, UNAVAILABLE, What},
    record::{self, Broke, Excuse, FaultRecord, KILL, Record, Run},
    resource::{self, Write},
    times::Times,
};

/// The time beyond the longest lease after which a lock without a holder must be free.
const ORPHANS: Duration = Duration::from_secs(5);
/// A number of seconds larger than the length of any run.
const MOST: usize = 10_000_000;

/// The results of a load: the holders of each lock over time, and the outcomes of the attempts.
#[derive(Clone, Debug)]
pub struct Report {
    /// All records in order of time. The other fields are derived from them.
    records: Vec<Record>,
    pub(super) run: Run,
    pub(super) by_name: BTreeMap<String, Vec<Acquisition>>,
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
                Record::Excuse(excuse) => excuses.push(excuse.clone()),
                Record::Run(of) => run = Some(of.clone()),
                Record::Did(_) | Record::Broke(_) => {}
            }
        }
        let run = run.ok_or_else(|| Stop::failed("a history does not say of which run it is"))?;
        let killed = faults.iter().filter(|fault| fault.fault == KILL);
        let killed = killed.filter_map(|fault| fault.process.map(|number| (number, fault.at)));
        let acquisitions = history::acquisitions(lines(&records), &killed.collect())?;
        let idle = history::idle(lines(&records));
        let mut by_name: BTreeMap<String, Vec<Acquisition>> =
            run.names.iter().map(|name| (name.clone(), Vec::new())).collect();
        for acquisition in acquisitions {
            by_name.entry(acquisition.name.clone()).or_default().push(acquisition);
        }
        Ok(Self { records, run, by_name, writes, faults, excuses, idle })
    }

    /// Reads a history that was [written](Self::write_history), to judge it again.
    ///
    /// # Errors
    /// If it can't be read.
    pub fn read_history(file: &Path) -> Result<Self, Stop> {
        Self::of(record::read(file)?)
    }

    /// Writes the whole history into a file in order of time, one JSON object on each line: every
    /// action of the processes, every fault, and every write that reached the resource.
    ///
    /// # Errors
    /// If it can't be written.
    pub fn write_history(&self, file: &Path) -> Verdict {
        record::write(&self.records, file)
    }

    /// Returns the names with a holder or a waiter although all processes have ended. Waits for
    /// these names to become free until the longest lease plus five seconds have passed.
    ///
    /// # Errors
    /// If the store can't be queried.
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

    /// Returns the number of holds that the store no longer knew before their local deadline.
    pub fn revoked(&self) -> usize {
        self.all().filter(|acquisition| acquisition.was_revoked()).count()
    }

    /// Returns the number of holders that were notified of a clock step of the store, or of lost
    /// data of the store.
    pub fn warned(&self) -> usize {
        self.all().filter(|acquisition| acquisition.warned().is_some()).count()
    }

    /// Returns the number of grants.
    pub fn grants(&self) -> usize {
        self.all().filter(|acquisition| acquisition.got.is_some()).count()
    }

    /// Returns the number of attempts that were cancelled.
    pub fn cancelled(&self) -> usize {
        self.count(CANCELLED)
    }

    /// Returns the number of holds that were lost before their release.
    pub fn lost(&self) -> usize {
        self.all().filter(|acquisition| acquisition.lost.is_some()).count()
    }

    /// Returns the number of attempts that failed because the store was unreachable.
    pub fn unavailable(&self) -> usize {
        self.count(UNAVAILABLE) + self.count(REFUSED)
    }

    /// Returns the number of writes that the fence refused because a newer holder had written
    /// before.
    pub fn late_writes(&self) -> usize {
        resource::late(&self.writes)
    }

    /// Returns how late holders were notified that their leases had expired.
    pub fn lateness(&self) -> Lateness {
        Lateness::of(self.all(), &self.idle)
    }

    /// Returns the longest time from a request to its grant.
    pub fn longest_wait(&self) -> Duration {
        waited(self.all())
    }

    /// Returns the longest time from a request to its grant in the phase without faults.
    fn longest_wait_without_faults(&self) -> Duration {
        waited(self.all().filter(|acquisition| acquisition.phase == Phase::Well))
    }

    pub(super) fn all(&self) -> impl Iterator<Item = &Acquisition> + Clone {
        self.by_name.values().flatten()
    }

    pub(super) fn lines(&self) -> impl Iterator<Item = &Line> + Clone {
        lines(&self.records)
    }

    /// Returns actions that no process may ever do.
    pub(super) fn broken(&self) -> impl Iterator<Item = Breach> {
        self.records.iter().filter_map(|record| {
            let Record::Broke(Broke { at, process, broke }) = record else { return None };
            let text = format!("process {process}: {broke}");
            let (process, at) = (Some(*process), Some(*at));
            Some(Breach { process, at, ..Breach::new(Check::Hangs, text) })
        })
    }

    /// Returns the time at which the load began.
    pub fn began(&self) -> Instant {
        self.run.began
    }

    fn count(&self, how: &str) -> usize {
        let named = |acquisition: &&Acquisition| {
            acquisition.not.as_ref().is_some_and(|(_, not, _)| not == how)
        };
        self.all().filter(named).count()
    }
}

/// The report of a load that did nothing.
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

fn waited<'a>(acquisitions: impl Iterator<Item = &'a Acquisition>) -> Duration {
    let waited = acquisitions
        .filter_map(|acquisition| acquisition.got.map(|(at, _)| at.since(acquisition.asked)));
    waited.max().unwrap_or_default()
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{} grants of {} attempts in {:.1?} with faults and after them: {} busy, {} timed \
             out, {} cancelled, {} without the store, {} lost, {} of these revoked, {} gone before \
             their release; {} processes killed; {} writes, {} of these late and refused; \
             longest wait without faults {:.0?}",
            self.grants(),
            self.all().count(),
            self.run.calm.since(self.run.began),
            self.count(BUSY),
            self.count(TIMEOUT),
            self.cancelled(),
            self.unavailable(),
            self.lost(),
            self.revoked(),
            self.all().filter(|acquisition| acquisition.was_gone()).count(),
            self.faults.iter().filter(|fault| fault.fault == KILL).count(),
            self.writes.len(),
            self.late_writes(),
            self.longest_wait_without_faults()
        )
    }
}

impl Report {
    /// Returns the number of grants in each second from the beginning.
    pub fn grants_per_second(&self) -> Vec<u64> {
        let mut seconds = Vec::new();
        for (at, _) in self.all().filter_map(|acquisition| acquisition.got) {
            let second = usize::try_from(at.since(self.run.began).as_secs()).unwrap_or(usize::MAX);
            // Nothing was granted after the end.
            if second <= MOST {
                seconds.resize(seconds.len().max(second + 1), 0);
                seconds[second] += 1;
            }
        }
        seconds
    }

    /// Returns the duration of each hand-off and its time: from the start of a release to the next
    /// grant, if that claim already waited. Only names with one holder at a time are counted.
    pub fn hand_offs(&self) -> Vec<(Instant, Duration)> {
        let mut all = Vec::new();
        for acquisitions in self.by_name.values() {
            if acquisitions.iter().any(|acquisition| acquisition.mode != Mode::Exclusive) {
                continue;
            }
            let mut held: Vec<_> = acquisitions
                .iter()
                .filter_map(|acquisition| acquisition.got.map(|(at, _)| (at, acquisition)))
                .collect();
            held.sort_unstable_by_key(|(at, _)| *at);
            for pair in held.windows(2) {
                let ((_, before), (got, next)) = (pair[0], pair[1]);
                if let Some(begun) = before.release_began
                    && next.asked < begun
                    && begun <= got
                {
                    all.push((got, got.since(begun)));
                }
            }
        }
        all.sort_unstable();
        all
    }
}

/// The times before and after a violation that its timeline shows.
const AROUND: (Duration, Duration) = (Duration::from_secs(1), Duration::from_millis(300));
/// The largest number of lines of a timeline.
const SHOWN: usize = 200;

impl Report {
    /// Returns what happened to the lock of a violation around its time, one line for each event, in
    /// order of time.
    pub fn timeline(&self, breach: &Breach) -> Vec<String> {
        let (Some(name), Some(at)) = (&breach.lock, breach.at) else { return Vec::new() };
        let (from, to) = (at.saturating_sub(AROUND.0), at.saturating_add(AROUND.1));
        let is_of = |line: &&Line| matches!(&line.what, What::Ask { name: of, .. } if of == name);
        let holds: BTreeSet<_> =
            self.lines().filter(is_of).map(|line| (line.process, line.hold)).collect();
        let is_shown =
            |line: &Line| line.hold.is_none() || holds.contains(&(line.process, line.hold));
        let mut shown = Vec::new();
        for record in self.records.iter().filter(|one| one.at() >= from && one.at() <= to) {
            let text = match record {
                Record::Did(Line { what: What::Keep { .. }, .. }) => continue,
                Record::Did(line) if is_shown(line) => {
                    let hold = line.hold.map(|hold| format!(" hold {hold}")).unwrap_or_default();
                    format!("process {}{hold}: {:?}", line.process, line.what)
                }
                Record::Wrote(write) if &write.name == name => {
                    let passed = if write.passed { "passes" } else { "is refused" };
                    let (process, hold) = write.grant;
                    format!(
                        "process {process} hold {hold}: a write {passed}, token {}",
                        write.token
                    )
                }
                Record::Did(_) | Record::Wrote(_) | Record::Run(_) => continue,
                other => format!("{other:?}"),
            };
            shown.push(format!("{:?} {text}", record.at()));
        }
        shown.split_off(shown.len().saturating_sub(SHOWN))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        line::short,
        record::{Record, Run},
    };

    #[test]
    fn grants_and_hand_offs_are_counted() {
        let second = 1_000_000_000_u64;
        let text = format!(
            "1 ask 0 storm x 0 a\n1 got 1 1 90\n1 let 50\n\
             2 ask 1 storm x 9 a\n2 got 57 2 90\n2 let 60\n\
             3 ask 2 storm x 70 a\n3 got 71 3 90\n3 let 80\n\
             4 ask 3 storm s 70 b\n4 got {} 4 {}\n",
            2 * second,
            3 * second
        );
        let at = Instant::from_nanos;
        let mut records: Vec<_> = short::lines(0, &text).into_iter().map(Record::Did).collect();
        records.push(Record::Run(Run {
            began: at(0),
            names: Vec::new(),
            longest_lease: Duration::ZERO,
            lock_delay: Duration::ZERO,
            faults_noted: false,
            calm: at(0),
            well: at(0),
            ended: at(9 * second),
        }));
        let report = Report::of(records).unwrap();
        assert_eq!(report.grants_per_second(), [3, 0, 1]);
        assert_eq!(report.hand_offs(), [(at(57), Duration::from_nanos(7))]);
    }
}

//! The checks of a load.

use std::{collections::BTreeMap, time::Duration};

use dlock_core::{Instant, Mode};
use dlock_testkit::{
    Stop, Verdict,
    history::{History, exclusion, permits, shared, tokens, wake_up},
};

use super::{
    breach::{Breach, Check},
    history::{self, Acquisition},
    line::{
        BUSY, CANCELLED, EXPIRED, Line, Phase, REFUSED, TIMEOUT, UNAVAILABLE, Wanted, What, When,
    },
    record::Excuse,
    report::Report,
    resource,
    times::Times,
    waits::{self, Passed},
};

/// The longest time for which a lock with waiters may be free in the phase without faults. It is a
/// generous limit for a busy machine.
const WAKE_UP: Duration = Duration::from_secs(12);
/// If a release takes longer, the store was not served in time: a release is one round trip.
const SLOW: Duration = Duration::from_millis(100);
/// The time for which a fault of the store or of the network may have effects after its end.
const SETTLING: Duration = Duration::from_secs(5);
/// The tolerated increase: connections and threads that are opened on demand.
const MORE: usize = 16;

impl Report {
    /// Checks everything that must hold while the store keeps what it acknowledged.
    ///
    /// # Errors
    /// The first violation, and the number of the others.
    pub fn check(&self) -> Verdict {
        self.demand(|_| true)
    }

    /// Checks what must hold if the store loses its data and then grants nothing until the leases
    /// have expired.
    ///
    /// # Errors
    /// The first violation, and the number of the others.
    pub fn check_exclusion(&self) -> Verdict {
        self.demand(|check| check != Check::Losses)
    }

    /// Checks what must hold even if the store loses its data and continues at once: the order of
    /// tokens, and that all clients work in the end.
    ///
    /// # Errors
    /// The first violation, and the number of the others.
    pub fn check_tokens(&self) -> Verdict {
        self.demand(|check| !matches!(check, Check::Losses | Check::Exclusion | Check::Kept))
    }

    fn demand(&self, is_asked_for: impl Fn(Check) -> bool) -> Verdict {
        let mut wrong = self.violations();
        wrong.retain(|breach| is_asked_for(breach.check));
        self.judge(&wrong)
    }

    /// Refuses violations: names the first one, and the number of the others.
    pub(super) fn judge(&self, wrong: &[Breach]) -> Verdict {
        let Some(first) = wrong.first() else { return Ok(()) };
        let others = wrong.len() - 1;
        let what = format!("{self}; violated: {first}; and {others} others");
        // No slow machine explains these.
        let unsafe_ones = [Check::Exclusion, Check::Kept, Check::Tokens, Check::Resource];
        match wrong.iter().any(|breach| unsafe_ones.contains(&breach.check)) {
            true => Err(Stop::violation(what)),
            false => Err(Stop::failed(what)),
        }
    }

    /// Returns all violations of what must hold while the store keeps what it acknowledged, with a
    /// few examples of each kind.
    pub fn violations(&self) -> Vec<Breach> {
        let mut found = self.overlaps();
        found.extend(self.early_grants());
        found.extend(self.forgotten());
        found.extend(self.token_violations());
        found.extend(self.oddities());
        found.extend(self.stalls());
        found.extend(self.stuck());
        found.extend(resource::check(&self.writes).err().map(|(write, text)| {
            Breach::of_lock(Check::Resource, &write.name, Some(write.at), text)
        }));
        found.extend(self.broken());
        found.extend(
            self.lateness()
                .check()
                .err()
                .map(|(at, text)| Breach { at, ..Breach::new(Check::Lateness, text) }),
        );
        found.extend(self.bypasses());
        found.extend(self.leaks());
        found
    }

    /// Returns overlapping holds that exclude each other: one example for each name and rule.
    pub fn overlaps(&self) -> Vec<Breach> {
        let mut found = Vec::new();
        let excuses: Vec<_> = self.excuses.iter().filter(|one| !one.is_guarded).cloned().collect();
        for (name, acquisitions) in &self.by_name {
            let lease = self.run.longest_lease;
            let history = history::excused_parts(acquisitions, &excuses, lease);
            let counted =
                capacity(acquisitions).map_or(Ok(()), |all| permits::check(&history, all));
            for verdict in [exclusion::check(&history), shared::check(&history), counted] {
                found.extend(
                    verdict.err().map(|wrong| Breach::of_history(Check::Exclusion, name, &wrong)),
                );
            }
        }
        found
    }

    /// Returns grants within the lock-delay or within the minimum time of a job: one example for each
    /// name.
    fn early_grants(&self) -> Vec<Breach> {
        let is_kept = |of: &Acquisition| of.promised.is_some() || !self.run.lock_delay.is_zero();
        let of = |(name, acquisitions): (&String, &Vec<Acquisition>)| {
            acquisitions.iter().any(is_kept).then_some(())?;
            let delay = self.run.lock_delay;
            let history = history::kept_by_store(acquisitions, &self.excuses, delay);
            let wrong = exclusion::check(&history).and_then(|()| shared::check(&history)).err()?;
            Some(Breach::of_history(Check::Kept, name, &wrong))
        };
        self.by_name.iter().filter_map(of).collect()
    }

    /// Returns the number of overlapping holds that are [excused](super::Running::excuse).
    pub fn excused(&self) -> usize {
        if self.excuses.is_empty() {
            return 0;
        }
        let of = |acquisitions: &Vec<Acquisition>| {
            let all = capacity(acquisitions);
            let excused = history::excused_holds(acquisitions, &self.excuses);
            overlapping(&history::client_holds(acquisitions), all)
                .saturating_sub(overlapping(&excused, all))
        };
        self.by_name.values().map(of).sum()
    }

    /// Returns tokens that are out of order: one example for each name and rule.
    pub fn token_violations(&self) -> Vec<Breach> {
        let mut found = Vec::new();
        for (name, acquisitions) in &self.by_name {
            let of = |wrong| Breach::of_history(Check::Tokens, name, &wrong);
            found.extend(tokens::check(&history::grants(acquisitions)).err().map(of));
            if acquisitions.iter().all(|acquisition| acquisition.mode == Mode::Exclusive) {
                // If two clients held the lock at the same time, either of them may have been granted
                // first.
                let holds = history::excused_holds(acquisitions, &self.excuses);
                found.extend(tokens::check_holders(&holds).err().map(of));
            }
        }
        found
    }

    /// Returns waits that were passed over too often: a few examples for each name. If the test did
    /// not declare [all faults noted](super::Load::with_faults_noted), the result covers only waits
    /// in the phase without faults.
    pub fn bypasses(&self) -> Vec<Breach> {
        let together = |all: BTreeMap<usize, Vec<_>>| -> BTreeMap<usize, Times> {
            all.into_iter().map(|(process, times)| (process, Times::of(times))).collect()
        };
        let mut fault_times: BTreeMap<usize, Vec<(Instant, Instant)>> = BTreeMap::new();
        for fault in &self.faults {
            if let Some(process) = fault.process {
                fault_times.entry(process).or_default().push((fault.at, fault.until));
            }
        }
        let mut own = waits::standstills(self.lines());
        let mut outages = self.store_outages();
        outages.extend(self.slow_releases());
        let (disturbed, calm) = (together(fault_times.clone()), Times::default());
        for (process, times) in &own {
            let disturbed = disturbed.get(process).unwrap_or(&calm);
            // The machine was too busy for this process, and so perhaps for the store.
            outages.extend(times.iter().filter(|(from, to)| !disturbed.meet(*from, *to)));
        }
        for (process, times) in fault_times {
            own.entry(process).or_default().extend(times);
        }
        let (outages, own) = (Times::of(outages), together(own));
        let mut found = Vec::new();
        for (name, acquisitions) in &self.by_name {
            let passed = waits::passed_over(acquisitions, &outages, &own, self.run.ended);
            found.extend(passed.iter().take(3).map(|passed| {
                let Passed { waiter, times, allowed } = passed;
                let what = format!("{name}: passed over {times} times, {allowed} are allowed");
                Breach::of_acquisition(Check::Fairness, &what, waiter)
            }));
        }
        found
    }

    /// Returns the times in which the store took long to answer a release. Heartbeats may then have
    /// come too late, so that waiters lost their places in the queue.
    fn slow_releases(&self) -> impl Iterator<Item = (Instant, Instant)> {
        let of = |acquisition: &Acquisition| {
            Some((acquisition.release_began?, acquisition.left.as_ref()?.0))
        };
        self.all().filter_map(of).filter(|(asked, left)| left.since(*asked) > SLOW)
    }

    /// Returns names that were free for too long while a claim waited and no fault explained it.
    fn stuck(&self) -> Vec<Breach> {
        let bound = match self.run.faults_noted {
            true => self.run.longest_lease + waits::BOUND,
            false => self.run.longest_lease + WAKE_UP,
        };
        let mut outages = self.store_outages();
        let of_processes = self.faults.iter().filter(|fault| fault.process.is_some());
        let felt = |until: Instant| until.saturating_add(self.run.longest_lease);
        outages.extend(of_processes.map(|fault| (fault.at, felt(fault.until))));
        let mut found = Vec::new();
        for (name, acquisitions) in &self.by_name {
            let (time, at) = waits::longest_stuck(acquisitions, &outages, self.run.ended);
            if time > bound {
                let text = format!("{name}: nobody had it for {time:?} until {at:?}");
                found.push(Breach::of_lock(Check::Liveness, name, Some(at), text));
            }
        }
        found
    }

    /// Returns what processes had open at their end but not shortly after their start.
    pub fn leaks(&self) -> Vec<Breach> {
        leaks(self.lines())
    }

    /// Returns the times in which the store may have been unreachable or may have lost its record
    /// of holders. If not all faults are noted, this is the whole time until the phase without
    /// faults.
    fn store_outages(&self) -> Vec<(Instant, Instant)> {
        let felt = |until: Instant| until.saturating_add(SETTLING);
        let faults = self.faults.iter().filter(|fault| fault.process.is_none());
        let mut all: Vec<_> = faults.map(|fault| (fault.at, felt(fault.until))).collect();
        all.extend(self.excuses.iter().map(|excuse| (excuse.at, felt(excuse.excused_until))));
        all.extend(self.all().filter_map(|acquisition| match &acquisition.not {
            Some((at, how, _)) if how == UNAVAILABLE || how == REFUSED => {
                Some((acquisition.asked, felt(*at)))
            }
            _ => None,
        }));
        if !self.run.faults_noted {
            all.push((Instant::from_nanos(0), self.run.well));
        }
        all
    }

    /// Returns holds that the store no longer knew before their local deadline.
    fn forgotten(&self) -> Vec<Breach> {
        // Until an answer has shown the clock step or the reset, the store's message about it may
        // also reach clients that acquired the lock shortly after it.
        let shown = self.run.longest_lease + SETTLING;
        // No answer comes while a fault lasts.
        let disturbed = |process, from: Instant, to: Instant| -> Duration {
            let faults = self.faults.iter();
            let felt = faults.filter(|fault| fault.process.is_none_or(|of| of == process));
            felt.map(|fault| fault.until.min(to).since(fault.at.max(from))).sum()
        };
        let soon = |excuse: &Excuse, process, at: Instant| {
            let shown = shown + disturbed(process, excuse.at, at);
            at >= excuse.at && at <= excuse.excused_until.saturating_add(shown)
        };
        let excused_alone = |acquisition: &Acquisition| {
            let (warned, left) =
                (acquisition.warned(), acquisition.left.as_ref().map(|(at, _)| *at));
            self.excuses.iter().any(|excuse| {
                excuse.covers(acquisition)
                    || left.is_some_and(|at| excuse.covers_release(acquisition, at))
                    || warned.is_some_and(|at| soon(excuse, acquisition.process(), at))
            })
        };
        // A multi-lock is lost if one of its locks is.
        let excused = |one: &Acquisition| {
            let is_part = |other: &&Acquisition| {
                one.kind == Wanted::Multi
                    && (other.kind, other.actor, other.asked) == (one.kind, one.actor, one.asked)
            };
            excused_alone(one) || self.all().filter(is_part).any(excused_alone)
        };
        let of = |what, acquisition| Breach::of_acquisition(Check::Losses, what, acquisition);
        let wrong = |is_wrong: fn(&Acquisition) -> bool| {
            self.all().filter(move |one| is_wrong(one)).filter(|one| !excused(one)).take(3)
        };
        let (revoked, gone) = (wrong(Acquisition::was_revoked), wrong(Acquisition::was_gone));
        let revoked = revoked.map(|acquisition| of("revoked", acquisition));
        revoked.chain(gone.map(|acquisition| of("gone before its release", acquisition))).collect()
    }

    /// Returns errors that no fault explains.
    fn oddities(&self) -> Vec<Breach> {
        let usual = [BUSY, CANCELLED, EXPIRED, TIMEOUT, UNAVAILABLE, REFUSED];
        let odd = self
            .all()
            .filter_map(|acquisition| acquisition.not.as_ref().map(|not| (acquisition, not)));
        let odd = odd.filter(|(_, (_, how, _))| !usual.contains(&how.as_str()));
        odd.map(|(odd, _)| Breach::of_acquisition(Check::Errors, "odd", odd)).take(3).collect()
    }

    /// Returns attempts that failed or waited for long in the phase without faults, and names that
    /// no client acquired in it.
    fn stalls(&self) -> Vec<Breach> {
        let mut found = Vec::new();
        let had =
            |acquisition: &Acquisition| acquisition.got.is_some_and(|(at, _)| at >= self.run.well);
        let nobody = !self.all().any(had);
        for (name, acquisitions) in &self.by_name {
            let well = || {
                let well = acquisitions.iter().filter(|one| one.phase == Phase::Well);
                // A job that has just run is not run again.
                well.filter(|one| one.kind != Wanted::Job)
            };
            let failed = well().filter(|acquisition| acquisition.not.is_some());
            let open = acquisitions.iter().filter(|acquisition| acquisition.is_open());
            let stalled = failed.chain(open).take(3);
            found
                .extend(stalled.map(|one| Breach::of_acquisition(Check::Liveness, "stalled", one)));
            // A kind that the store does not support was never requested. If there are many names,
            // one may be left out by chance.
            let asked = well().next().is_some()
                || (nobody && acquisitions.iter().any(|one| one.kind != Wanted::Job));
            if asked && !acquisitions.iter().any(had) {
                let text = format!("{name}: nobody had it when all was well");
                found.push(Breach::of_lock(Check::Liveness, name, Some(self.run.ended), text));
            }
            if acquisitions.iter().all(|acquisition| acquisition.mode == Mode::Exclusive) {
                let late = wake_up::check(&history::without_faults(acquisitions), WAKE_UP);
                let of = |wrong| Breach::of_history(Check::Liveness, name, &wrong);
                found.extend(late.err().map(of));
            }
        }
        found
    }
}

/// Returns the number of permits, if the lock is a semaphore.
fn capacity(acquisitions: &[Acquisition]) -> Option<u32> {
    acquisitions.iter().find_map(|acquisition| match acquisition.mode {
        Mode::Permits { of, .. } => Some(of),
        _ => None,
    })
}

/// Returns the number of overlapping holds that exclude each other.
fn overlapping(history: &History, all: Option<u32>) -> usize {
    let counted = all.map_or(0, |all| permits::excesses(history, all).count());
    exclusion::overlaps(history).count() + shared::overlaps(history).count() + counted
}

/// Returns the processes that had more open at their end than shortly after their start.
fn leaks<'a>(lines: impl IntoIterator<Item = &'a Line>) -> Vec<Breach> {
    let mut early = BTreeMap::new();
    let mut found = Vec::new();
    for line in lines {
        let What::Uses { when, fds, tasks, threads } = line.what else { continue };
        let now = [fds, tasks, threads];
        if when == When::Early {
            early.insert(line.process, now);
            continue;
        }
        // A process that ended before it was warm has no baseline.
        let Some(before) = early.get(&line.process) else { continue };
        for (what, (now, before)) in
            ["files", "tasks", "threads"].iter().zip(now.iter().zip(before))
        {
            if *now > before + MORE {
                let process = line.process;
                let text = format!("leak: process {process} has {now} {what} after {before}");
                let (process, at) = (Some(process), Some(line.at));
                found.push(Breach { process, at, ..Breach::new(Check::Leaks, text) });
            }
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use dlock_core::FencingToken;

    use super::*;
    use crate::{
        line::short,
        record::{Broke, Excuse, FaultRecord, KILL, Record, Run},
        resource::Write,
    };

    /// Returns the lines of one acquisition that was granted at 100 ns and released at 200 ns.
    fn well(hold: u64, mode: &str, name: &str) -> String {
        let ask = format!("{hold} ask {hold} well {mode} 90 {name}\n");
        ask + &format!("{hold} got 100 {hold} 500\n{hold} let 200\n{hold} left 210 released\n")
    }

    fn report(log: &str) -> Report {
        with(log, Vec::new())
    }

    fn with(log: &str, mut records: Vec<Record>) -> Report {
        let at = Instant::from_nanos;
        records.extend(short::lines(0, log).into_iter().map(Record::Did));
        records.push(Record::Run(Run {
            began: at(0),
            names: Vec::new(),
            longest_lease: Duration::from_millis(500),
            lock_delay: Duration::from_millis(1),
            faults_noted: true,
            calm: at(50),
            well: at(80),
            ended: at(40_000_000_000),
        }));
        Report::of(records).unwrap()
    }

    #[track_caller]
    fn is_wrong(log: &str, what: &str) {
        let text = report(log).check().expect_err("it is wrong").into_text();
        assert!(text.contains(what), "{text}");
    }

    #[test]
    fn a_correct_history_passes() {
        let log = well(1, "x", "a") + &well(2, "s", "b") + &well(3, "s", "b");
        let report = report(&(log + &well(4, "1/3", "c") + &well(5, "2/3", "c")));
        report.check().unwrap();
        assert_eq!(report.grants(), 5);
    }

    #[test]
    fn each_kind_of_overlap_is_found() {
        is_wrong(&(well(1, "x", "a") + &well(2, "x", "a")), "two at once");
        is_wrong(&(well(1, "x", "a") + &well(2, "s", "a")), "together with");
        is_wrong(&(well(1, "2/3", "a") + &well(2, "2/3", "a")), "4 of 3 permits");
    }

    #[test]
    fn a_grant_within_the_lock_delay_or_a_minimum_time_is_found() {
        // The lock-delay is 1 ms. The minimum time is shorter by 5 ms, for the clocks.
        let died = "1 ask 0 storm x 0 a\n1 got 10 1 40\n";
        let job = died.to_owned() + "1 let 20\n1 promise 7000000\n";
        for (first, until, what) in
            [(died, 900_000, "granted before"), (job.as_str(), 1_900_000, "granted before")]
        {
            let next = |at: u64| {
                format!("{first}2 ask 0 well x {0} a\n2 got {at} 2 {at}9\n2 let {at}1\n", at - 1)
            };
            is_wrong(&next(until), what);
            report(&next(until + 200_000)).check().unwrap();
        }
    }

    #[test]
    fn a_token_that_falls_is_found() {
        let later = well(1, "x", "a").replace("90 a", "290 a").replace("got 100", "got 300");
        let later = later.replace("let 200", "let 400").replace("left 210", "left 410");
        is_wrong(&(well(2, "x", "a") + &later), "the later has the smaller token");
    }

    #[test]
    fn failures_and_endless_waits_without_faults_are_found() {
        let right = well(1, "x", "a");
        is_wrong(&format!("{right}2 ask 2 well x 90 a\n2 not 900 Timeout late\n"), "stalled");
        is_wrong(&format!("{right}2 ask 2 storm x 90 a\n"), "stalled");
        is_wrong(
            &right.replace("well x 90", "calm x 60").replace("got 100", "got 70"),
            "nobody had it",
        );
        let late = 13_000_000_000_u64;
        let waits = format!("2 ask 2 well x 150 a\n2 got {late} 2 {late}1\n2 let {late}0\n");
        is_wrong(&(right + &waits), "was free for");
    }

    #[test]
    fn an_error_that_no_fault_explains_is_found() {
        let odd = "2 ask 2 storm x 90 a\n2 not 900 Protocol can't be read\n";
        is_wrong(&(well(1, "x", "a") + odd), "odd");
        let usual = odd.replace("Protocol", "Unavailable");
        report(&(well(1, "x", "a") + &usual)).check().unwrap();
    }

    fn write(at: u64, token: u64, passed: bool) -> Record {
        let (at, token) = (Instant::from_nanos(at), FencingToken::new(token).unwrap());
        Record::Wrote(Write { at, grant: (0, token.get()), name: "a".to_owned(), token, passed })
    }

    #[test]
    fn a_history_that_was_kept_gets_the_same_verdict() {
        let directory = tempfile::tempdir().unwrap();
        let file = directory.path().join("history");
        let log = well(1, "x", "a") + &well(2, "x", "a") + "- late 300 100\n- uses early 5 5 5\n";
        let (at, broke) = (Instant::from_nanos(7), "panicked".to_owned());
        let mut records = vec![
            Record::Fault(FaultRecord { at, until: at, fault: KILL.to_owned(), process: Some(3) }),
            Record::Fault(FaultRecord { at, until: at, fault: "flush".to_owned(), process: None }),
            Record::Broke(Broke { at, process: 0, broke }),
            write(150, 2, true),
            write(160, 1, false),
        ];
        for excuse in [None, Some(Excuse::of_any(at, Instant::from_nanos(100)))] {
            records.extend(excuse.map(Record::Excuse));
            let first = with(&log, records.clone());
            first.write_history(&file).unwrap();
            let again = Report::read_history(&file).unwrap();
            assert_eq!(again.violations(), first.violations());
            assert_eq!(again.to_string(), first.to_string());
            assert_eq!((again.excused(), again.late_writes()), (first.excused(), 1));
            assert!(!again.violations().is_empty());
        }
        std::fs::write(&file, "{\"at\":1}\n").unwrap();
        assert!(Report::read_history(&file).is_err(), "not a record");
        std::fs::write(&file, "").unwrap();
        assert!(Report::read_history(&file).is_err(), "of which run?");
    }

    #[test]
    fn excuses_are_counted_and_do_not_cover_tokens() {
        let log = well(1, "x", "a") + &well(2, "x", "a").replace("got 100", "got 150");
        let excuse = |at, until| {
            let (at, excused_until) = (Instant::from_nanos(at), Instant::from_nanos(until));
            with(&log, vec![Record::Excuse(Excuse::of_any(at, excused_until))])
        };
        assert_eq!(excuse(120, 130).excused(), 1);
        excuse(120, 130).check().unwrap();
        assert_eq!(excuse(160, 165).excused(), 0, "they overlapped before");
        assert!(excuse(160, 165).check().is_err());
        let late = write(400, 1, true);
        let excuse = Excuse::of_any(Instant::from_nanos(120), Instant::from_nanos(130));
        let records = vec![Record::Excuse(excuse), write(300, 2, true), late];
        let text = with(&log, records).check().unwrap_err().into_text();
        assert!(text.contains("passed late"), "{text}");
    }

    #[test]
    fn forbidden_acts_of_a_process_are_found() {
        let (at, broke) = (Instant::from_nanos(7), "a process has ended by itself".to_owned());
        let wrong = with(&well(1, "x", "a"), vec![Record::Broke(Broke { at, process: 2, broke })]);
        let text = wrong.check().unwrap_err().into_text();
        assert!(text.contains("process 2: a process has ended by itself; and 0 others"), "{text}");
    }

    #[test]
    fn late_losses_bypasses_and_leaks_are_found() {
        let right = well(1, "x", "a");
        let late = "2 ask 2 storm s 100 b\n2 got 110 2 120\n2 lost 200000000 expired\n";
        is_wrong(&(right.clone() + late + &well(3, "s", "b")), "late: lost()");
        let ms = 1_000_000_u64;
        let later = format!(
            "2 ask 2 storm x 300 a fair\n2 got {} 2 {}\n2 let {}\n\
             3 ask 3 storm x {} a fair\n3 got {} 3 {}\n3 let {}\n",
            1900 * ms,
            1910 * ms,
            1901 * ms,
            1700 * ms,
            1800 * ms,
            1810 * ms,
            1801 * ms
        );
        let later = later.replace(" 2 1910", " 4 1910");
        // A release that takes long shows that the store was slow.
        let released = |at: u64| {
            let (release_began, left) = (1000 * ms, at * ms);
            format!(
                "4 ask 4 storm x 300 b\n4 got 900 1 {left}\n4 let {release_began}\n4 left {left} released\n"
            )
        };
        is_wrong(&(right.clone() + &later + &released(1050)), "passed over 1 times");
        assert!(report(&(right.clone() + &later + &released(1150))).bypasses().is_empty());
        let until = 10_000 * ms;
        let stuck = format!("2 ask 2 storm x 300 a\n2 got {until} 2 {until}9\n2 let {until}\n");
        is_wrong(&(right.clone() + &stuck), "nobody had it for");
        is_wrong(&(right + "- uses early 9 9 9\n- uses end 9 99 9\n"), "99 tasks after 9");
    }

    #[test]
    fn a_little_more_is_right() {
        let right = "- uses early 20 14 5\n- uses idle 30 10 5\n- uses end 22 3 5\n";
        assert!(leaks(&short::lines(0, right)).is_empty());
        assert!(leaks(&short::lines(0, "- uses idle 300 10 5\n")).is_empty());
    }

    #[test]
    fn much_more_of_anything_is_a_leak() {
        for end in ["idle 37 10 5", "end 22 31 5", "end 22 3 22"] {
            let text = format!("- uses early 20 14 5\n- uses {end}\n");
            let [leak] = &leaks(&short::lines(7, &text))[..] else { panic!("{end}") };
            assert!(leak.process == Some(7) && leak.text.contains("process 7"), "{leak}");
        }
    }
}

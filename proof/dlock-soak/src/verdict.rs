//! The checks of a load.

use std::{collections::BTreeMap, fmt, time::Duration};

use dlock_core::{Instant, Mode};
use dlock_testkit::{
    Stop, Verdict,
    history::{History, exclusion, permits, shared, tokens, wake_up},
};
use serde::Serialize;

use super::{
    Report, bypass,
    history::{self, Acquisition},
    leaks,
    line::{BUSY, CANCELLED, Phase, REFUSED, TIMEOUT, UNAVAILABLE},
    liveness,
    record::Excuse,
    resource,
    times::Times,
};

/// The longest time for which a lock with waiters may be free in the phase without faults. It is a
/// generous limit for a busy machine.
const WAKE_UP: Duration = Duration::from_secs(12);
/// If a release takes longer, the store was not served in time: a release is one round trip.
const SLOW: Duration = Duration::from_millis(100);
/// The time for which a fault of the store or of the network may have effects after its end.
const SETTLING: Duration = Duration::from_secs(5);

/// A check.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum Check {
    /// No two holders that exclude each other hold the lock at the same time.
    Exclusion,
    /// The store knows every lock that is held.
    Losses,
    /// Tokens grow.
    Tokens,
    /// The fence of the resource refuses every late write.
    Resource,
    /// A waiter for a free lock is granted.
    Liveness,
    /// No waiter is passed over too often.
    Fairness,
    /// A holder that has lost a lock is notified in time.
    Lateness,
    /// No claim remains when all clients have ended.
    Orphans,
    /// Nothing else stays open or remains in the store.
    Leaks,
    /// No process panics, hangs, or exits unexpectedly.
    Hangs,
    /// There is no error that no fault explains.
    Errors,
}

impl fmt::Display for Check {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Exclusion => "two at once",
            Self::Losses => "lost although it was kept alive",
            Self::Tokens => "tokens out of order",
            Self::Resource => "a stale write was accepted",
            Self::Liveness => "a lost wake-up",
            Self::Fairness => "passed over",
            Self::Lateness => "a loss was reported late",
            Self::Orphans => "held by nobody",
            Self::Leaks => "left behind",
            Self::Hangs => "a panic or a hang",
            Self::Errors => "an error that no fault explains",
        })
    }
}

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
        self.demand(|check| !matches!(check, Check::Losses | Check::Exclusion))
    }

    fn demand(&self, is_asked_for: impl Fn(Check) -> bool) -> Verdict {
        let mut wrong = self.violations();
        wrong.retain(|(check, _)| is_asked_for(*check));
        let Some((check, first)) = wrong.first() else { return Ok(()) };
        let others = wrong.len() - 1;
        let what = format!("{self}; violated: {check}: {first}; and {others} others");
        // No slow machine explains these.
        let unsafe_ones = [Check::Exclusion, Check::Tokens, Check::Resource];
        match wrong.iter().any(|(check, _)| unsafe_ones.contains(check)) {
            true => Err(Stop::violation(what)),
            false => Err(Stop::failed(what)),
        }
    }

    /// Returns all violations of what must hold while the store keeps what it acknowledged, with a
    /// few examples of each kind.
    pub fn violations(&self) -> Vec<(Check, String)> {
        let found = [
            (Check::Exclusion, self.overlaps()),
            (Check::Losses, self.forgotten()),
            (Check::Tokens, self.token_violations()),
            (Check::Errors, self.oddities()),
            (Check::Liveness, [self.stalls(), self.stuck()].concat()),
            (Check::Resource, resource::check(&self.writes).err().into_iter().collect()),
            (Check::Hangs, self.broken().collect()),
            (Check::Lateness, self.lateness().check().err().into_iter().collect()),
            (Check::Fairness, self.bypasses()),
            (Check::Leaks, self.leaks()),
        ];
        let named = |(check, wrong): (Check, Vec<String>)| {
            wrong.into_iter().map(move |wrong| (check, wrong))
        };
        found.into_iter().flat_map(named).collect()
    }

    /// Returns overlapping holds that exclude each other: one example for each name and rule.
    pub fn overlaps(&self) -> Vec<String> {
        let mut found = Vec::new();
        for (name, acquisitions) in &self.by_name {
            let history = history::excused_holds(acquisitions, &self.excuses);
            let counted =
                capacity(acquisitions).map_or(Ok(()), |all| permits::check(&history, all));
            for verdict in [exclusion::check(&history), shared::check(&history), counted] {
                found.extend(verdict.err().map(|wrong| format!("{name}: {wrong}")));
            }
        }
        found
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
    pub fn token_violations(&self) -> Vec<String> {
        let mut found = Vec::new();
        for (name, acquisitions) in &self.by_name {
            let order = tokens::check(&history::grants(acquisitions));
            found.extend(order.err().map(|wrong| format!("{name}: {wrong}")));
            if acquisitions.iter().all(|acquisition| acquisition.mode == Mode::Exclusive) {
                // If two clients held the lock at the same time, either of them may have been granted
                // first.
                let holds = history::excused_holds(acquisitions, &self.excuses);
                let holders = tokens::check_holders(&holds);
                found.extend(holders.err().map(|wrong| format!("{name}: {wrong}")));
            }
        }
        found
    }

    /// Returns waits that were passed over too often: a few examples for each name. If the test did
    /// not declare [all faults noted](super::Load::with_faults_noted), the result covers only waits
    /// in the phase without faults.
    pub fn bypasses(&self) -> Vec<String> {
        let together = |all: BTreeMap<usize, Vec<_>>| -> BTreeMap<usize, Times> {
            all.into_iter().map(|(process, times)| (process, Times::of(times))).collect()
        };
        let mut fault_times: BTreeMap<usize, Vec<(Instant, Instant)>> = BTreeMap::new();
        for fault in &self.faults {
            if let Some(process) = fault.process {
                fault_times.entry(process).or_default().push((fault.at, fault.until));
            }
        }
        let mut own = bypass::standstills(self.lines());
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
            let passed = bypass::check(acquisitions, &outages, &own, self.run.ended);
            found.extend(passed.iter().take(3).map(|passed| {
                let bypass::Passed { waiter, times, allowed } = passed;
                format!("{name}: passed over {times} times, {allowed} are allowed: {waiter:?}")
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
    fn stuck(&self) -> Vec<String> {
        let bound = match self.run.faults_noted {
            true => self.run.longest_lease + liveness::BOUND,
            false => self.run.longest_lease + WAKE_UP,
        };
        let mut outages = self.store_outages();
        let of_processes = self.faults.iter().filter(|fault| fault.process.is_some());
        let felt = |until: Instant| until.saturating_add(self.run.longest_lease);
        outages.extend(of_processes.map(|fault| (fault.at, felt(fault.until))));
        let mut found = Vec::new();
        for (name, acquisitions) in &self.by_name {
            let (time, at) = liveness::longest_stuck(acquisitions, &outages, self.run.ended);
            if time > bound {
                found.push(format!("{name}: nobody had it for {time:?} until {at:?}"));
            }
        }
        found
    }

    /// Returns what processes had open at their end but not shortly after their start.
    pub fn leaks(&self) -> Vec<String> {
        leaks::check(self.lines())
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
    fn forgotten(&self) -> Vec<String> {
        // Until an answer has shown the clock step or the reset, the store's message about it may
        // also reach clients that acquired the lock shortly after it.
        let shown = self.run.longest_lease + SETTLING;
        let soon = |excuse: &Excuse, at: Instant| {
            at >= excuse.at && at <= excuse.excused_until.saturating_add(shown)
        };
        let excused = |acquisition: &&Acquisition| {
            let (warned, left) =
                (acquisition.warned(), acquisition.left.as_ref().map(|(at, _)| *at));
            self.excuses.iter().any(|excuse| {
                excuse.covers(acquisition)
                    || left.is_some_and(|at| excuse.covers_release(acquisition, at))
                    || warned.is_some_and(|at| soon(excuse, at))
            })
        };
        let kept = || self.all().filter(|acquisition| !excused(acquisition));
        let revoked = kept().filter(|acquisition| acquisition.was_revoked()).take(3);
        let revoked = revoked.map(|acquisition| format!("revoked: {acquisition:?}"));
        let gone = kept().filter(|acquisition| acquisition.was_gone()).take(3);
        revoked
            .chain(gone.map(|acquisition| format!("gone before its release: {acquisition:?}")))
            .collect()
    }

    /// Returns errors that no fault explains.
    fn oddities(&self) -> Vec<String> {
        let usual = [BUSY, CANCELLED, TIMEOUT, UNAVAILABLE, REFUSED];
        let odd = self
            .all()
            .filter_map(|acquisition| acquisition.not.as_ref().map(|not| (acquisition, not)));
        let odd = odd.filter(|(_, (_, how, _))| !usual.contains(&how.as_str()));
        odd.map(|(acquisition, _)| format!("odd: {acquisition:?}")).take(3).collect()
    }

    /// Returns attempts that failed or waited for long in the phase without faults, and names that
    /// no client acquired in it.
    fn stalls(&self) -> Vec<String> {
        let mut found = Vec::new();
        let had =
            |acquisition: &Acquisition| acquisition.got.is_some_and(|(at, _)| at >= self.run.well);
        let nobody = !self.all().any(had);
        for (name, acquisitions) in &self.by_name {
            let well =
                || acquisitions.iter().filter(|acquisition| acquisition.phase == Phase::Well);
            let failed = well().filter(|acquisition| acquisition.not.is_some());
            let open = acquisitions.iter().filter(|acquisition| acquisition.is_open());
            found.extend(
                failed.chain(open).map(|acquisition| format!("stalled: {acquisition:?}")).take(3),
            );
            // A kind that the store does not support was never requested. If there are many names,
            // one may be left out by chance.
            let asked = well().next().is_some() || (nobody && !acquisitions.is_empty());
            if asked && !acquisitions.iter().any(had) {
                found.push(format!("{name}: nobody had it when all was well"));
            }
            if acquisitions.iter().all(|acquisition| acquisition.mode == Mode::Exclusive) {
                let late = wake_up::check(&history::without_faults(acquisitions), WAKE_UP);
                found.extend(late.err().map(|wrong| format!("{name}: {wrong}")));
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

#[cfg(test)]
mod tests;

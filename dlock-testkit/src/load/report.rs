//! What came of a load.

use std::{collections::BTreeMap, fmt, time::Duration};

use dlock_core::Mode;

use super::{
    belief::{self, Tale},
    line::{BUSY, CANCELLED, Phase},
    resource::{self, Write},
};
use crate::{
    Stop, Verdict,
    history::{exclusion, permits, shared, tokens, wake_up},
    stop::ensure,
};

/// How long a lock may be free while somebody waits for it, once all is well: a backstop on a busy
/// machine.
const WAKE_UP: Duration = Duration::from_secs(12);

/// What came of a load: who held what when, and how the attempts went.
#[derive(Clone, Debug)]
pub struct Report {
    by_name: BTreeMap<String, Vec<Tale>>,
    writes: Vec<Write>,
    stormy: Duration,
    killed: usize,
}

impl Report {
    pub(super) fn of(
        tales: Vec<Tale>,
        writes: Vec<Write>,
        names: Vec<String>,
        stormy: Duration,
        killed: usize,
    ) -> Self {
        let mut by_name: BTreeMap<String, Vec<Tale>> =
            names.into_iter().map(|name| (name, Vec::new())).collect();
        for tale in tales {
            by_name.entry(tale.name.clone()).or_default().push(tale);
        }
        Self { by_name, writes, stormy, killed }
    }

    /// Checks everything that has to be so as long as the store keeps what it acknowledged.
    ///
    /// # Errors
    /// What is not, of each kind a few examples.
    pub fn check(&self) -> Verdict {
        self.demand([self.overlaps(), self.forgotten()].concat())
    }

    /// Checks what has to be so when the store loses what it knew, and lets nobody in before the
    /// leases have ended.
    ///
    /// # Errors
    /// What is not, of each kind a few examples.
    pub fn check_exclusion(&self) -> Verdict {
        self.demand(self.overlaps())
    }

    /// Checks what has to be so even when the store loses what it knew and goes on at once: tokens,
    /// and that all are well in the end.
    ///
    /// # Errors
    /// What is not, of each kind a few examples.
    pub fn check_tokens(&self) -> Verdict {
        self.demand(Vec::new())
    }

    fn demand(&self, mut wrong: Vec<String>) -> Verdict {
        wrong.extend([self.token_violations(), self.oddities(), self.stalls()].concat());
        wrong.extend(resource::check(&self.writes).err());
        ensure!(wrong.is_empty(), "{self}; violations:\n{}", wrong.join("\n"));
        Ok(())
    }

    /// Where two believed to hold what excludes each other: one example for each name and rule.
    pub fn overlaps(&self) -> Vec<String> {
        let mut found = Vec::new();
        for (name, tales) in &self.by_name {
            let history = belief::beliefs(tales);
            let capacity = tales.iter().find_map(|tale| match tale.mode {
                Mode::Permits { of, .. } => Some(of),
                _ => None,
            });
            let counted = capacity.map_or(Ok(()), |all| permits::check(&history, all));
            for verdict in [exclusion::check(&history), shared::check(&history), counted] {
                found.extend(verdict.err().map(|wrong| format!("{name}: {wrong}")));
            }
        }
        found
    }

    /// Where tokens are out of order: one example for each name and rule.
    pub fn token_violations(&self) -> Vec<String> {
        let mut found = Vec::new();
        for (name, tales) in &self.by_name {
            let order = tokens::check(&belief::grants(tales));
            found.extend(order.err().map(|wrong| format!("{name}: {wrong}")));
            if tales.iter().all(|tale| tale.mode == Mode::Exclusive) {
                let holders = tokens::check_holders(&belief::beliefs(tales));
                found.extend(holders.err().map(|wrong| format!("{name}: {wrong}")));
            }
        }
        found
    }

    /// How many holds the store did not know any more while they were to be believed.
    pub fn revoked(&self) -> usize {
        self.all().filter(|tale| tale.was_revoked()).count()
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
        self.count("Unavailable") + self.count("refused")
    }

    /// How many writes reached the resource after one of a newer holder, and were refused.
    pub fn late_writes(&self) -> usize {
        resource::late(&self.writes)
    }

    /// Holds that the store did not know any more although they were to be believed.
    fn forgotten(&self) -> Vec<String> {
        let revoked = self.all().filter(|tale| tale.was_revoked()).take(3);
        let revoked = revoked.map(|tale| format!("revoked: {tale:?}"));
        let gone = self.all().filter(|tale| tale.was_gone()).take(3);
        revoked.chain(gone.map(|tale| format!("gone before its release: {tale:?}"))).collect()
    }

    /// Errors that no fault explains.
    fn oddities(&self) -> Vec<String> {
        let usual = [BUSY, CANCELLED, "Timeout", "Unavailable", "refused"];
        let odd = self.all().filter_map(|tale| tale.not.as_ref().map(|not| (tale, not)));
        let odd = odd.filter(|(_, (_, how, _))| !usual.contains(&how.as_str()));
        odd.map(|(tale, _)| format!("odd: {tale:?}")).take(3).collect()
    }

    /// Where somebody failed or waited for long although all was well, or nobody did anything.
    fn stalls(&self) -> Vec<String> {
        let mut found = Vec::new();
        for (name, tales) in &self.by_name {
            let well = || tales.iter().filter(|tale| tale.phase == Phase::Well);
            let failed = well().filter(|tale| tale.not.is_some());
            let open = tales.iter().filter(|tale| tale.is_open());
            found.extend(failed.chain(open).map(|tale| format!("stalled: {tale:?}")).take(3));
            // A kind that the store can't do was never asked for.
            if !tales.is_empty() && well().all(|tale| tale.got.is_none()) {
                found.push(format!("{name}: nobody had it when all was well"));
            }
            if tales.iter().all(|tale| tale.mode == Mode::Exclusive) {
                let late = wake_up::check(&belief::peace(tales), WAKE_UP);
                found.extend(late.err().map(|wrong| format!("{name}: {wrong}")));
            }
        }
        found
    }

    fn all(&self) -> impl Iterator<Item = &Tale> {
        self.by_name.values().flatten()
    }

    fn count(&self, how: &str) -> usize {
        let named = |tale: &&Tale| tale.not.as_ref().is_some_and(|(_, not, _)| not == how);
        self.all().filter(named).count()
    }

    /// The longest time from asking to holding once all was well.
    fn longest_wait(&self) -> Duration {
        let well = self.all().filter(|tale| tale.phase == Phase::Well);
        let waited = well.filter_map(|tale| tale.got.map(|(at, _)| at.since(tale.asked)));
        waited.max().unwrap_or_default()
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
            self.stormy,
            self.count(BUSY),
            self.count("Timeout"),
            self.cancelled(),
            self.unavailable(),
            self.lost(),
            self.revoked(),
            self.all().filter(|tale| tale.was_gone()).count(),
            self.killed,
            self.writes.len(),
            self.late_writes(),
            self.longest_wait()
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What a process wrote of one acquisition: granted at 100 ns, let go at 200.
    fn well(hold: u64, mode: &str, name: &str) -> String {
        let ask = format!("{hold} ask {hold} well {mode} 90 {name}\n");
        ask + &format!("{hold} got 100 {hold} 500\n{hold} let 200\n{hold} left 210 released\n")
    }

    fn report(log: &str) -> Report {
        let tales = belief::read(log, 0, None).unwrap();
        let names = tales.iter().map(|tale| tale.name.clone()).collect();
        Report::of(tales, Vec::new(), names, Duration::ZERO, 0)
    }

    #[track_caller]
    fn is_wrong(log: &str, what: &str) {
        let text = report(log).check().expect_err("it is wrong").into_text();
        assert!(text.contains(what), "{text}");
    }

    #[test]
    fn what_is_right_passes() {
        let log = well(1, "x", "a") + &well(2, "s", "b") + &well(3, "s", "b");
        let report = report(&(log + &well(4, "1/3", "c") + &well(5, "2/3", "c")));
        report.check().unwrap();
        assert!(report.at_least(5).is_ok() && report.at_least(6).is_err());
    }

    #[test]
    fn each_kind_of_overlap_is_found() {
        is_wrong(&(well(1, "x", "a") + &well(2, "x", "a")), "two at once");
        is_wrong(&(well(1, "x", "a") + &well(2, "s", "a")), "together with");
        is_wrong(&(well(1, "2/3", "a") + &well(2, "2/3", "a")), "4 of 3 permits");
    }

    #[test]
    fn a_token_that_falls_is_found() {
        let later = well(1, "x", "a").replace("90 a", "290 a").replace("got 100", "got 300");
        let later = later.replace("let 200", "let 400").replace("left 210", "left 410");
        is_wrong(&(well(2, "x", "a") + &later), "the later has the smaller token");
    }

    #[test]
    fn who_fails_or_waits_for_ever_in_peace_is_found() {
        let right = well(1, "x", "a");
        is_wrong(&format!("{right}2 ask 2 well x 90 a\n2 not 900 Timeout late\n"), "stalled");
        is_wrong(&format!("{right}2 ask 2 storm x 90 a\n"), "stalled");
        is_wrong(&right.replace("well", "calm"), "nobody had it");
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
}

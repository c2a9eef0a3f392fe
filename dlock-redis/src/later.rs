//! Claims whose release is sent to a server later. There are two reasons: a master of a quorum was
//! unreachable, and needs the release when it answers again; or an acquire of the claim may arrive
//! late, so the claim is released again after its deadline (see [`unanswered`](crate::unanswered)).
//!
//! The list has each claim once, however often its release is tried, until its lease has ended. One
//! task serves all claims of a server. `claims` and `runs` change under one mutex.

use std::{collections::HashMap, time::Duration};

use dlock_core::{ClaimId, Instant, LockName};
use parking_lot::Mutex;

/// How long the release of a claim is retried, however long its lease is. It is the default lease.
pub(crate) const LATER: Duration = Duration::from_secs(30);
/// The largest number of claims of a server. Each takes about 200 bytes.
const MOST: usize = 4096;

/// The releases that a server has not received yet.
#[derive(Default)]
pub(crate) struct Later(Mutex<Debts>);

#[derive(Default)]
struct Debts {
    claims: HashMap<ClaimId, GivenUp>,
    /// Whether a task serves them.
    runs: bool,
}

/// One claim.
#[derive(Clone)]
pub(crate) struct GivenUp {
    pub(crate) name: LockName,
    pub(crate) used: u32,
    /// The earliest and the latest time for the release.
    pub(crate) from: Instant,
    pub(crate) until: Instant,
}

impl Later {
    /// Adds a claim, unless its lease has ended or there are too many. Returns true if the caller
    /// has to start the task.
    pub(crate) fn add(&self, claim: ClaimId, given_up: GivenUp, now: Instant) -> bool {
        let mut owed = self.0.lock();
        if given_up.until <= now {
            return false;
        }
        if let Some(known) = owed.claims.get_mut(&claim) {
            known.from = known.from.max(given_up.from);
            known.until = known.until.max(given_up.until);
            return false;
        }
        if owed.claims.len() >= MOST {
            owed.claims.retain(|_, other| other.until > now);
        }
        if owed.claims.len() >= MOST {
            return false;
        }
        owed.claims.insert(claim, given_up);
        !std::mem::replace(&mut owed.runs, true)
    }

    /// Forgets claims whose leases have ended. Returns false if none is left: then the task ends.
    pub(crate) fn are_left(&self, now: Instant) -> bool {
        let mut owed = self.0.lock();
        owed.claims.retain(|_, other| other.until > now);
        owed.runs = !owed.claims.is_empty();
        owed.runs
    }

    pub(crate) fn due(&self, now: Instant) -> Vec<(ClaimId, GivenUp)> {
        let owed = self.0.lock();
        let due = owed.claims.iter().filter(|(_, other)| other.from <= now);
        due.map(|(claim, other)| (*claim, other.clone())).collect()
    }

    /// Records that a release was sent at this time, and that the server answered. The claim stays
    /// if its `from` has moved past that time meanwhile.
    pub(crate) fn is_done(&self, claim: ClaimId, sent: Instant) {
        let mut owed = self.0.lock();
        if owed.claims.get(&claim).is_some_and(|other| other.from <= sent) {
            owed.claims.remove(&claim);
        }
    }

    /// Returns the number of claims.
    pub(crate) fn len(&self) -> usize {
        self.0.lock().claims.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn given_up(until: u64) -> GivenUp {
        let name = LockName::new("a").unwrap();
        let from = Instant::from_nanos(0);
        GivenUp { name, used: 0, from, until: Instant::from_nanos(until) }
    }

    #[test]
    fn a_claim_stands_once_and_no_longer_than_its_lease() {
        let (later, now) = (Later::default(), Instant::from_nanos(1));
        let claim = ClaimId::random();
        assert!(later.add(claim, given_up(5), now), "a task is started");
        for until in [5, 3] {
            assert!(!later.add(claim, given_up(until), now));
        }
        assert!(!later.add(ClaimId::random(), given_up(1), now), "its lease has ended");
        assert!(!later.add(ClaimId::random(), given_up(6), now), "a task is there");
        assert_eq!(later.len(), 2);
        assert!(later.are_left(Instant::from_nanos(5)));
        assert_eq!(later.len(), 1);
        assert!(!later.are_left(Instant::from_nanos(6)));
        assert!(later.add(claim, given_up(9), now), "the task has ended");
        later.is_done(claim, now);
        assert_eq!(later.len(), 0);
    }

    #[test]
    fn a_claim_is_given_up_not_before_its_time() {
        let (later, claim) = (Later::default(), ClaimId::random());
        let [now, then, end] = [1, 5, 9].map(Instant::from_nanos);
        later.add(claim, given_up(9), now);
        assert_eq!(later.due(now).len(), 1);
        // Another reason to release the claim arises while a release is under way.
        later.add(claim, GivenUp { from: then, ..given_up(9) }, now);
        later.is_done(claim, now);
        assert!(later.due(now).is_empty() && later.due(then).len() == 1);
        assert!(later.are_left(then) && !later.are_left(end));
    }

    #[test]
    fn claims_whose_leases_have_ended_make_room() {
        let (later, now) = (Later::default(), Instant::from_nanos(1));
        for _ in 0..MOST + 9 {
            later.add(ClaimId::random(), given_up(5), now);
        }
        assert_eq!(later.len(), MOST);
        later.add(ClaimId::random(), given_up(9), Instant::from_nanos(5));
        assert_eq!(later.len(), 1);
    }
}

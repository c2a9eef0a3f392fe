//! Claims whose release is sent to a server later. There are two reasons: a master of a quorum was
//! unreachable, and needs the release when it answers again; or an acquire of the claim may arrive
//! late, so the claim is released again until its deadline has passed (see
//! [`unanswered`](crate::unanswered)).
//!
//! The list has each claim once, however often its release is tried, until its lease has ended. One
//! task serves all claims of a server. `claims` and `task_runs` change under one mutex.

use std::{collections::HashMap, time::Duration};

use dlock_core::{ClaimId, Instant, LockName};
use parking_lot::Mutex;

/// How long the release of a claim is retried, however long its lease is. It is the default lease.
pub(crate) const RETRIED_FOR: Duration = Duration::from_secs(30);
/// The interval at which the release of a claim is repeated whose acquire may arrive late.
const REPEATED: Duration = Duration::from_secs(1);
/// The largest number of claims of a server. Each takes about 200 bytes.
const MOST: usize = 4096;

/// The releases that a server has not received yet.
#[derive(Default)]
pub(crate) struct DeferredReleases(Mutex<ReleaseList>);

#[derive(Default)]
struct ReleaseList {
    claims: HashMap<ClaimId, DeferredRelease>,
    /// Whether a task serves them.
    task_runs: bool,
}

/// One claim.
#[derive(Clone)]
pub(crate) struct DeferredRelease {
    pub(crate) name: LockName,
    pub(crate) used: u32,
    /// The earliest time for the next release.
    pub(crate) from: Instant,
    /// A release that was sent at this time or later is the last one.
    pub(crate) last: Instant,
    /// The latest time for the release.
    pub(crate) until: Instant,
}

impl DeferredReleases {
    /// Adds a claim, unless its lease has ended or there are too many. Returns true if the caller
    /// has to start the task.
    pub(crate) fn add(&self, claim: ClaimId, deferred: DeferredRelease, now: Instant) -> bool {
        let mut list = self.0.lock();
        if deferred.until <= now {
            return false;
        }
        if let Some(known) = list.claims.get_mut(&claim) {
            known.from = known.from.min(deferred.from);
            known.last = known.last.max(deferred.last);
            known.until = known.until.max(deferred.until);
            return false;
        }
        if list.claims.len() >= MOST {
            list.claims.retain(|_, other| other.until > now);
        }
        if list.claims.len() >= MOST {
            return false;
        }
        list.claims.insert(claim, deferred);
        !std::mem::replace(&mut list.task_runs, true)
    }

    /// Forgets claims whose leases have ended. Returns false if none is left: then the task ends.
    pub(crate) fn any_left(&self, now: Instant) -> bool {
        let mut list = self.0.lock();
        list.claims.retain(|_, other| other.until > now);
        list.task_runs = !list.claims.is_empty();
        list.task_runs
    }

    pub(crate) fn due(&self, now: Instant) -> Vec<(ClaimId, DeferredRelease)> {
        let list = self.0.lock();
        let due = list.claims.iter().filter(|(_, other)| other.from <= now);
        due.map(|(claim, other)| (*claim, other.clone())).collect()
    }

    /// Records that a release was sent at this time, and that the server answered. The claim stays
    /// until a release was sent at its `last` time.
    pub(crate) fn is_answered(&self, claim: ClaimId, sent: Instant) {
        let mut list = self.0.lock();
        let Some(other) = list.claims.get_mut(&claim) else { return };
        if other.last <= sent {
            list.claims.remove(&claim);
        } else {
            other.from = other.from.max(sent.saturating_add(REPEATED).min(other.last));
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

    fn deferred(until: u64) -> DeferredRelease {
        let name = LockName::new("a").unwrap();
        let from = Instant::from_nanos(0);
        DeferredRelease { name, used: 0, from, last: from, until: Instant::from_nanos(until) }
    }

    #[test]
    fn a_claim_is_listed_once_and_for_at_most_its_lease() {
        let (releases, now) = (DeferredReleases::default(), Instant::from_nanos(1));
        let claim = ClaimId::random();
        assert!(releases.add(claim, deferred(5), now), "a task is started");
        for until in [5, 3] {
            assert!(!releases.add(claim, deferred(until), now));
        }
        assert!(!releases.add(ClaimId::random(), deferred(1), now), "its lease has ended");
        assert!(!releases.add(ClaimId::random(), deferred(6), now), "a task is there");
        assert_eq!(releases.len(), 2);
        assert!(releases.any_left(Instant::from_nanos(5)));
        assert_eq!(releases.len(), 1);
        assert!(!releases.any_left(Instant::from_nanos(6)));
        assert!(releases.add(claim, deferred(9), now), "the task has ended");
        releases.is_answered(claim, now);
        assert_eq!(releases.len(), 0);
    }

    #[test]
    fn a_claim_is_not_released_before_its_time() {
        let (releases, claim) = (DeferredReleases::default(), ClaimId::random());
        let [now, then, end] = [1, 5, 9].map(Instant::from_nanos);
        releases.add(claim, deferred(9), now);
        assert_eq!(releases.due(now).len(), 1);
        // Another reason to release the claim arises while a release is under way.
        releases.add(claim, DeferredRelease { from: then, last: then, ..deferred(9) }, now);
        releases.is_answered(claim, now);
        assert!(releases.due(now).is_empty() && releases.due(then).len() == 1);
        assert!(releases.any_left(then) && !releases.any_left(end));
    }

    #[test]
    fn a_release_is_repeated_until_its_last_time() {
        let (releases, claim) = (DeferredReleases::default(), ClaimId::random());
        let at = |seconds| Instant::from_nanos(0).saturating_add(Duration::from_secs(seconds));
        let repeated = DeferredRelease { from: at(1), last: at(3), until: at(9), ..deferred(9) };
        releases.add(claim, repeated, at(0));
        for sent in 1..=3 {
            assert_eq!(releases.due(at(sent)).len(), 1, "{sent} s");
            releases.is_answered(claim, at(sent));
            assert!(releases.due(at(sent)).is_empty(), "{sent} s");
        }
        assert!(!releases.any_left(at(3)));
    }

    #[test]
    fn claims_whose_leases_have_ended_make_room() {
        let (releases, now) = (DeferredReleases::default(), Instant::from_nanos(1));
        for _ in 0..MOST + 9 {
            releases.add(ClaimId::random(), deferred(5), now);
        }
        assert_eq!(releases.len(), MOST);
        releases.add(ClaimId::random(), deferred(9), Instant::from_nanos(5));
        assert_eq!(releases.len(), 1);
    }
}

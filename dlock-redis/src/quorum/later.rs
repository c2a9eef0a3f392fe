//! Claims to be given up on one master that was away, when it answers again.
//!
//! Each stands here once, however often its release is tried, and until its lease has ended, which
//! gives it up as well. One task sees to all of a master's, so that many of them cost no task each.

use std::{collections::HashMap, sync::Arc, time::Duration};

use dlock_core::{ClaimId, Clock, Instant, LockName};
use futures_util::{StreamExt, stream};
use parking_lot::Mutex;

use super::{member::Member, vote::background};

/// For how long a claim is given up later, however long its lease is: as long as leases last by
/// default.
pub(super) const LATER: Duration = Duration::from_secs(30);
/// How often that is tried.
const AGAIN: Duration = Duration::from_millis(200);
/// And for how many claims of a master; each takes some 200 bytes.
const MOST: usize = 4096;
/// How many are sent at a time.
const AT_ONCE: usize = 16;

/// What a master is still to be told.
#[derive(Default)]
pub(super) struct Later(Mutex<Owed>);

#[derive(Default)]
struct Owed {
    claims: HashMap<ClaimId, GivenUp>,
    /// A task sees to them.
    runs: bool,
}

/// One claim.
#[derive(Clone)]
struct GivenUp {
    name: LockName,
    used: u32,
    until: Instant,
}

impl Later {
    /// Notes a claim, unless its lease has ended or there are too many; whether a task has to be
    /// started that sees to it.
    fn add(&self, claim: ClaimId, given_up: GivenUp, now: Instant) -> bool {
        let mut owed = self.0.lock();
        if given_up.until <= now || owed.claims.contains_key(&claim) {
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

    /// Forgets those whose leases have ended; whether others are left. If not, the task ends.
    fn are_left(&self, now: Instant) -> bool {
        let mut owed = self.0.lock();
        owed.claims.retain(|_, other| other.until > now);
        owed.runs = !owed.claims.is_empty();
        owed.runs
    }

    fn all(&self) -> Vec<(ClaimId, GivenUp)> {
        self.0.lock().claims.iter().map(|(claim, other)| (*claim, other.clone())).collect()
    }

    fn is_done(&self, claim: ClaimId) {
        self.0.lock().claims.remove(&claim);
    }

    /// How many claims there are.
    pub(super) fn len(&self) -> usize {
        self.0.lock().claims.len()
    }
}

/// Gives a claim up on a master as soon as it answers again, but not once its lease has ended.
pub(super) fn release_later(
    member: &Arc<Member>,
    name: &LockName,
    claim: ClaimId,
    used: u32,
    lease_ends: Instant,
) {
    let now = Clock::Boot.now();
    let until = lease_ends.min(now.saturating_add(LATER));
    if member.later.add(claim, GivenUp { name: name.clone(), used, until }, now) {
        background(see_to(Arc::clone(member)));
    }
}

async fn see_to(member: Arc<Member>) {
    loop {
        tokio::time::sleep(AGAIN.mul_f64(rand::random_range(0.5..1.0))).await;
        if !member.later.are_left(Clock::Boot.now()) {
            return;
        }
        if !member.is_up() {
            continue;
        }
        let claims = member.later.all().into_iter().map(|(claim, given_up)| {
            let member = &member;
            async move { (claim, member.release(&given_up.name, claim, given_up.used).await) }
        });
        let mut releasing = stream::iter(claims).buffer_unordered(AT_ONCE);
        while let Some((claim, answer)) = releasing.next().await {
            if answer.is_err_and(|error| error.is_transient()) {
                // It is away again.
                break;
            }
            member.later.is_done(claim);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn given_up(until: u64) -> GivenUp {
        let name = LockName::new("a").unwrap();
        GivenUp { name, used: 0, until: Instant::from_nanos(until) }
    }

    #[test]
    fn a_claim_stands_once_and_no_longer_than_its_lease() {
        let (later, now) = (Later::default(), Instant::from_nanos(1));
        let claim = ClaimId::random();
        assert!(later.add(claim, given_up(5), now), "a task is started");
        for until in [5, 9] {
            assert!(!later.add(claim, given_up(until), now));
        }
        assert!(!later.add(ClaimId::random(), given_up(1), now), "its lease has ended");
        assert!(!later.add(ClaimId::random(), given_up(6), now), "a task is there");
        assert_eq!(later.len(), 2);
        assert!(later.are_left(Instant::from_nanos(5)));
        assert_eq!(later.len(), 1);
        assert!(!later.are_left(Instant::from_nanos(6)));
        assert!(later.add(claim, given_up(9), now), "the task has ended");
        later.is_done(claim);
        assert_eq!(later.len(), 0);
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

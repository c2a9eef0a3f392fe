//! Claims that a server is to give up later: on a master of a quorum that was away, when it answers
//! again; and those an acquire of which may arrive late, when its deadline is past (see
//! [`unanswered`](crate::unanswered)).
//!
//! Each stands here once, however often its release is tried, and until its lease has ended, which
//! gives it up as well. One task sees to all of a server's, so that many of them cost no task each.

use std::{collections::HashMap, sync::Arc, time::Duration};

use dlock_core::{ClaimId, Clock, Error, Instant, LockName};
use futures_util::{StreamExt, stream};
use parking_lot::Mutex;

use crate::unanswered::Unanswered;

/// For how long a claim is given up later, however long its lease is: as long as leases last by
/// default.
pub(crate) const LATER: Duration = Duration::from_secs(30);
/// How often that is tried.
const AGAIN: Duration = Duration::from_millis(200);
/// And for how many claims of a server; each takes some 200 bytes.
const MOST: usize = 4096;
/// How many are sent at a time.
const AT_ONCE: usize = 16;

/// What a server is still to be told.
#[derive(Default)]
pub(crate) struct Later(Mutex<Debts>);

#[derive(Default)]
struct Debts {
    claims: HashMap<ClaimId, GivenUp>,
    /// A task sees to them.
    runs: bool,
}

/// One claim.
#[derive(Clone)]
struct GivenUp {
    name: LockName,
    used: u32,
    /// Not before this, and not after that.
    from: Instant,
    until: Instant,
}

/// A server that is told later.
pub(crate) trait Owed: Send + Sync + 'static {
    fn later(&self) -> &Later;

    /// The acquires that it may still get.
    fn unanswered(&self) -> &Unanswered;

    /// Whether it is worth the try.
    fn is_up(&self) -> bool;

    /// Gives a claim up; whether it was there.
    fn give_up(
        &self,
        name: &LockName,
        claim: ClaimId,
        used: u32,
    ) -> impl Future<Output = Result<bool, Error>> + Send;
}

impl Later {
    /// Notes a claim, unless its lease has ended or there are too many; whether a task has to be
    /// started that sees to it.
    fn add(&self, claim: ClaimId, given_up: GivenUp, now: Instant) -> bool {
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

    /// Forgets those whose leases have ended; whether others are left. If not, the task ends.
    fn are_left(&self, now: Instant) -> bool {
        let mut owed = self.0.lock();
        owed.claims.retain(|_, other| other.until > now);
        owed.runs = !owed.claims.is_empty();
        owed.runs
    }

    fn due(&self, now: Instant) -> Vec<(ClaimId, GivenUp)> {
        let owed = self.0.lock();
        let due = owed.claims.iter().filter(|(_, other)| other.from <= now);
        due.map(|(claim, other)| (*claim, other.clone())).collect()
    }

    /// The server was told at this time, which may have been too early by now.
    fn is_done(&self, claim: ClaimId, sent: Instant) {
        let mut owed = self.0.lock();
        if owed.claims.get(&claim).is_some_and(|other| other.from <= sent) {
            owed.claims.remove(&claim);
        }
    }

    /// How many claims there are.
    pub(crate) fn len(&self) -> usize {
        self.0.lock().claims.len()
    }
}

/// The server does not know this claim, by which nothing is asked for any more. If an acquire of it may
/// still arrive, it is given up once more afterwards.
pub(crate) fn is_over(server: &Arc<impl Owed>, name: &LockName, claim: ClaimId) {
    if let Some(past) = server.unanswered().take(claim) {
        give_up_later(server, name, claim, 0, past, past.saturating_add(LATER));
    }
}

/// Gives a claim up as soon as the server answers, from a time on, but not once the lease has ended.
pub(crate) fn give_up_later(
    server: &Arc<impl Owed>,
    name: &LockName,
    claim: ClaimId,
    used: u32,
    from: Instant,
    lease_ends: Instant,
) {
    let now = Clock::Boot.now();
    let until = lease_ends.min(now.max(from).saturating_add(LATER));
    let given_up = GivenUp { name: name.clone(), used, from, until };
    if server.later().add(claim, given_up, now) {
        background(see_to(Arc::clone(server)));
    }
}

async fn see_to(server: Arc<impl Owed>) {
    loop {
        tokio::time::sleep(AGAIN.mul_f64(rand::random_range(0.5..1.0))).await;
        let now = Clock::Boot.now();
        if !server.later().are_left(now) {
            return;
        }
        if !server.is_up() {
            continue;
        }
        let claims = server.later().due(now).into_iter().map(|(claim, given_up)| {
            let server = &server;
            async move {
                let answer = server.give_up(&given_up.name, claim, given_up.used).await;
                (given_up.name, claim, answer)
            }
        });
        let mut releasing = stream::iter(claims).buffer_unordered(AT_ONCE);
        while let Some((name, claim, answer)) = releasing.next().await {
            match answer {
                Ok(_) => is_over(&server, &name, claim),
                // It is away again.
                Err(error) if error.is_transient() => break,
                Err(_) => {}
            }
            server.later().is_done(claim, now);
        }
    }
}

/// Sees work through that nobody waits for.
pub(crate) fn background(work: impl Future<Output = ()> + Send + 'static) {
    if let Ok(runtime) = tokio::runtime::Handle::try_current() {
        runtime.spawn(work);
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
        // While it is told, a reason comes to tell it later.
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

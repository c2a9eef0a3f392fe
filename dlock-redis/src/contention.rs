//! What this client knows about the contention for its locks. It chooses the shorter of two ways to
//! the same result: the plain commands of a [`take`](crate::take), or the script; the short release, or
//! the long one. A wrong choice costs a round trip.
//!
//! The names for which claims have waited are remembered for a while, and so are the buckets whose plain
//! commands were of no use: then the script is sent at once. For a claim that took a free lock alone,
//! its renewals need to know how it did.
//!
//! All state changes under one mutex, which is held for a few operations on maps.

use std::{
    collections::HashMap,
    sync::atomic::{AtomicU32, Ordering},
    time::Duration,
};

use dlock_core::{ClaimId, Clock, FencingToken, Instant, LockName};
use parking_lot::Mutex;

use crate::keys::Bucket;

/// How long the script is sent at once after a claim has waited, or after plain commands were of no use.
const REMEMBERED_FOR: Duration = Duration::from_secs(30);
/// The largest number of names. If there are more, some are forgotten early.
const MOST: usize = 4096;

/// The claims and names of one client.
#[derive(Default)]
pub(crate) struct Contention {
    known: Mutex<Known>,
    takes: AtomicU32,
}

#[derive(Default)]
struct Known {
    /// The claims that took a free lock exclusively, with one token, and are not released yet.
    alone: HashMap<ClaimId, Alone>,
    /// The names for which claims have waited, until they are forgotten.
    contended: HashMap<LockName, Instant>,
    /// The buckets whose plain commands were of no use, until they are forgotten.
    unsuitable: HashMap<Bucket, Instant>,
}

/// A claim that took a free lock exclusively.
#[derive(Clone, Copy)]
struct Alone {
    /// The token, if plain commands took the lock.
    taken: Option<FencingToken>,
    /// Whether it has become a shared holder.
    is_shared: bool,
}

impl Contention {
    /// Counts a take. Returns the number of those before it.
    pub(crate) fn count(&self) -> u32 {
        self.takes.fetch_add(1, Ordering::Relaxed)
    }

    /// Records that a claim has taken a free lock exclusively. The token is that of plain commands.
    pub(crate) fn took_alone(&self, claim: ClaimId, taken: Option<FencingToken>) {
        self.known.lock().alone.insert(claim, Alone { taken, is_shared: false });
    }

    /// Returns the token of a claim that was granted by plain commands.
    pub(crate) fn taken(&self, claim: ClaimId) -> Option<FencingToken> {
        self.known.lock().alone.get(&claim)?.taken
    }

    /// Records that a claim becomes a shared holder.
    pub(crate) fn is_shared(&self, claim: ClaimId) {
        if let Some(alone) = self.known.lock().alone.get_mut(&claim) {
            alone.is_shared = true;
        }
    }

    /// Forgets a claim that this client does not release.
    pub(crate) fn forget(&self, claim: ClaimId) {
        self.known.lock().alone.remove(&claim);
    }

    /// Records that claims wait for this name.
    pub(crate) fn claims_wait(&self, name: &LockName) {
        let now = Clock::Boot.now();
        let mut known = self.known.lock();
        if known.contended.len() >= MOST {
            known.contended.retain(|_, until| *until > now);
        }
        if known.contended.len() >= MOST {
            known.contended.clear();
        }
        known.contended.insert(name.clone(), now.saturating_add(REMEMBERED_FOR));
    }

    /// Records that plain commands are of no use in this bucket for now.
    pub(crate) fn needs_scripts(&self, bucket: Bucket) {
        let until = Clock::Boot.now().saturating_add(REMEMBERED_FOR);
        self.known.lock().unsuitable.insert(bucket, until);
    }

    /// Returns whether plain commands can probably take this lock.
    pub(crate) fn is_calm(&self, name: &LockName) -> bool {
        let known = self.known.lock();
        if known.contended.is_empty() && known.unsuitable.is_empty() {
            return true;
        }
        let now = Clock::Boot.now();
        let is_past = |until: &Instant| *until <= now;
        !known.is_contended(name, now)
            && known.unsuitable.get(&Bucket::of(name)).is_none_or(is_past)
    }

    /// Returns whether the release of a claim can probably take the short way. It returns true once
    /// for each claim.
    pub(crate) fn ends_alone(&self, name: &LockName, claim: ClaimId) -> bool {
        let mut known = self.known.lock();
        let was_alone = known.alone.remove(&claim).is_some_and(|alone| !alone.is_shared);
        was_alone && !known.is_contended(name, Clock::Boot.now())
    }
}

impl Known {
    fn is_contended(&self, name: &LockName, now: Instant) -> bool {
        self.contended.get(name).is_some_and(|until| *until > now)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn name(number: usize) -> LockName {
        LockName::new(&format!("n{number}")).unwrap()
    }

    #[test]
    fn only_a_claim_that_is_alone_ends_alone_and_once() {
        let (contention, claim) = (Contention::default(), ClaimId::random());
        assert!(!contention.ends_alone(&name(1), claim), "its grant is not known");
        contention.took_alone(claim, None);
        assert!(contention.ends_alone(&name(1), claim));
        assert!(!contention.ends_alone(&name(1), claim), "its release was sent before");
        let token = FencingToken::new(7).ok();
        contention.took_alone(claim, token);
        contention.is_shared(claim);
        assert_eq!(contention.taken(claim), token);
        assert!(!contention.ends_alone(&name(1), claim), "it is a reader");
        contention.took_alone(claim, token);
        contention.forget(claim);
        assert_eq!(contention.taken(claim), None);
        assert!(!contention.ends_alone(&name(1), claim), "another client releases it");
    }

    #[test]
    fn scripts_serve_contended_names_and_unsuitable_buckets() {
        let contention = Contention::default();
        assert!(contention.is_calm(&name(1)));
        contention.claims_wait(&name(1));
        let elsewhere = (2..).map(name).find(|name| Bucket::of(name) != Bucket::of(&self::name(1)));
        let elsewhere = elsewhere.unwrap();
        assert!(!contention.is_calm(&name(1)) && contention.is_calm(&elsewhere));
        contention.needs_scripts(Bucket::of(&elsewhere));
        assert!(!contention.is_calm(&elsewhere));
    }

    #[test]
    fn a_contended_name_affects_no_other_and_names_are_bounded() {
        let contention = Contention::default();
        for number in 0..=MOST {
            contention.claims_wait(&name(number));
        }
        let known = contention.known.lock().contended.len();
        assert!((1..=MOST).contains(&known), "{known}");
        for (number, alone) in [(MOST, false), (MOST + 1, true)] {
            let claim = ClaimId::random();
            contention.took_alone(claim, None);
            assert_eq!(contention.ends_alone(&name(number), claim), alone, "{number}");
        }
        assert!(
            !contention
                .known
                .lock()
                .is_contended(&name(MOST), Clock::Boot.now().saturating_add(REMEMBERED_FOR))
        );
    }
}

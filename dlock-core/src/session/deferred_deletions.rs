//! Claims that have ended, and whose key the store has refused to delete.
//!
//! A store may refuse a deletion for a while, for example because a role was changed. The key of such
//! a claim lives as long as the session and keeps others out. So the claim stays in the session, and a
//! task repeats the deletion until the store confirms that there is no key. If a deletion is still
//! refused after a whole lease, and no other claim would be lost, the session is replaced: the keys
//! end with it.
//!
//! # Concurrency
//!
//! The mutex of the deferred claims is taken last. One task serves them: the call that finds `is_served`
//! unset starts it, and the task unsets it under the mutex when no claim is left.

use std::{fmt::Display, ops::Deref, sync::Arc, time::Duration};

use futures_util::{StreamExt, stream};

use super::{Life, SessionBase};
use crate::{Backoff, Clock, sync::atomic::Ordering};

/// The pauses between two rounds of deletions.
const SHORTEST: Duration = Duration::from_millis(100);
const LONGEST: Duration = Duration::from_secs(5);
/// The number of deletions that are under way at a time.
const TOGETHER: usize = 16;

impl<C: Deref<Target = Life> + Send + Sync + 'static> SessionBase<C> {
    /// Keeps a claim that has ended, since the store has refused to delete its key with this `error`.
    ///
    /// `remove` is called in the background, with growing pauses of up to 5 s, until it returns true,
    /// which means that the store has confirmed that there is no key. Then the claim is
    /// [forgotten](Self::forget). The last argument of `remove` is the time since this call. Nothing
    /// keeps the session alive during the pauses. After a lease without success, the session
    /// [ends](Self::end) if it has no other claims.
    pub fn defer_deletion<S, F>(
        session: &Arc<S>,
        claim: &Arc<C>,
        error: &impl Display,
        remove: fn(Arc<S>, Arc<C>, Duration) -> F,
    ) where
        S: Deref<Target = Self> + Send + Sync + 'static,
        F: Future<Output = bool> + Send + 'static,
    {
        let mut deferred = session.deferred.lock();
        if session.is_over() || deferred.claims.contains_key(&claim.claim()) {
            return;
        }
        tracing::warn!(target: "dlock", %error, lock.name = %claim.name(), "removing a claim failed, will be retried");
        deferred.claims.insert(claim.claim(), (Arc::clone(claim), Clock::Boot.now()));
        if std::mem::replace(&mut deferred.is_served, true) {
            return;
        }
        drop(deferred);
        let weak = Arc::downgrade(session);
        session.background(async move {
            let mut backoff = Backoff::between(SHORTEST, LONGEST);
            loop {
                backoff.wait().await;
                let Some(session) = weak.upgrade() else { return };
                if session.remove_deferred(&session, remove).await || session.is_over() {
                    return;
                }
                session.end_if_all_are_deferred();
            }
        });
    }

    /// Tries to remove each deferred claim once. Returns whether none is left.
    async fn remove_deferred<S, F>(
        &self,
        session: &Arc<S>,
        remove: fn(Arc<S>, Arc<C>, Duration) -> F,
    ) -> bool
    where
        S: Deref<Target = Self> + Send + Sync + 'static,
        F: Future<Output = bool> + Send + 'static,
    {
        let claims: Vec<_> = self.deferred.lock().claims.values().cloned().collect();
        let removals =
            stream::iter(claims).for_each_concurrent(TOGETHER, async |(claim, since)| {
                let deferred_for = Clock::Boot.now().since(since);
                if remove(Arc::clone(session), Arc::clone(&claim), deferred_for).await {
                    self.forget(&claim);
                    self.deferred.lock().claims.remove(&claim.claim());
                }
            });
        removals.await;
        let mut deferred = self.deferred.lock();
        deferred.is_served = !deferred.claims.is_empty();
        !deferred.is_served
    }

    /// Ends the session if the deletion of a claim is deferred for longer than its lease, and that
    /// of all claims is deferred. No other claim can enter meanwhile: [`claim_of`](Self::claim_of)
    /// reads `over` under the same mutex.
    fn end_if_all_are_deferred(&self) {
        let claims = self.claims.lock();
        let deferred = self.deferred.lock();
        let now = Clock::Boot.now();
        let is_late = |(claim, since): &(Arc<C>, _)| now.since(*since) >= claim.lease();
        let is_late = deferred.claims.values().any(is_late);
        if !is_late || !claims.keys().all(|claim| deferred.claims.contains_key(claim)) {
            return;
        }
        self.over.store(true, Ordering::SeqCst);
        drop((deferred, claims));
        tracing::warn!(target: "dlock", "session replaced, since claims could not be removed from it");
        self.end();
    }
}

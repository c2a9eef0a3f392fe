//! The lease of a session, and the move to a new one after an election.
//!
//! A leader that was stopped and continues may end leases that its successor has renewed. It can't
//! end those that were granted after its term: [`proof`](crate::proof) explains this. So when a
//! keepalive is answered in a later term, the session requests a new lease, uses it for all that it
//! writes from then on, and writes its marker and the keys of its claims again. A key keeps its
//! create revision, and with it its place in the queue. The earlier lease is not renewed any more,
//! and ends by itself. A key that could not be moved by then ends with it, and its claim is lost.
//! An election prolongs all leases. So when the session ends, the next one revokes all leases that
//! this one had, and repeats that until it is answered.
//!
//! A grant or a renewal counts only for a claim whose key has the current lease. So until a key is
//! moved, its holder considers the lock valid for no longer than the earlier lease was proven.
//!
//! # Concurrency
//!
//! - `Session::lease` and the term in `Session::proof` change together, under `proof`, and before
//!   the beat of the new lease is recorded. A reader reads the beat, and then compares the leases. If
//!   it sees the beat of a new lease, it sees that lease, too.
//! - A task that creates a key sets the claim's `attached` to the current lease before. So the task
//!   that moves the claims after a change finds each one that may get an earlier lease, and waits for
//!   its `stage`.
//! - Writes compare the revision of the key's last change. So one that is late changes nothing.

use std::sync::{Arc, Weak, atomic::Ordering};

use dlock_core::{Backoff, Certainty, Clock, Error};
use futures_util::{StreamExt, stream};

use crate::{
    claim::{OwnClaim, Spot, Stage},
    client::{Failure, FailureKind, LeaseRevokeRequest, PutRequest},
    connect::Granted,
    error::gone,
    proof::Proof,
    session::Session,
};

/// The number of keys that are moved at a time.
const MOVES: usize = 256;
/// The number of earlier leases that are kept in mind. There are more only if so many elections came
/// within one TTL.
const EARLIER: usize = 16;

impl Session {
    /// Returns the current lease.
    pub(crate) fn lease(&self) -> i64 {
        self.lease.load(Ordering::SeqCst)
    }

    /// Returns whether the key of a claim has the current lease.
    pub(crate) fn is_attached(&self, claim: &OwnClaim) -> bool {
        claim.attached() == self.lease()
    }

    /// Returns whether the key of a claim has an earlier lease, or may get it, and has to be moved.
    /// That of a claim that is over ends with the earlier lease, if it is not deleted before.
    pub(crate) fn is_stale(&self, claim: &OwnClaim) -> bool {
        claim.attached() != 0 && !self.is_attached(claim) && !claim.is_over()
    }

    /// Returns whether a request failed because it named an earlier lease, which has ended.
    pub(crate) fn is_outdated(&self, failure: &Failure, lease: i64) -> bool {
        failure.kind() == FailureKind::LeaseNotFound && lease != self.lease()
    }

    /// Continues with a new lease. `term` is that of an answer that was received before.
    pub(crate) async fn change_lease(self: &Arc<Self>, term: u64) -> Result<(), Failure> {
        let granted = self.grant_lease().await?;
        self.continue_with(&granted, term)
    }

    async fn grant_lease(&self) -> Result<Granted, Failure> {
        self.on_link(async |link| link.grant(self.ttl, self.heartbeat_interval()).await).await
    }

    fn continue_with(self: &Arc<Self>, granted: &Granted, term: u64) -> Result<(), Failure> {
        {
            let mut proof = self.proof.lock();
            if Clock::Boot.now() >= self.local_deadline() {
                self.end();
                let why = "the lease may have ended before the next one was granted";
                return Err(Failure::new(FailureKind::LeaseNotFound, Certainty::NotApplied, why));
            }
            *proof = Proof::of(term);
            self.remember([self.lease.swap(granted.id, Ordering::SeqCst)]);
            self.heard(granted.began);
        }
        tracing::debug!(target: "dlock", term, "new etcd lease");
        self.background(Arc::clone(self).move_all());
        Ok(())
    }

    /// Keeps leases in mind that may not be over.
    fn remember(&self, leases: impl IntoIterator<Item = i64>) {
        let mut earlier = self.earlier_leases.lock();
        earlier.extend(leases);
        let excess = earlier.len().saturating_sub(EARLIER);
        earlier.drain(..excess);
    }

    /// Revokes the leases of former sessions, the last one first, so that the next holders need not
    /// wait for their ends.
    pub(crate) fn revoke(self: &Arc<Self>, leases: Vec<i64>) {
        self.remember(leases.iter().rev().copied());
        self.background(revoke_all(Arc::downgrade(self), leases));
    }

    /// Continues with a new lease, unless the session has another one than this already, so that keys
    /// of claims that are over end with the earlier one. This is for keys that can't be deleted for
    /// want of a right: etcd then refuses all puts with their lease.
    ///
    /// The marker is written with the new lease first. If that is refused, too, the other keys could
    /// not be moved, and the earlier lease stays.
    pub(crate) async fn leave_behind(self: &Arc<Self>, lease: i64) -> Result<(), Failure> {
        let _beating = self.beating.lock().await;
        if self.lease() != lease {
            return Ok(());
        }
        let term = self.proof.lock().granted();
        let granted = self.grant_lease().await?;
        {
            let _raising = self.raising.lock().await;
            let (key, lease) = (self.marker.clone(), granted.id);
            match self.voted(PutRequest { key, lease, ..Default::default() }).await {
                Ok((header, _)) => self.epoch.store(header.revision, Ordering::SeqCst),
                Err(failure) if failure.certainty() == Certainty::NotApplied => {
                    let _ = self.ask(LeaseRevokeRequest { id: lease }).await;
                    return Err(failure);
                }
                // The marker may have the new lease.
                Err(_) => {}
            }
        }
        self.continue_with(&granted, term)
    }

    /// Moves the marker and the keys of all claims to the current lease.
    async fn move_all(self: Arc<Self>) {
        let lease = self.lease();
        if let Err(failure) = self.renew_epoch().await {
            tracing::debug!(target: "dlock", %failure, "moving the marker to a new lease failed");
        }
        let mut pause = Backoff::new();
        while !self.is_over() && self.lease() == lease {
            let stale = self.claims_where(|claim| self.is_stale(claim));
            if stale.is_empty() {
                return;
            }
            self.attach_all(stale).await;
            pause.wait().await;
        }
    }

    /// Moves the keys of these claims to the current lease, as far as that is possible now.
    pub(crate) async fn attach_all(self: &Arc<Self>, claims: Vec<Arc<OwnClaim>>) {
        let attach = async |claim: Arc<OwnClaim>| {
            if let Err(error) = self.attach(&claim).await {
                tracing::debug!(target: "dlock", %error, lock.name = %claim.name(), "moving a key to a new lease failed");
            }
        };
        stream::iter(claims).for_each_concurrent(MOVES, attach).await;
    }

    /// Moves the key of a claim to the current lease.
    pub(crate) async fn attach(&self, claim: &Arc<OwnClaim>) -> Result<(), Error> {
        if self.is_attached(claim) {
            return Ok(());
        }
        match &mut *claim.stage.lock().await {
            Stage::There(spot) => self.attach_at(claim, spot).await,
            Stage::New | Stage::Doubtful | Stage::Gone => Err(gone()),
        }
    }

    /// Like [`attach`](Self::attach), for a task that holds the claim's stage.
    pub(crate) async fn attach_at(
        &self,
        claim: &Arc<OwnClaim>,
        spot: &mut Spot,
    ) -> Result<(), Error> {
        match self.is_attached(claim) {
            true => Ok(()),
            false => Box::pin(self.write(claim, spot, claim.mode())).await,
        }
    }
}

/// Revokes leases until each of them is over, for as long as the session lives.
async fn revoke_all(weak: Weak<Session>, mut leases: Vec<i64>) {
    let mut pause = Backoff::new();
    while !leases.is_empty() {
        for id in std::mem::take(&mut leases) {
            let Some(session) = weak.upgrade().filter(|session| !session.is_over()) else { return };
            match session.ask(LeaseRevokeRequest { id }).await {
                Err(failure) if failure.kind() != FailureKind::LeaseNotFound => {
                    tracing::debug!(target: "dlock", %failure, "revoking a lease failed, will be retried");
                    leases.push(id);
                }
                _ => session.earlier_leases.lock().retain(|lease| *lease != id),
            }
        }
        pause.wait().await;
    }
}

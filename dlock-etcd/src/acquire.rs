//! Acquiring locks, or joining their queues, with one transaction.
//!
//! The transaction [creates](crate::create) the keys, and reads what is before them. All keys of a
//! transaction have one create revision. So two multi-locks have the same order in every queue that
//! they share, and can't wait for each other in a circle.
//!
//! The stages of the claims are locked for all of this. If the answer to a transaction is lost, the
//! outcome is determined before the next step: see [`epoch`](crate::epoch).

use std::sync::Arc;

use dlock_core::{
    AcquireRequest, Acquired, Certainty, Clock, ConfigIssue, Error, ErrorKind, Grant, Instant,
    Mode, Queue, session::for_now,
};
use futures_util::future::join_all;

use crate::{
    claim::{OwnClaim, Spot, Stage},
    create::Made,
    error::{conflict, gone, no_tokens},
    key::token,
    queue::Standing,
    session::Session,
};

impl Session {
    /// Takes all locks, joins all queues, or leaves no trace.
    pub(crate) async fn acquire(
        self: Arc<Self>,
        requests: Vec<AcquireRequest>,
    ) -> Result<Vec<Acquired>, Error> {
        loop {
            let claims: Vec<_> = requests.iter().map(|request| self.claim(request)).collect();
            // No lease ends while its request is under way.
            let waiting: Vec<_> = claims.iter().map(|claim| claim.wait()).collect();
            let answer = self.acquire_claims(&claims, &requests).await;
            drop(waiting);
            let Err(error) = answer else { return answer };
            // The core releases the claims that have or may have a key. The others can't get one any
            // more.
            for claim in &claims {
                let is_new = claim.stage.try_lock().is_ok_and(|stage| matches!(*stage, Stage::New));
                if is_new && claim.refused_in().is_none() {
                    self.forget(claim);
                }
            }
            let ([claim], ErrorKind::NotHeld, false) = (&*claims, error.kind(), self.is_over())
            else {
                return Err(error);
            };
            // It was lost at this moment. It is sent again, after its old key is deleted.
            if !claim.was_left() {
                Box::pin(self.clear(claim)).await?;
            }
            if claim.was_left() {
                // It was released meanwhile, by a task that deletes the key.
                return Err(error.with_certainty(Certainty::Unknown));
            }
        }
    }

    async fn acquire_claims(
        self: &Arc<Self>,
        claims: &[Arc<OwnClaim>],
        requests: &[AcquireRequest],
    ) -> Result<Vec<Acquired>, Error> {
        // Always in the order of the request. The claims of one request are in no other, so two
        // calls can't lock the same stages in different orders.
        let mut stages = Vec::with_capacity(claims.len());
        for claim in claims {
            stages.push(claim.stage.lock().await);
        }
        if claims.iter().any(|claim| claim.is_over()) {
            return Err(gone());
        }
        for (claim, stage) in claims.iter().zip(&mut stages) {
            self.undo_doubtful(claim, stage).await?;
        }
        let began = Clock::Boot.now();
        let tries = requests.iter().any(|request| request.queue == Queue::FailIfBusy);
        let made = if stages.iter().all(|stage| matches!(**stage, Stage::New)) {
            match self.create(claims, tries).await {
                Ok(made) => made,
                Err(error) => {
                    // The claims are kept, and the core releases them.
                    if error.certainty() == Certainty::Unknown {
                        stages.iter_mut().for_each(|stage| **stage = Stage::Doubtful);
                    }
                    return Err(error);
                }
            }
        } else {
            let known = stages.iter().map(|stage| match &**stage {
                Stage::There(spot) => Ok(spot.clone()),
                _ => Err(gone()),
            });
            let known = known.collect::<Result<Vec<_>, _>>()?;
            // The reads must show all that was committed before.
            let revision =
                Box::pin(self.vote()).await.map_err(|failure| for_now(failure.into()))?;
            Made::There(Box::pin(self.standings(claims, known, revision)).await)
        };
        let Made::There(made) = made else {
            claims.iter().for_each(|claim| self.forget(claim));
            return Ok(vec![Acquired::Busy; claims.len()]);
        };
        for (stage, (spot, _)) in stages.iter_mut().zip(&made) {
            **stage = Stage::There(spot.clone());
        }
        let settling = claims.iter().zip(&mut stages).zip(requests).zip(made).map(
            async |(((claim, stage), request), (_, standing))| {
                self.settle(claim, stage, standing, request, began).await
            },
        );
        // All are settled, even if one fails. The keys exist, so the core releases the claims, and a
        // right that is missing may come back. Only a claim that conflicts has left no key.
        let settled: Result<Vec<_>, _> = join_all(settling).await.into_iter().collect();
        settled.map_err(|error| match error.kind() {
            ErrorKind::Config(ConfigIssue::Capacity) if claims.len() == 1 => error,
            _ => for_now(error).with_certainty(Certainty::Unknown),
        })
    }

    /// Before a claim is sent again: deletes the key of a creation that was not answered.
    async fn undo_doubtful(&self, claim: &OwnClaim, stage: &mut Stage) -> Result<(), Error> {
        if matches!(stage, Stage::Doubtful) {
            let deleted = self.delete_own(claim).await;
            deleted.map_err(|error| error.with_certainty(Certainty::Unknown))?;
            *stage = Stage::New;
        }
        Ok(())
    }

    /// Acts on the state of a claim. `began` is a time before its request was sent.
    async fn settle(
        self: &Arc<Self>,
        claim: &Arc<OwnClaim>,
        stage: &mut Stage,
        standing: Result<Standing, Error>,
        request: &AcquireRequest,
        began: Instant,
    ) -> Result<Acquired, Error> {
        let Stage::There(spot) = stage else { return Err(gone()) };
        match standing? {
            Standing::Held { followed } => {
                Ok(Acquired::Granted(self.hold_at(claim, spot, began, followed).await?))
            }
            Standing::Behind(_) if claim.is_over() => Err(gone()),
            Standing::Behind(behind) if request.queue == Queue::Enqueue => {
                spot.behind = Some(behind);
                Ok(Acquired::Queued)
            }
            Standing::Behind(_) => {
                Box::pin(self.take_back(claim, stage)).await?;
                Ok(Acquired::Busy)
            }
            Standing::Conflict(kind, capacity) => {
                Box::pin(self.take_back(claim, stage)).await?;
                Err(conflict(kind, capacity))
            }
            Standing::Gone => {
                *stage = Stage::Gone;
                self.lose(claim);
                Err(gone())
            }
        }
    }

    /// Deletes the key, so that the claim leaves no trace.
    async fn take_back(
        self: &Arc<Self>,
        claim: &Arc<OwnClaim>,
        stage: &mut Stage,
    ) -> Result<(), Error> {
        if matches!(stage, Stage::There(_))
            && let Err(error) = self.delete_own(claim).await
        {
            claim.leave();
            self.clear_later(claim, &error);
            return Err(error);
        }
        *stage = Stage::Gone;
        self.forget(claim);
        Ok(())
    }

    /// Records that a claim, which was created at this revision, holds the lock since `at`.
    pub(crate) async fn hold(
        self: &Arc<Self>,
        claim: &Arc<OwnClaim>,
        created: i64,
        at: Instant,
        followed: bool,
    ) -> Result<Grant, Error> {
        loop {
            self.attach(claim).await?;
            if let Some(grant) = self.hold_attached(claim, created, at, followed).await? {
                return Ok(grant);
            }
        }
    }

    /// Like [`hold`](Self::hold), for a task that holds the claim's stage.
    pub(crate) async fn hold_at(
        self: &Arc<Self>,
        claim: &Arc<OwnClaim>,
        spot: &mut Spot,
        at: Instant,
        followed: bool,
    ) -> Result<Grant, Error> {
        loop {
            self.attach_at(claim, spot).await?;
            if let Some(grant) = self.hold_attached(claim, spot.created, at, followed).await? {
                return Ok(grant);
            }
        }
    }

    /// Records that the claim holds the lock. Returns `None` if its key has an earlier lease.
    async fn hold_attached(
        self: &Arc<Self>,
        claim: &Arc<OwnClaim>,
        created: i64,
        at: Instant,
        followed: bool,
    ) -> Result<Option<Grant>, Error> {
        let lease = claim.lease();
        // An answer proves nothing about the lease: this process may have been stopped.
        if !self.is_proven(lease) {
            Box::pin(self.prove_lease(lease)).await?;
        }
        let since = self.since(at, lease).ok_or_else(gone)?;
        // After the beat was read: see `lease`.
        if !self.is_attached(claim) {
            return Ok(None);
        }
        let token = token(created).ok_or_else(no_tokens)?;
        let (grant, first) = claim.grant(token, since).ok_or_else(gone)?;
        if first {
            self.granted(claim);
            // A later claim sees from the numbers that this one has its permits. A waiter behind it
            // watches only this key.
            if followed && matches!(claim.mode(), Mode::Permits { .. }) {
                self.wake_next(claim);
            }
        }
        Ok(Some(grant))
    }

    /// Writes the key of a claim with permits again, which wakes the waiter behind it: that waiter
    /// is now the next in line. If this is lost, the waiter reads after a TTL.
    fn wake_next(self: &Arc<Self>, claim: &Arc<OwnClaim>) {
        let (session, claim) = (Arc::clone(self), Arc::clone(claim));
        self.background(async move {
            let mut stage = claim.stage.lock().await;
            if let Stage::There(spot) = &mut *stage
                && let Err(error) = session.write(&claim, spot, claim.mode()).await
            {
                tracing::debug!(target: "dlock", %error, lock.name = %claim.name(), "the next waiter was not woken");
            }
        });
    }
}

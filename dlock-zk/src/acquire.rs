//! Acquiring locks, or joining their queues, with one transaction.
//!
//! The order: create the nodes, read the directories, grant or queue by the lists, and delete a node
//! again if its claim does not wait. The stages of the claims are locked for all of this. If the
//! process dies, the nodes are removed with the session. If the answer to the creation is lost, the
//! outcome is determined before the next step: see [`epoch`](crate::epoch).
//!
//! All nodes of a transaction are created or none, and they have one zxid. So two multi-locks have
//! the same order in every queue that they share, and can't wait for each other in a circle. Every
//! later step is done for each claim: an error of one leaves the nodes of the others, and the core
//! releases them.

use std::sync::Arc;

use dlock_core::{
    AcquireRequest, Acquired, Certainty, Clock, Error, ErrorKind, Grant, Instant, Mode, Queue,
    session::for_now,
};
use futures_util::future::{join_all, try_join_all};

use crate::{
    claim::{OwnClaim, Spot, Stage},
    create::{Made, NotMade},
    error::{conflict, explain, gone, no_tokens},
    node::token,
    queue::Standing,
    record::Mark,
    session::Session,
};

/// The largest size of all names together. The servers close a connection that sends more than 1
/// MiB (`jute.maxbuffer`).
const LONGEST: usize = 512 * 1024;

impl Session {
    /// Returns whether they fit into one transaction.
    pub(crate) fn fit_together(&self, requests: &[AcquireRequest]) -> bool {
        let room = requests.iter().map(|request| self.dir(&request.name).len() + 256);
        room.sum::<usize>() <= LONGEST
    }

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
            // The core releases the claims that have or may have a node. The others can't get one
            // any more.
            for claim in &claims {
                if claim.stage.try_lock().is_ok_and(|stage| matches!(*stage, Stage::New)) {
                    self.forget(claim);
                }
            }
            let [claim] = &*claims else {
                // Some may be in their queues. With this certainty the core cancels them.
                return Err(error.with_certainty(Certainty::Unknown));
            };
            if error.kind() != ErrorKind::NotHeld || self.is_over() {
                return Err(error);
            }
            // It was lost at this moment. It is sent again, after its old node is deleted.
            if !claim.was_left() {
                self.clear(claim).await.map_err(explain)?;
            }
            if claim.was_left() {
                // It was released meanwhile, by a task that deletes the node.
                return Err(error.with_certainty(Certainty::Unknown));
            }
        }
    }

    async fn acquire_claims(
        self: &Arc<Self>,
        claims: &[Arc<OwnClaim>],
        requests: &[AcquireRequest],
    ) -> Result<Vec<Acquired>, Error> {
        // Always in the order of the request. The claims of one request appear in no other, so two
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
        let is_new = stages.iter().all(|stage| matches!(**stage, Stage::New));
        // A right that it had before may come back.
        let shown = |error: Error| if is_new { error } else { for_now(error) };
        let made: Vec<Made> = if is_new {
            match self.create(claims).await {
                Ok(made) => made,
                Err(NotMade { error, doubtful: None }) => return Err(explain(error)),
                Err(NotMade { error, doubtful: Some(epoch) }) => {
                    // The claims are kept, and the core releases them.
                    for stage in &mut stages {
                        **stage = Stage::Doubtful(epoch.clone());
                    }
                    return Err(explain(error).with_certainty(Certainty::Unknown));
                }
            }
        } else {
            // A retry. The reads below must show all that was committed before.
            self.catch_up().await.map_err(|error| shown(explain(error)))?;
            let known = stages.iter().map(|stage| match &**stage {
                Stage::There(spot) => Ok((spot.clone(), None)),
                _ => Err(gone()),
            });
            known.collect::<Result<_, _>>()?
        };
        for (stage, (spot, _)) in stages.iter_mut().zip(&made) {
            **stage = Stage::There(spot.clone());
        }
        // If a later step fails, the nodes still exist. So the certainty is unknown, and the core
        // releases the claims.
        let standings =
            made.into_iter().map(async |(spot, listed)| self.standing(&spot, listed).await);
        let standings = try_join_all(standings).await;
        let standings =
            standings.map_err(|error| shown(explain(error)).with_certainty(Certainty::Unknown))?;
        let settling = claims.iter().zip(&mut stages).zip(requests).zip(standings).map(
            async |(((claim, stage), request), standing)| {
                self.settle(claim, stage, standing, request, began).await
            },
        );
        // All are settled, even if one fails.
        join_all(settling).await.into_iter().collect::<Result<_, _>>().map_err(shown)
    }

    /// Before a claim is sent again: deletes the node of a creation that was not answered.
    async fn undo_doubtful(&self, claim: &OwnClaim, stage: &mut Stage) -> Result<(), Error> {
        if matches!(stage, Stage::Doubtful(_)) {
            let removed = self.remove_at(claim, stage).await;
            removed.map_err(|error| explain(error).with_certainty(Certainty::Unknown))?;
            *stage = Stage::New;
        }
        Ok(())
    }

    /// Acts on the state of a claim. `began` is a time before its request was sent.
    async fn settle(
        self: &Arc<Self>,
        claim: &Arc<OwnClaim>,
        stage: &mut Stage,
        standing: Standing,
        request: &AcquireRequest,
        began: Instant,
    ) -> Result<Acquired, Error> {
        let Stage::There(spot) = stage else { return Err(gone()) };
        match standing {
            Standing::Held { followed } => {
                // This process may have been stopped for a while before it sent the request.
                self.prove_lease(claim.lease())
                    .await
                    .map_err(|error| explain(error).with_certainty(Certainty::Unknown))?;
                Ok(Acquired::Granted(self.hold(claim, spot, began, followed)?))
            }
            Standing::Behind(_) if claim.is_over() => Err(gone()),
            Standing::Behind(watch) if request.queue == Queue::Enqueue => {
                spot.watch = Some(watch);
                Ok(Acquired::Queued)
            }
            Standing::Behind(_) => {
                self.take_back(claim, stage).await?;
                Ok(Acquired::Busy)
            }
            Standing::Conflict(capacity) => {
                self.take_back(claim, stage).await?;
                Err(conflict(capacity))
            }
            // Like a failed read: the core releases the claim.
            Standing::Unread(format) => {
                Err(dlock_core::unknown_format(format).with_certainty(Certainty::Unknown))
            }
            Standing::Gone => {
                *stage = Stage::Gone;
                self.lose(claim);
                Err(gone())
            }
        }
    }

    /// Deletes the node, so that the claim leaves no trace.
    async fn take_back(&self, claim: &Arc<OwnClaim>, stage: &mut Stage) -> Result<(), Error> {
        if let Stage::There(spot) = stage {
            let deleted = self.delete(spot).await;
            deleted.map_err(|error| explain(error).with_certainty(Certainty::Unknown))?;
        }
        *stage = Stage::Gone;
        self.forget(claim);
        Ok(())
    }

    /// Records that the claim holds the lock.
    pub(crate) fn hold(
        self: &Arc<Self>,
        claim: &Arc<OwnClaim>,
        spot: &Spot,
        at: Instant,
        followed: bool,
    ) -> Result<Grant, Error> {
        let since = self.since(at, claim.lease());
        let token = token(spot.czxid).ok_or_else(no_tokens)?;
        let (grant, first) = claim.grant(token, since).ok_or_else(gone)?;
        if first {
            self.granted(claim);
            // A later claim can see that this one holds its permits. A waiter behind it needs the
            // mark, since it watches this node only.
            let awaited = followed || spot.watch.is_some();
            if awaited && matches!(spot.mode, Mode::Permits { .. }) {
                self.mark_granted(claim);
            }
        }
        Ok(grant)
    }

    /// Marks the node of a semaphore's claim as granted, which wakes the waiter behind it: that
    /// waiter is now the next in the queue. If the mark is lost, the waiter polls after a session
    /// timeout.
    fn mark_granted(self: &Arc<Self>, claim: &Arc<OwnClaim>) {
        let (session, claim) = (Arc::clone(self), Arc::clone(claim));
        self.background(async move {
            // Locked, so that the node is not renamed meanwhile.
            let stage = claim.stage.lock().await;
            let Stage::There(spot) = &*stage else { return };
            let (path, data) = (spot.path(), claim.record().marked(Mark::Granted).text());
            let set = || session.client.set_data(&path, data.as_bytes(), None);
            // If it fails finally, the node or the session has ended.
            let _ = session.insist(set).await;
        });
    }
}

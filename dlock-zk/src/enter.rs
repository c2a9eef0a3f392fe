//! Taking a lock, or a place in its queue.
//!
//! The order: create the node, read the directory, grant or queue by the list, and delete the node
//! again if the claim does not wait. The stage of the place is locked for all of this. If the
//! process dies, the node is removed with the session. If the answer to the creation is lost, the
//! outcome is determined before the next step: see [`epoch`](crate::epoch).

use std::sync::Arc;

use dlock_core::{
    AcquireRequest, Acquired, Certainty, Clock, Error, ErrorKind, Grant, Instant, Mode, Queue,
};

use crate::{
    create::NotMade,
    data::Mark,
    error::{conflict, explain, gone, no_tokens},
    place::{Place, Spot, Stage},
    queue::Standing,
    session::Session,
    token::token,
};

impl Session {
    /// Takes the lock, joins its queue, or leaves no trace.
    pub(crate) async fn enter(self: Arc<Self>, request: AcquireRequest) -> Result<Acquired, Error> {
        loop {
            let place = self.place(&request);
            // Its lease does not end while its request is under way.
            let asking = place.wait();
            let answer = self.enter_place(&place, &request).await;
            drop(asking);
            match answer {
                Err(error) if error.kind() == ErrorKind::NotHeld && !self.is_over() => {
                    if place.was_left() {
                        // The task that released it deletes the node.
                        return Err(error.with_certainty(Certainty::Unknown));
                    }
                    // It was lost at this moment. The claim is sent again, after its old node is
                    // deleted.
                    self.clear(&place).await.map_err(explain)?;
                    if place.was_left() {
                        // It was released meanwhile.
                        return Err(error.with_certainty(Certainty::Unknown));
                    }
                }
                answer => return answer,
            }
        }
    }

    async fn enter_place(
        self: &Arc<Self>,
        place: &Arc<Place>,
        request: &AcquireRequest,
    ) -> Result<Acquired, Error> {
        let mut stage = place.stage.lock().await;
        if place.is_over() {
            return Err(gone());
        }
        self.undo_doubtful(place, &mut stage).await?;
        let began = Clock::Boot.now();
        let (spot, listed) = match &*stage {
            Stage::New => match self.create(std::slice::from_ref(place)).await {
                Ok(made) => made.into_iter().next().ok_or_else(gone)?,
                Err(NotMade { error, doubtful: Some(epoch) }) => {
                    // The claim is kept, and the core releases it.
                    *stage = Stage::Doubtful(epoch);
                    return Err(explain(error).with_certainty(Certainty::Unknown));
                }
                Err(NotMade { error, doubtful: None }) => {
                    self.forget(place);
                    return Err(explain(error));
                }
            },
            // A retry. The read below must show all that was committed before.
            Stage::There(spot) => {
                self.catch_up().await.map_err(explain)?;
                (spot.clone(), None)
            }
            Stage::Gone | Stage::Doubtful(_) => return Err(gone()),
        };
        *stage = Stage::There(spot.clone());
        // If a later step fails, the node still exists. So the certainty is unknown, and the core
        // releases the claim.
        let standing = self.standing(&spot, listed).await;
        let standing =
            standing.map_err(|error| explain(error).with_certainty(Certainty::Unknown))?;
        self.settle(place, &mut stage, standing, request, began).await
    }

    /// Before a claim is sent again: deletes the node of a creation that was not answered.
    pub(crate) async fn undo_doubtful(
        &self,
        place: &Place,
        stage: &mut Stage,
    ) -> Result<(), Error> {
        if matches!(stage, Stage::Doubtful(_)) {
            let removed = self.remove_at(place, stage).await;
            removed.map_err(|error| explain(error).with_certainty(Certainty::Unknown))?;
            *stage = Stage::New;
        }
        Ok(())
    }

    /// Acts on the state of a claim. `began` is a time before its request was sent.
    pub(crate) async fn settle(
        self: &Arc<Self>,
        place: &Arc<Place>,
        stage: &mut Stage,
        standing: Standing,
        request: &AcquireRequest,
        began: Instant,
    ) -> Result<Acquired, Error> {
        let Stage::There(spot) = stage else { return Err(gone()) };
        match standing {
            Standing::Held { followed } => {
                // This process may have been stopped for a while before it sent the request.
                self.prove_lease(place.lease())
                    .await
                    .map_err(|error| explain(error).with_certainty(Certainty::Unknown))?;
                Ok(Acquired::Granted(self.hold(place, spot, began, followed)?))
            }
            Standing::Behind(_) if place.is_over() => Err(gone()),
            Standing::Behind(watch) if request.queue == Queue::Enqueue => {
                spot.watch = Some(watch);
                Ok(Acquired::Queued)
            }
            Standing::Behind(_) => {
                self.take_back(place, stage).await?;
                Ok(Acquired::Busy)
            }
            Standing::Conflict(capacity) => {
                self.take_back(place, stage).await?;
                Err(conflict(capacity))
            }
            // Like a failed read: the core releases the claim.
            Standing::Unread(format) => {
                Err(dlock_core::unknown_format(format).with_certainty(Certainty::Unknown))
            }
            Standing::Gone => {
                *stage = Stage::Gone;
                self.lose(place);
                Err(gone())
            }
        }
    }

    /// Deletes the node, so that the claim leaves no trace.
    async fn take_back(&self, place: &Arc<Place>, stage: &mut Stage) -> Result<(), Error> {
        if let Stage::There(spot) = stage {
            let deleted = self.delete(spot).await;
            deleted.map_err(|error| explain(error).with_certainty(Certainty::Unknown))?;
        }
        *stage = Stage::Gone;
        self.forget(place);
        Ok(())
    }

    /// Records that the claim holds the lock.
    pub(crate) fn hold(
        self: &Arc<Self>,
        place: &Arc<Place>,
        spot: &Spot,
        at: Instant,
        followed: bool,
    ) -> Result<Grant, Error> {
        let since = self.since(at, place.lease());
        let token = token(spot.czxid).ok_or_else(no_tokens)?;
        let (grant, first) = place.grant(token, since).ok_or_else(gone)?;
        if first {
            self.granted(place);
            // A later claim can see that this one holds its permits. A waiter behind it needs the
            // mark, since it watches this node only.
            let awaited = followed || spot.watch.is_some();
            if awaited && matches!(spot.mode, Mode::Permits { .. }) {
                self.mark_granted(place);
            }
        }
        Ok(grant)
    }

    /// Marks the node of a semaphore's claim as granted, which wakes the waiter behind it: that
    /// waiter is now the next in the queue. If the mark is lost, the waiter polls after a session
    /// timeout.
    fn mark_granted(self: &Arc<Self>, place: &Arc<Place>) {
        let (session, place) = (Arc::clone(self), Arc::clone(place));
        self.background(async move {
            // Locked, so that the node is not renamed meanwhile.
            let stage = place.stage.lock().await;
            let Stage::There(spot) = &*stage else { return };
            let (path, data) = (spot.path(), place.data().marked(Mark::Granted).text());
            let set = || session.client.set_data(&path, data.as_bytes(), None);
            // If it fails finally, the node or the session has ended.
            let _ = session.insist(set).await;
        });
    }
}

//! Several locks at one point of ZooKeeper's order.
//!
//! The creation is one transaction, so all nodes are created or none. Every later step is done for
//! each claim: an error of one leaves the nodes of the others, and the core releases them.

use std::sync::Arc;

use dlock_core::{AcquireRequest, Acquired, Certainty, Clock, Error};
use futures_util::future::{join_all, try_join_all};

use crate::{
    create::{Made, NotMade},
    error::{explain, gone},
    place::{Place, Stage},
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

    /// Takes all locks, or joins all queues, with one transaction. All its nodes have one zxid. So
    /// two multi-locks have the same order in every queue that they share, and can't wait for each
    /// other in a circle.
    pub(crate) async fn enter_all(
        self: Arc<Self>,
        requests: Vec<AcquireRequest>,
    ) -> Result<Vec<Acquired>, Error> {
        let places: Vec<_> = requests.iter().map(|request| self.place(request)).collect();
        // No lease ends while its request is under way.
        let asking: Vec<_> = places.iter().map(|place| place.wait()).collect();
        let answer = self.enter_places(&places, &requests).await;
        drop(asking);
        if answer.is_err() {
            // The core releases the claims that have or may have a node. The others can't get a node any more.
            for place in &places {
                if place.stage.try_lock().is_ok_and(|stage| matches!(*stage, Stage::New)) {
                    self.forget(place);
                }
            }
        }
        // Some may be in their queues. With this certainty the core cancels them.
        answer.map_err(|error| error.with_certainty(Certainty::Unknown))
    }

    async fn enter_places(
        self: &Arc<Self>,
        places: &[Arc<Place>],
        requests: &[AcquireRequest],
    ) -> Result<Vec<Acquired>, Error> {
        // Always in the order of the request. The claims of one request appear in no other, so two
        // calls can't lock the same stages in different orders.
        let mut stages = Vec::with_capacity(places.len());
        for place in places {
            stages.push(place.stage.lock().await);
        }
        if places.iter().any(|place| place.is_over()) {
            return Err(gone());
        }
        for (place, stage) in places.iter().zip(&mut stages) {
            self.undo_doubtful(place, stage).await?;
        }
        let since = Clock::Boot.now();
        let made: Vec<Made> = if stages.iter().all(|stage| matches!(**stage, Stage::New)) {
            match self.create(places).await {
                Ok(made) => made,
                Err(NotMade { error, doubtful }) => {
                    if let Some(epoch) = doubtful {
                        for stage in &mut stages {
                            **stage = Stage::Doubtful(epoch.clone());
                        }
                    }
                    return Err(explain(error));
                }
            }
        } else {
            self.catch_up().await.map_err(explain)?;
            let known = stages.iter().map(|stage| match &**stage {
                Stage::There(spot) => Ok((spot.clone(), None)),
                _ => Err(gone()),
            });
            known.collect::<Result<_, _>>()?
        };
        for (stage, (spot, _)) in stages.iter_mut().zip(&made) {
            **stage = Stage::There(spot.clone());
        }
        let standings = made
            .into_iter()
            .map(async |(spot, listed)| self.standing(&spot, listed).await.map_err(explain));
        let standings = try_join_all(standings).await?;
        let settling = places.iter().zip(&mut stages).zip(requests).zip(standings).map(
            async |(((place, stage), request), standing)| {
                self.settle(place, stage, standing, request, since).await
            },
        );
        // All are settled, even if one fails.
        join_all(settling).await.into_iter().collect()
    }
}

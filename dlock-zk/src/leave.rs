//! Giving claims up.

use std::sync::Arc;

use dlock_core::{Claim, Error, Released};
use zookeeper_client::Error as ZkError;

use crate::{
    error::explain,
    place::{Place, Spot, Stage},
    session::Session,
};

impl Session {
    /// Gives a claim up, whoever's it is.
    pub(crate) async fn leave(self: Arc<Self>, claim: Claim) -> Result<Released, Error> {
        match self.find(claim.id) {
            Some(place) => self.leave_place(&place).await,
            None => self.evict(&claim).await.map_err(explain),
        }
    }

    /// Gives up a claim of this session, when what is under way with it has been settled.
    pub(crate) async fn leave_place(&self, place: &Arc<Place>) -> Result<Released, Error> {
        // From here on its end is no loss.
        place.finish();
        let mut stage = place.stage.lock().await;
        let answer = match &*stage {
            Stage::There(spot) => self.delete(spot).await,
            Stage::New | Stage::Gone => Ok(Released::AlreadyLost),
        };
        *stage = Stage::Gone;
        drop(stage);
        self.forget(place);
        answer.map_err(explain)
    }

    /// Deletes a node, until that is certain.
    pub(crate) async fn delete(&self, spot: &Spot) -> Result<Released, ZkError> {
        let path = spot.path();
        let (answer, unsure) = self.insist(|| self.client.delete(&path, None)).await;
        let answer = match answer {
            Ok(()) => Ok(Released::Released),
            // An earlier sending may have done it.
            Err(ZkError::NoNode) if unsure => Ok(Released::Released),
            Err(ZkError::NoNode) => Ok(Released::AlreadyLost),
            Err(error) => Err(error),
        };
        if spot.worn {
            // Its numbers begin anew with it; it stays while somebody is in it.
            let _ = self.client.delete(&spot.dir, None).await;
        }
        answer
    }

    /// Deletes what another session, or an earlier one, has of a claim.
    async fn evict(&self, claim: &Claim) -> Result<Released, ZkError> {
        self.catch_up().await?;
        let dir = self.dir(&claim.name);
        let Some(children) = self.list(&dir, None).await? else { return Ok(Released::AlreadyLost) };
        let (queue, _) = crate::queue::Queue::of(&children);
        let mut released = Released::AlreadyLost;
        for node in queue.of_claim(claim.id) {
            let path = format!("{dir}/{}", node.child);
            match self.insist(|| self.client.delete(&path, None)).await {
                (Ok(()), _) | (Err(ZkError::NoNode), true) => released = Released::Released,
                (Err(ZkError::NoNode), false) => {}
                (Err(error), _) => return Err(error),
            }
        }
        Ok(released)
    }
}

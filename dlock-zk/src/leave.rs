//! Release and cancellation of claims.
//!
//! The deletion of the node is the release, and it wakes the next waiter. It is repeated until the
//! outcome is certain. If the process dies before, the node is removed with the session.

use std::sync::Arc;

use dlock_core::{Claim, Error, Format, Released};
use zookeeper_client::Error as ZkError;

use crate::{
    data::Data,
    error::{explain, is_over},
    place::{Place, Spot, Stage},
    session::Session,
};

impl Session {
    /// Releases or cancels a claim, which may belong to another client.
    pub(crate) async fn leave(self: Arc<Self>, claim: Claim) -> Result<Released, Error> {
        let Some(place) = self.find(claim.id) else {
            return self.evict(&claim).await;
        };
        // From here on its end is no loss, unless it was one before.
        let lost = place.leave();
        let released = self.clear(&place).await.map_err(explain)?;
        Ok(if lost { Released::AlreadyLost } else { released })
    }

    /// Deletes the node of a claim of this session, and forgets the claim.
    pub(crate) async fn clear(&self, place: &Arc<Place>) -> Result<Released, ZkError> {
        // Waits for a creation or a renaming that is under way: see `place`.
        let mut stage = place.stage.lock().await;
        let answer = match &*stage {
            Stage::There(spot) => self.delete(spot).await,
            Stage::New | Stage::Gone => Ok(Released::AlreadyLost),
        };
        if answer.is_ok() {
            *stage = Stage::Gone;
        }
        drop(stage);
        self.forget(place);
        answer
    }

    /// Deletes a node, and repeats that until the outcome is certain.
    pub(crate) async fn delete(&self, spot: &Spot) -> Result<Released, ZkError> {
        let path = spot.path();
        let answer = self.delete_path(&path).await;
        if spot.worn {
            // With a new directory the numbers start again. The servers refuse to delete it while
            // it has children.
            let _ = self.answer(self.client.delete(&spot.dir, None)).await;
        }
        answer
    }

    pub(crate) async fn delete_path(&self, path: &str) -> Result<Released, ZkError> {
        let mut unsure = false;
        loop {
            let (answer, unknown) = self.insist(|| self.client.delete(path, None)).await;
            unsure |= unknown;
            return match answer {
                Ok(()) => Ok(Released::Released),
                // An earlier sending may have deleted it.
                Err(ZkError::NoNode) if unsure => Ok(Released::Released),
                Err(ZkError::NoNode) => Ok(Released::AlreadyLost),
                Err(error) if error == ZkError::NoAuth || is_over(&error) => Err(error),
                Err(error) if self.is_over() => Err(error),
                // Not abandoned after any other error: the node would block the lock for as long as
                // the session lives.
                Err(error) => {
                    tracing::warn!(target: "dlock", %error, path, "deleting a node failed, will be retried");
                    tokio::time::sleep(self.patience()).await;
                    continue;
                }
            };
        }
    }

    /// Deletes the nodes of a claim that belong to another or an earlier session.
    async fn evict(&self, claim: &Claim) -> Result<Released, Error> {
        self.catch_up().await.map_err(explain)?;
        let dir = self.dir(&claim.name);
        let mut released = Released::AlreadyLost;
        // Repeated until none is left, since its client may rename the node meanwhile.
        while let Some(queue) = self.list(&dir).await.map_err(explain)? {
            let mut nodes = queue.of_claim(claim.id).peekable();
            if nodes.peek().is_none() {
                break;
            }
            for node in nodes {
                let path = format!("{dir}/{}", node.child);
                match self.read(|| self.client.get_data(&path)).await {
                    Ok((data, _)) => {
                        if let Some(format) = Data::parse(&data).and_then(|data| data.newer()) {
                            return Err(Format::unknown(format));
                        }
                    }
                    // The ACL may permit to delete the node of another session, but not to read it.
                    Err(ZkError::NoNode | ZkError::NoAuth) => {}
                    Err(error) => return Err(explain(error)),
                }
                if self.delete_path(&path).await.map_err(explain)? == Released::Released {
                    released = Released::Released;
                }
            }
        }
        Ok(released)
    }
}

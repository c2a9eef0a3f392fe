//! Release and cancellation of claims.
//!
//! The deletion of the node is the release, and it wakes the next waiter. It is repeated until the
//! outcome is certain. If the servers refuse it, the claim stays with the session, which repeats
//! the deletion in the background. If the process dies before, the node is removed with the
//! session.

use std::{sync::Arc, time::Duration};

use dlock_core::{Claim, Error, Released, session::SessionBase, unknown_format};
use zookeeper_client::Error as ZkError;

use crate::{
    claim::{OwnClaim, Spot, Stage},
    error::explain,
    record::Record,
    session::Session,
};

impl Session {
    /// Releases or cancels a claim, which may belong to another client.
    pub(crate) async fn release(self: Arc<Self>, claim: Claim) -> Result<Released, Error> {
        let Some(own) = self.find(claim.id) else {
            return self.evict(&claim).await;
        };
        // From here on its end is no loss, unless it was one before.
        let lost = own.leave();
        let released = self.clear(&own).await.map_err(explain)?;
        Ok(if lost { Released::AlreadyLost } else { released })
    }

    /// Deletes the node of a claim of this session, and forgets the claim. If the servers refuse
    /// that, the deletion is repeated in the background for as long as the session lives.
    pub(crate) async fn clear(
        self: &Arc<Self>,
        claim: &Arc<OwnClaim>,
    ) -> Result<Released, ZkError> {
        let answer = self.remove(claim).await;
        match &answer {
            Ok(_) => self.forget(claim),
            Err(error) => SessionBase::defer_deletion(self, claim, error, remove_again),
        }
        answer
    }

    /// Deletes the node of a claim of this session.
    async fn remove(&self, claim: &OwnClaim) -> Result<Released, ZkError> {
        // Waits for a creation or a renaming that is under way: see `claim`.
        let mut stage = claim.stage.lock().await;
        self.remove_at(claim, &mut stage).await
    }

    /// Deletes the node of a claim whose stage is locked.
    pub(crate) async fn remove_at(
        &self,
        claim: &OwnClaim,
        stage: &mut Stage,
    ) -> Result<Released, ZkError> {
        let released = match &*stage {
            Stage::There(spot) => match self.delete(spot).await? {
                // The answer to a renaming may have been lost.
                Released::AlreadyLost if spot.is_renamed => self.delete_all(claim).await?,
                released => released,
            },
            Stage::Doubtful(epoch) => {
                self.settle_creation(epoch.as_deref()).await?;
                self.delete_all(claim).await?
            }
            Stage::New | Stage::Gone => Released::AlreadyLost,
        };
        *stage = Stage::Gone;
        Ok(released)
    }

    /// Deletes all nodes of a claim in this session.
    async fn delete_all(&self, claim: &OwnClaim) -> Result<Released, ZkError> {
        let dir = self.dir(claim.name());
        let mut released = Released::AlreadyLost;
        while let Some(spot) = self.find_own(claim, &dir).await? {
            if self.delete(&spot).await? == Released::Released {
                released = Released::Released;
            }
        }
        Ok(released)
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
        match self.insist(|| self.client.delete(path, None)).await {
            (Ok(()), _) => Ok(Released::Released),
            // An earlier sending may have deleted it.
            (Err(ZkError::NoNode), true) => Ok(Released::Released),
            (Err(ZkError::NoNode), false) => Ok(Released::AlreadyLost),
            (Err(error), _) => Err(error),
        }
    }

    /// Deletes the nodes of a claim that belong to another or an earlier session.
    async fn evict(&self, claim: &Claim) -> Result<Released, Error> {
        self.catch_up().await.map_err(explain)?;
        let dir = self.dir(&claim.name);
        let mut released = Released::AlreadyLost;
        // Repeated until none is left, since its client may rename the node meanwhile.
        while let Some(queue) = self.listing(&dir).await.map_err(explain)? {
            let mut nodes = queue.of_claim(claim.id).peekable();
            if nodes.peek().is_none() {
                break;
            }
            for node in nodes {
                let path = format!("{dir}/{}", node.child);
                match self.read(|| self.client.get_data(&path)).await {
                    Ok((data, _)) => {
                        if let Some(format) = Record::parse(&data).and_then(|record| record.newer) {
                            return Err(unknown_format(format));
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

/// Tries again to delete the node of a claim that has ended. Returns whether it is gone.
async fn remove_again(session: Arc<Session>, claim: Arc<OwnClaim>, _: Duration) -> bool {
    session.remove(&claim).await.is_ok()
}

//! Epochs, which make the outcome of a creation certain if its answer was lost.
//!
//! A request may arrive for as long as the session lives. A follower that was partitioned from its
//! leader keeps the requests of its clients, and submits them when it reconnects, although the
//! clients have long moved to another server. The leader refuses the requests of a session that has
//! moved. But the follower also submits the client's attempt to reconnect to it, and then the
//! session belongs to that follower again. No heartbeat and no `sync` is ordered behind such a
//! request, and its node would stay in the queue for as long as the session.
//!
//! So every creation is one transaction with a write to a node of the session, its *epoch*. After
//! an unknown outcome that node is deleted, and another one is created. A creation with the old
//! epoch has been executed by then, or is refused.
//!
//! A server that decides alone closes a session's old connection before it opens the next one. So
//! no request is late there, and there are no epochs.

use std::sync::Arc;

use dlock_core::ClaimId;
use zookeeper_client::{CreateMode, Error as ZkError};

use crate::session::Session;

impl Session {
    /// Returns the epoch node to which a creation has to write, if there are epochs.
    pub(crate) async fn epoch(&self) -> Result<Option<Arc<str>>, ZkError> {
        // With a single server, no request can be submitted late.
        if self.servers.is_alone {
            return Ok(None);
        }
        let mut current = self.epoch.lock().await;
        if current.is_none() {
            *current = Some(self.begin_epoch().await?.into());
        }
        Ok(current.clone())
    }

    /// Ends an epoch. After this, no creation of this epoch can be executed any more, and the next
    /// read shows those that were.
    pub(crate) async fn end_epoch(&self, epoch: &str) -> Result<(), ZkError> {
        let mut current = self.epoch.lock().await;
        if current.as_deref() == Some(epoch) {
            self.delete_path(epoch).await?;
            // If the next one can't be created, the next creation gets the error.
            *current = self.begin_epoch().await.ok().map(Arc::from);
        }
        Ok(())
    }

    /// Creates an epoch node. Each attempt has a new name, so that a creation of an earlier epoch
    /// can't be executed in this one. If the creation of a node was not answered, the node is
    /// removed with the session.
    ///
    /// The names are random and not numbered by the server: its counter has 32 bits, outlives every
    /// session, and repeats its last number after an overflow.
    pub(crate) async fn begin_epoch(&self) -> Result<String, ZkError> {
        let node = CreateMode::Ephemeral.with_acls(self.acl.for_driver());
        let make = || async {
            // The directory of a lock can't have this name.
            let path = format!("{}/%session-{}", self.root(), ClaimId::random());
            self.client.create(&path, b"", &node).await.map(|_| path)
        };
        loop {
            match self.insist(make).await.0 {
                Ok(path) => return Ok(path),
                // The root was empty and the servers have just removed it, or it was never created.
                Err(ZkError::NoNode) if !self.root().is_empty() => self.make_root().await?,
                Err(error) => return Err(error),
            }
        }
    }
}

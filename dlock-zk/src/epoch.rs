//! What makes certain that a creation that was not answered has come, or never will.
//!
//! A request may be on its way for as long as the session lives: a follower that was cut off from
//! its leader keeps what its clients have sent, and hands it in when it is back, though they have
//! long gone to another server and asked there. The leader refuses what another server has for a
//! session, but the follower also hands in that the client had tried to come back to it, and then
//! the session is the follower's once more. No heartbeat and no `sync` is sent behind such a
//! request, and the node that it makes would stand in the queue for as long as the session.
//!
//! So every creation is one transaction with a write to a node of the session, its *epoch*. After
//! an unknown outcome that node is deleted, and another one made: what carries the old one has come
//! by then, or is refused.
//!
//! A server that decides alone closes a session's old connection before it opens the next one, so
//! nothing is late there, and there are no epochs.

use std::sync::Arc;

use dlock_core::ClaimId;
use zookeeper_client::{CreateMode, Error as ZkError};

use crate::session::Session;

impl Session {
    /// The node that a creation has to write to just now, if it has to.
    pub(crate) async fn epoch(&self) -> Result<Option<Arc<str>>, ZkError> {
        // No server can hand requests of this session in late for another one.
        if self.servers.is_alone {
            return Ok(None);
        }
        let mut current = self.epoch.lock().await;
        if current.is_none() {
            *current = Some(self.begin_epoch().await?.into());
        }
        Ok(current.clone())
    }

    /// When this is answered, no creation of this epoch comes any more, and the next read shows
    /// those that have come.
    pub(crate) async fn end_epoch(&self, epoch: &str) -> Result<(), ZkError> {
        let mut current = self.epoch.lock().await;
        if current.as_deref() == Some(epoch) {
            self.delete_path(epoch).await?;
            // What keeps the next one from being made is told to who asks for it.
            *current = self.begin_epoch().await.ok().map(Arc::from);
        }
        Ok(())
    }

    /// No epoch has the name of another one: what was asked for in that one can't come in this
    /// one. So each sending has a name of its own, and a node whose own creation was not answered is
    /// left to go with the session.
    ///
    /// The server does not number them: the root's counter has 32 bits and outlives every session,
    /// and behind its last number it would give the same one again.
    pub(crate) async fn begin_epoch(&self) -> Result<String, ZkError> {
        let node = CreateMode::Ephemeral.with_acls(self.acl.for_driver());
        let make = || async {
            // No lock's directory has this name.
            let path = format!("{}/%session-{}", self.root(), ClaimId::random());
            self.client.create(&path, b"", &node).await.map(|_| path)
        };
        loop {
            match self.insist(make).await.0 {
                Ok(path) => return Ok(path),
                // The root was empty, and has been cleaned up just now; or nobody has made it yet.
                Err(ZkError::NoNode) if !self.root().is_empty() => self.make_root().await?,
                Err(error) => return Err(error),
            }
        }
    }
}

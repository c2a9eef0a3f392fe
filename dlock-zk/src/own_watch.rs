//! Watching the nodes of this session's claims, which other clients may delete.
//!
//! This client's own release deletes a node as well, and a downgrade renames it. So an event counts
//! as a loss only if the claim still expects a node of that name, which is read under the lock of
//! its stage.

use std::sync::atomic::{AtomicBool, Ordering};

use dlock_core::Backoff;
use zookeeper_client::{Error as ZkError, EventType};

use crate::{
    claim::{OwnClaim, OwnWatch, Stage},
    error::is_over,
    session::Session,
};

/// The state of a claim's own node.
pub(crate) enum OwnNode {
    /// It exists, and this reports the next change.
    Watched(OwnWatch),
    /// Another client has deleted it.
    Gone,
    /// The servers refuse a watch, for example because a right is missing for a while.
    Refused,
    /// The claim was released, or the session is over.
    Over,
}

impl Session {
    /// Waits until another client deletes the node of a claim. `is_watched` is set while the server
    /// would report that. If this is dropped, the watch stays with the claim.
    pub(crate) async fn until_own_node_is_deleted(
        &self,
        claim: &OwnClaim,
        is_watched: &AtomicBool,
    ) {
        let mut pause = Backoff::new();
        loop {
            match self.watch_own(claim).await {
                OwnNode::Watched(watch) => {
                    let mut borrowed = BorrowedWatch { claim, watch: Some(watch) };
                    is_watched.store(true, Ordering::SeqCst);
                    let changed = borrowed.changed().await;
                    is_watched.store(false, Ordering::SeqCst);
                    let Some((event_type, child)) = changed else { continue };
                    match event_type {
                        EventType::Session => break,
                        // Without a second read: a grant that was derived from a later event must
                        // not count.
                        EventType::NodeDeleted if claim.is_named(&child).await => return,
                        _ => {}
                    }
                }
                OwnNode::Gone => return,
                OwnNode::Refused => pause.wait().await,
                OwnNode::Over => break,
            }
        }
        // The end of the session or of the claim is reported elsewhere.
        std::future::pending().await
    }

    /// Sets a watch for the next change of a claim's node.
    pub(crate) async fn watch_own(&self, claim: &OwnClaim) -> OwnNode {
        if let Some(watch) = claim.take_watch() {
            return OwnNode::Watched(watch);
        }
        loop {
            let Stage::There(spot) = claim.stage.lock().await.clone() else { return OwnNode::Over };
            let path = spot.path();
            // Not with exists, which leaves a watch on the server if there is no node.
            match self.poll(|| self.client.get_and_watch_data(&path)).await {
                Ok((_, _, watcher)) => {
                    let event = Box::pin(self.alive.clone().event(watcher));
                    return OwnNode::Watched(OwnWatch { event, child: spot.child });
                }
                Err(ZkError::NoNode) if claim.is_named(&spot.child).await => return OwnNode::Gone,
                // It was renamed, or the claim was released.
                Err(ZkError::NoNode) => {}
                Err(error) if is_over(&error) || self.is_over() => return OwnNode::Over,
                Err(_) => return OwnNode::Refused,
            }
        }
    }
}

impl OwnClaim {
    /// Returns whether its node has, or should have, this name.
    async fn is_named(&self, child: &str) -> bool {
        matches!(&*self.stage.lock().await, Stage::There(spot) if spot.child == child)
    }
}

/// A watch that returns to its claim when it is dropped.
struct BorrowedWatch<'a> {
    claim: &'a OwnClaim,
    watch: Option<OwnWatch>,
}

impl BorrowedWatch<'_> {
    /// Returns the event, and the name of the node.
    async fn changed(&mut self) -> Option<(EventType, String)> {
        let event = self.watch.as_mut()?.event.as_mut().await;
        let watch = self.watch.take()?;
        // Without the driver, the session is over.
        Some((event.map_or(EventType::Session, |event| event.event_type), watch.child))
    }
}

impl Drop for BorrowedWatch<'_> {
    fn drop(&mut self) {
        if let Some(watch) = self.watch.take() {
            self.claim.keep_watch(watch);
        }
    }
}

//! Watching the nodes of this session's claims, which others may delete.

use zookeeper_client::{Error as ZkError, EventType};

use crate::{
    place::{OwnWatch, Place, Stage},
    session::Session,
};

/// What is known of a claim's own node.
pub(crate) enum Own {
    /// It is there, and this tells of the next change.
    Watched(OwnWatch),
    /// It was deleted.
    Gone,
    /// The claim was given up, or the session is over.
    Over,
}

impl Session {
    /// Waits until somebody deletes the node of a claim that nobody gave up. Dropped, it leaves
    /// its watch with the place.
    pub(crate) async fn own_node_goes(&self, place: &Place) {
        loop {
            match self.watch_own(place).await {
                Own::Watched(watch) => {
                    let mut kept = Kept { place, watch: Some(watch) };
                    let Some((event_type, child)) = kept.changed().await else { continue };
                    match event_type {
                        EventType::Session => break,
                        // Told without another look: a turn that came after it must not be taken.
                        EventType::NodeDeleted if place.is_named(&child).await => return,
                        _ => {}
                    }
                }
                Own::Gone => return,
                Own::Over => break,
            }
        }
        // That the session or the claim is over is told otherwise.
        std::future::pending().await
    }

    /// Has the server tell of the next change to a claim's node.
    pub(crate) async fn watch_own(&self, place: &Place) -> Own {
        if let Some(watch) = place.take_watch() {
            return Own::Watched(watch);
        }
        loop {
            let Stage::There(spot) = place.stage.lock().await.clone() else { return Own::Over };
            let path = spot.path();
            // Not by exists, whose watch stays where there is no node.
            match self.poll(|| self.client.get_and_watch_data(&path)).await {
                Ok((_, _, watcher)) => {
                    let event = Box::pin(watcher.changed());
                    return Own::Watched(OwnWatch { event, child: spot.child });
                }
                Err(ZkError::NoNode) if place.is_named(&spot.child).await => return Own::Gone,
                // It has another name by now, or was given up.
                Err(ZkError::NoNode) => {}
                Err(_) => return Own::Over,
            }
        }
    }
}

impl Place {
    /// Whether its node has, or should have, this name.
    async fn is_named(&self, child: &str) -> bool {
        matches!(&*self.stage.lock().await, Stage::There(spot) if spot.child == child)
    }
}

/// A watch that goes back to its place when it is not needed any more.
struct Kept<'a> {
    place: &'a Place,
    watch: Option<OwnWatch>,
}

impl Kept<'_> {
    /// What has happened, and to which name.
    async fn changed(&mut self) -> Option<(EventType, String)> {
        let event = self.watch.as_mut()?.event.as_mut().await;
        let watch = self.watch.take()?;
        Some((event.event_type, watch.child))
    }
}

impl Drop for Kept<'_> {
    fn drop(&mut self) {
        if let Some(watch) = self.watch.take() {
            self.place.keep_watch(watch);
        }
    }
}

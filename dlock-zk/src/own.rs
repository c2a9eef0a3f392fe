//! Watching the nodes of this session's claims, which others may delete.

use std::sync::{Arc, Weak};

use zookeeper_client::{Error as ZkError, EventType, OneshotWatcher};

use crate::{
    place::{Place, Stage},
    session::Session,
};

/// What is known of a claim's own node.
enum Own {
    /// It is there, by this name, and the watcher tells of the next change.
    Watched(OneshotWatcher, String),
    /// It was deleted.
    Gone,
    /// The claim was given up, or the session is over.
    Over,
}

impl Session {
    /// Waits until somebody deletes the node of a claim that nobody gave up.
    pub(crate) async fn own_node_goes(&self, place: &Place) {
        loop {
            match self.watch_own(place).await {
                Own::Watched(watcher, child) => match watcher.changed().await.event_type {
                    EventType::Session => break,
                    // Told without another look: a turn that came after it must not be taken.
                    EventType::NodeDeleted if place.is_named(&child).await => return,
                    _ => {}
                },
                Own::Gone => return,
                Own::Over => break,
            }
        }
        // That the session or the claim is over is told otherwise.
        std::future::pending().await
    }

    async fn watch_own(&self, place: &Place) -> Own {
        loop {
            let Stage::There(spot) = place.stage.lock().await.clone() else { return Own::Over };
            let path = spot.path();
            // Not by exists, whose watch stays where there is no node.
            match self.read(|| self.client.get_and_watch_data(&path)).await {
                Ok((_, _, watcher)) => return Own::Watched(watcher, spot.child),
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

/// Watches the node of a claim that is held, and tells when it goes.
pub(crate) async fn watch(session: Weak<Session>, place: Arc<Place>) {
    loop {
        let Some(strong) = session.upgrade() else { return };
        let watcher = match strong.watch_own(&place).await {
            Own::Watched(watcher, _) => watcher,
            Own::Gone => return strong.lose(&place),
            Own::Over => return,
        };
        // The watch must not keep the session open.
        drop(strong);
        tokio::select! {
            event = watcher.changed() => {
                if event.event_type == EventType::Session {
                    return;
                }
            }
            () = place.until_over() => return,
        }
    }
}

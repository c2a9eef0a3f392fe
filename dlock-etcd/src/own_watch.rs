//! The watch of a claim's own key, which somebody may delete.
//!
//! It costs two messages, so a claim is watched only if it is held for a second. It continues
//! with the watch that the claim may have had as a waiter: see [`wait`](crate::wait).

use std::sync::{Arc, Weak};

use dlock_core::Backoff;

use crate::{
    claim::{OwnClaim, OwnWatch, Stage, own_key},
    client::Seen,
    session::{Session, replaced},
};

/// Waits until the key of a held claim is deleted by somebody else, or the claim has ended. `own` is
/// a watch that is set, and that has reported nothing since the key was last read.
pub(crate) async fn watch_until_lost(
    weak: Weak<Session>,
    claim: Arc<OwnClaim>,
    mut own: Option<OwnWatch>,
) {
    let mut pause = Backoff::new();
    loop {
        let Some(session) = weak.upgrade() else { return };
        let Stage::There(spot) = claim.stage.lock().await.clone() else { return };
        let mut watch = match own.take() {
            Some(own) => own,
            // Boxed, here and below: many claims wait here, and few of them ask anything.
            None => match Box::pin(session.link()).await {
                Ok(link) => claim.watch_own(&link, spot.created),
                Err(_) if claim.is_over() => return,
                Err(_) => {
                    pause.wait().await;
                    continue;
                }
            },
        };
        let mut replaced = std::pin::pin!(replaced(session.link.subscribe(), watch.link));
        drop(session);
        loop {
            let seen = tokio::select! {
                // A release ends the watch, too. To cancel it before would only delay the hand-off.
                () = claim.until_over() => {
                    drop(claim.stage.lock().await);
                    return;
                }
                () = replaced.as_mut() => break,
                seen = watch.watch.next() => seen,
            };
            let Some(session) = weak.upgrade() else { return };
            let revision = match seen {
                // This member may be behind the one that created the key.
                Ok(Seen::Created { revision }) => revision.max(spot.created),
                // Nobody else creates this key, so its deletion is the loss.
                Ok(Seen::Changed { .. }) => {
                    session.lose(&claim);
                    return;
                }
                Err(_) => break,
            };
            match Box::pin(session.read(vec![own_key(&claim)], revision)).await {
                Ok((_, read)) => {
                    if !read.iter().any(|own| own.create_revision == spot.created) {
                        session.lose(&claim);
                        return;
                    }
                }
                Err(_) => break,
            }
        }
        pause.wait().await;
    }
}

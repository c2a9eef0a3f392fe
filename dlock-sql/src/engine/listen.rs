//! The task that listens for notes of grants, where the database can tell.
//!
//! A note may get lost, so it only makes a wait shorter: the reader looks now and then all the same,
//! and often while nobody listens. When it finds a grant that a note should have told of long ago,
//! the ears are opened anew: a connection is taken for dead, whatever the system thinks of it.

use std::{sync::Arc, time::Duration};

use tokio::{select, sync::oneshot};

use super::{conn::Ears, note::Note, waiters::Waiters};

/// The pause before the second try to connect, which grows to the longest.
const PAUSE: Duration = Duration::from_millis(20);
const LONGEST: Duration = Duration::from_secs(2);

/// Listens until the engine is dropped. The ears are open.
pub(crate) async fn listen<E: Ears>(
    mut ears: E,
    waiters: Arc<Waiters>,
    mut closed: oneshot::Receiver<()>,
) {
    let listening = async {
        loop {
            waiters.listens(true);
            loop {
                select! {
                    heard = ears.next() => match heard {
                        Ok(text) => {
                            if let Some(note) = Note::read(&text) {
                                waiters.told(&note);
                            }
                        }
                        Err(error) => {
                            tracing::debug!(target: "dlock", %error, "the ears were lost");
                            break;
                        }
                    },
                    () = waiters.missed() => {
                        tracing::debug!(target: "dlock", "a note did not arrive, so the ears are opened anew");
                        break;
                    }
                }
            }
            waiters.listens(false);
            let mut pause = PAUSE;
            while let Err(error) = ears.open().await {
                tracing::debug!(target: "dlock", %error, "could not listen; trying again");
                tokio::time::sleep(pause).await;
                pause = (pause * 2).min(LONGEST);
            }
        }
    };
    select! {
        () = listening => {}
        _ = &mut closed => {}
    }
}

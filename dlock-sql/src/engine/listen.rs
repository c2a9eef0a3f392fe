//! The task that listens for notes of grants, where the database can tell.
//!
//! A note may get lost, so it only makes a wait shorter: the reader looks now and then all the same,
//! and often while nobody listens. When it finds a grant that a note should have told of long ago,
//! the ears are opened anew: a connection is taken for dead, whatever the system thinks of it.

use std::{sync::Arc, time::Duration};

use dlock_core::Clock;
use tokio::{select, sync::oneshot};

use super::{conn::Ears, note::Note, patience::jittered, waiters::Waiters};

/// The pause before a connection is made anew, which doubles to the longest until a note arrives.
const PAUSE: Duration = Duration::from_millis(20);
const LONGEST: Duration = Duration::from_secs(2);

/// Listens until the engine is dropped. The ears are open.
pub(crate) async fn listen<E: Ears>(
    mut ears: E,
    waiters: Arc<Waiters>,
    mut closed: oneshot::Receiver<()>,
) {
    let listening = async {
        let mut pause = PAUSE;
        loop {
            waiters.listens(true);
            loop {
                select! {
                    heard = ears.next() => match heard {
                        Ok(text) => {
                            pause = PAUSE;
                            if let Some(note) = Note::read(&text) {
                                waiters.told(&note);
                            }
                        }
                        Err(error) => {
                            tracing::debug!(target: "dlock", %error, "listener connection lost");
                            break;
                        }
                    },
                    () = waiters.missed() => {
                        tracing::debug!(target: "dlock", "notification missing, listener reconnects");
                        break;
                    }
                }
            }
            waiters.listens(false);
            loop {
                tokio::time::sleep(jittered(pause, Clock::Boot.now())).await;
                pause = (pause * 2).min(LONGEST);
                match ears.open().await {
                    Ok(()) => break,
                    Err(error) => {
                        tracing::debug!(target: "dlock", %error, "listener failed, will be retried");
                    }
                }
            }
        }
    };
    select! {
        () = listening => {}
        _ = &mut closed => {}
    }
}

//! The task that listens for notifications of grants, if the database has them.
//!
//! A notification may be lost, so it only makes a wait shorter. The reader still polls rarely, and
//! often while there is no listener. If a poll finds a grant whose notification should have come
//! long ago, the listener reconnects: the connection counts as dead, even if the operating system
//! has not noticed.

use std::{sync::Arc, time::Duration};

use dlock_core::Clock;
use tokio::{select, sync::oneshot};

use super::{conn::Ears, note::Note, patience::jittered, waiters::Waiters};

/// The pause before a reconnect. It doubles up to the longest until a notification arrives.
const PAUSE: Duration = Duration::from_millis(20);
const LONGEST: Duration = Duration::from_secs(2);

/// Listens until the engine is dropped. The listener is already open.
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

//! The task that listens for notifications of grants, if the database has them.
//!
//! A notification may be lost, so it only makes a wait shorter. The reader still polls rarely, and
//! often while there is no listener. If a poll finds a grant whose notification should have come
//! long ago, the listener reconnects: the connection counts as dead, even if the operating system
//! has not noticed.

use std::{sync::Arc, time::Duration};

use dlock_core::Backoff;
use tokio::{select, sync::oneshot};

use super::{conn::Listener, notification::Notification, waiters::Waiters};

/// The pauses before reconnects, until a notification arrives.
const PAUSES: Backoff = Backoff::between(Duration::from_millis(20), Duration::from_secs(2));

/// Listens until the engine is dropped. A listener that is not open yet is opened when the first
/// claim waits, so that a client that never waits needs no connection for it.
pub(crate) async fn listen<E: Listener>(
    mut listener: E,
    waiters: Arc<Waiters>,
    mut closed: oneshot::Receiver<()>,
) {
    let listening = async {
        let mut backoff = PAUSES;
        let mut is_open = listener.is_open();
        if !is_open {
            waiters.has_waited().await;
            is_open = listener.open().await.inspect_err(|error| {
                tracing::warn!(target: "dlock", %error, "LISTEN failed, falling back to polling");
            }).is_ok();
        }
        loop {
            waiters.listens(is_open);
            while is_open {
                select! {
                    received = listener.next() => match received {
                        Ok(text) => {
                            backoff = PAUSES;
                            if let Some(notification) = Notification::read(&text) {
                                waiters.notify(&notification);
                            }
                        }
                        Err(error) => {
                            tracing::debug!(target: "dlock", %error, "listener connection lost");
                            is_open = false;
                        }
                    },
                    () = waiters.missed() => {
                        tracing::debug!(target: "dlock", "notification missing, listener reconnects");
                        is_open = false;
                    }
                }
            }
            waiters.listens(false);
            while !is_open {
                backoff.wait().await;
                match listener.open().await {
                    Ok(()) => is_open = true,
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

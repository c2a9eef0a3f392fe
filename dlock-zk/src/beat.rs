//! Heartbeats. Who asks for one while it is still to be sent shares it.

use std::sync::{Arc, Weak};

use dlock_core::{Clock, Instant};
use parking_lot::Mutex;
use tokio::{sync::OnceCell, task::yield_now};
use zookeeper_client::{Error as ZkError, MultiWriteError};

use crate::session::Session;

/// A heartbeat that is still to be sent or answered.
type Beat = OnceCell<Result<Instant, ZkError>>;

/// The heartbeat that has not been sent yet, if somebody waits for it.
#[derive(Default)]
pub(crate) struct NextBeat(Mutex<Weak<Beat>>);

impl NextBeat {
    /// It, or a new one.
    fn join(&self) -> Arc<Beat> {
        let mut next = self.0.lock();
        next.upgrade().unwrap_or_else(|| {
            let beat = Arc::default();
            *next = Arc::downgrade(&beat);
            beat
        })
    }

    /// It is on its way: who asks from here on has to be sent another one.
    fn leaves(&self) {
        *self.0.lock() = Weak::new();
    }
}

impl Session {
    /// Asks a majority for a sign of life. When it is answered, the next read shows what was
    /// known then. It was sent, at the time that is given back, after this was called.
    ///
    /// A hundred thousand locks are renewed in many calls at a time, and one heartbeat is as good
    /// as many.
    pub(crate) async fn heartbeat(&self) -> Result<Instant, ZkError> {
        let beat = self.next_beat.join();
        // If this caller goes, the next one that waits sends it, again if need be.
        let answer = beat.get_or_init(|| async {
            // Whoever is about to ask as well comes to it.
            yield_now().await;
            self.next_beat.leaves();
            self.send_heartbeat().await
        });
        answer.await.clone()
    }

    async fn send_heartbeat(&self) -> Result<Instant, ZkError> {
        let sent = Clock::Boot.now();
        let mut check = self.client.new_multi_writer();
        check.add_check_version(if self.root().is_empty() { "/" } else { self.root() }, -1)?;
        match self.answer(check.commit()).await {
            // What is checked does not matter: its refusal is a transaction as well. But the leader
            // also refuses so what comes from a session that is being closed.
            Ok(_)
            | Err(MultiWriteError::OperationFailed {
                source: ZkError::NoNode | ZkError::NoAuth | ZkError::BadVersion,
                ..
            }) => {
                self.heard(sent);
                Ok(sent)
            }
            Err(error) => Err(error.into()),
        }
    }
}

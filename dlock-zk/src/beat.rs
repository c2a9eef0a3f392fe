//! Heartbeats, and one for many.

use std::{sync::Arc, time::Duration};

use dlock_core::{Clock, Instant};
use tokio::{sync::watch, time::sleep};
use zookeeper_client::{Error as ZkError, MultiWriteError};

use crate::session::{Beat, Session};

/// For how long a shared heartbeat waits for others who need one: a hundred thousand locks are
/// renewed in many calls, which come one behind the other.
const GATHER: Duration = Duration::from_millis(1);

impl Session {
    /// Asks a majority for a sign of life. When it is answered, the next read shows what was
    /// known then. It was sent at the time that is given back.
    pub(crate) async fn heartbeat(&self) -> Result<Instant, ZkError> {
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

    /// The same, shared by all who ask within a millisecond, and sent after each of them has asked.
    ///
    /// Whoever waits only listens, and holds nobody else up by going away or standing still.
    pub(crate) async fn shared_heartbeat(self: &Arc<Self>) -> Result<Instant, ZkError> {
        let mut answer = self.next_heartbeat();
        match answer.wait_for(Option::is_some).await.as_deref() {
            Ok(Some(answer)) => answer.clone(),
            // The runtime has gone, and with it the session.
            _ => Err(ZkError::ClientClosed),
        }
    }

    fn next_heartbeat(self: &Arc<Self>) -> Beat {
        let mut next = self.next_beat.lock();
        if let Some(answer) = &*next {
            return answer.clone();
        }
        let (tell, answer) = watch::channel(None);
        *next = Some(answer.clone());
        drop(next);
        let session = Arc::clone(self);
        self.background(async move {
            sleep(GATHER).await;
            // Who comes from here on has asked too late for this one.
            *session.next_beat.lock() = None;
            tell.send_replace(Some(session.heartbeat().await));
        });
        answer
    }
}

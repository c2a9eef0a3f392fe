//! Heartbeats, one heartbeat for many callers, and pulses.

use std::{sync::Arc, time::Duration};

use dlock_core::{Clock, Instant};
use tokio::{
    sync::watch,
    time::{sleep, timeout},
};
use zookeeper_client::{Error as ZkError, MultiWriteError};

use crate::session::{Beat, Session};

/// How long a shared heartbeat waits for further callers. A hundred thousand locks are renewed in
/// many calls, one soon after the other.
const GATHER: Duration = Duration::from_millis(1);

impl Session {
    /// Sends a heartbeat, which a majority has to commit. Returns the time at which it was sent. A
    /// read after the answer shows all changes that were committed before it.
    pub(crate) async fn heartbeat(&self) -> Result<Instant, ZkError> {
        let sent = Clock::Boot.now();
        let mut check = self.client.new_multi_writer();
        check.add_check_version(if self.root().is_empty() { "/" } else { self.root() }, -1)?;
        match self.answer(check.commit()).await {
            // The result of the check does not matter: its refusal is a transaction as well. Other
            // errors do not count, since the leader also refuses requests of a session that is
            // being closed.
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

    /// Reads from its server, so that the next beats prove more.
    pub(crate) async fn pulse(&self) {
        let sent = Clock::Boot.now();
        // A refusal is an answer of the server as well.
        if let Ok(_) | Err(ZkError::NoAuth) = self.answer(self.client.check_stat("/")).await {
            self.proof.pulse(sent, Clock::Boot.now());
        }
    }

    /// Waits until the servers certainly keep the session until `until`. It sends heartbeats
    /// meanwhile, unless that is proven already.
    ///
    /// # Errors
    /// `Timeout` if that is not proven within the response timeout, and those of a heartbeat.
    pub(crate) async fn prove(self: &Arc<Self>, until: Instant) -> Result<(), ZkError> {
        if self.proof.until() >= until {
            return Ok(());
        }
        let proving = async {
            loop {
                self.shared_heartbeat().await?;
                if self.proof.until() >= until {
                    return Ok(());
                }
                sleep(self.timeout / 16).await;
            }
        };
        // Boxed, since this is rare.
        timeout(self.response_timeout(), Box::pin(proving)).await.unwrap_or(Err(ZkError::Timeout))
    }

    /// Waits until the servers certainly keep the session for most of a lease that begins now.
    ///
    /// # Errors
    /// Those of [`prove`](Self::prove).
    pub(crate) async fn prove_lease(self: &Arc<Self>, lease: Duration) -> Result<(), ZkError> {
        let lease = lease.min(self.longest_lease());
        self.prove(Clock::Boot.now().saturating_add(lease * 3 / 4)).await
    }

    /// Like [`heartbeat`](Self::heartbeat), shared by all callers within a millisecond, and sent
    /// after the last of them has called.
    ///
    /// A task of the session sends it, and callers only listen. So a caller that stops waiting does
    /// not delay the others.
    pub(crate) async fn shared_heartbeat(self: &Arc<Self>) -> Result<Instant, ZkError> {
        let mut answer = self.next_heartbeat();
        match answer.wait_for(Option::is_some).await.as_deref() {
            Ok(Some(answer)) => answer.clone(),
            // The runtime has ended, and with it the session.
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
            // Before the heartbeat is sent: a later caller must not share a heartbeat that was sent
            // before its call, since its lease counts from the time of sending.
            *session.next_beat.lock() = None;
            tell.send_replace(Some(session.heartbeat().await));
        });
        answer
    }
}

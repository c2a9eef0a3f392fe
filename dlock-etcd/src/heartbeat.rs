//! Heartbeats, which renew the lease of the session and [prove](crate::proof) it.

use std::{sync::Arc, time::Duration};

use dlock_core::{Backoff, Certainty, Clock, Error};

use crate::{
    client::{Failure, FailureKind},
    connect::vote,
    error::no_answer,
    session::{Session, is_passing},
};

impl Session {
    /// Sends heartbeats until a lease that begins now is proven by a beat, for as long as a caller
    /// waits. Callers share them.
    pub(crate) async fn prove_lease(self: &Arc<Self>, lease: Duration) -> Result<(), Error> {
        let proving = async {
            let mut pause = Backoff::new();
            while !self.is_proven(lease) {
                let turn = self.beating.lock().await;
                let beaten = match self.is_proven(lease) {
                    false => self.heartbeat_alone().await,
                    true => Ok(()),
                };
                drop(turn);
                match beaten {
                    Err(failure) if is_passing(&failure) && self.is_alive() => pause.wait().await,
                    beaten => beaten?,
                }
            }
            Ok(())
        };
        let proven = tokio::time::timeout(self.response_timeout(), proving).await;
        proven.unwrap_or_else(|_| Err(no_answer()))
    }

    /// Renews the lease and proves it, or continues with a new one if there was an election.
    pub(crate) async fn heartbeat(self: &Arc<Self>) -> Result<(), Failure> {
        let _turn = self.beating.lock().await;
        self.heartbeat_alone().await
    }

    async fn heartbeat_alone(self: &Arc<Self>) -> Result<(), Failure> {
        let late = || tokio::time::Instant::now() + self.heartbeat_interval();
        for _ in 0..3 {
            let sent = Clock::Boot.now();
            let asked = self.on_link(async |link| {
                let (header, _) = link.client.keep_alive(self.lease(), late()).await?;
                let (term, answered) = (header.raft_term, Clock::Boot.now());
                let counts = self.proof.lock().keepalive(link.number, term, sent, answered);
                Ok((!counts).then_some(term))
            });
            match asked.await {
                Err(failure) if failure.kind() == FailureKind::LeaseNotFound => {
                    return Err(self.doubt(failure).await?);
                }
                Ok(Some(later)) => Box::pin(self.change_lease(later)).await?,
                asked => drop(asked?),
            }
            for _ in 0..2 {
                // Under load, the answers of other requests are votes.
                if self.beat() < sent {
                    self.voted_by(vote(&self.keys), self.heartbeat_interval(), true).await?;
                }
            }
            if self.beat() >= sent {
                return Ok(());
            }
            if !self.is_alive() {
                break;
            }
        }
        let why = "the members elect leaders, so that no heartbeat counts";
        Err(Failure::new(FailureKind::NoLeader, Certainty::NotApplied, why))
    }

    /// Acts on a keepalive whose lease is said not to exist. That proves as little as another answer:
    /// a leader that was replaced does not know the leases that were granted since. A majority knows
    /// the marker of the session as long as the lease lives. If it is gone, the session ends.
    async fn doubt(&self, failure: Failure) -> Result<Failure, Failure> {
        if !self.check_marker().await? {
            return Ok(failure);
        }
        let why = "a member does not know the lease, but a majority does";
        Ok(Failure::new(FailureKind::NoLeader, Certainty::NotApplied, why))
    }

    /// Asks a majority whether the marker exists, and ends the session if not: also if the epoch was
    /// ended by deleting it, since then nobody knows. Some versions answer such a read with an old
    /// state after a pause. If that has the marker, the session lasts until its heartbeats no longer
    /// count; if it is older than the marker, the session ends without need, which harms no lock of
    /// others.
    pub(crate) async fn check_marker(&self) -> Result<bool, Failure> {
        let (_, read) = self.ask(self.read_marker()).await?;
        let exists = !read.kvs.is_empty();
        if !exists {
            self.end();
        }
        Ok(exists)
    }
}

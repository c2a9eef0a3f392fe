//! The verbs over one link.
//!
//! 1. `acquire` registers the claim with the inbox, then sends the script. The script grants the
//!    lock or adds the claim to the queue.
//! 2. `granted` waits for a message or for the answer to a poll, whichever first shows that the
//!    claim holds the lock.
//! 3. `release` removes the claim, and its script grants the lock to the next claim in the queue.
//!
//! Each script is atomic on the server. So a client that dies never leaves a state within a step,
//! only a state between two steps: a queued claim that no client polls, or a grant that no client
//! renews. Both end with their leases. Any answer may be lost: the scripts are idempotent by claim
//! id, and [`Session`] sends them again. If an acquire may still arrive after its claim was
//! released, see [`unanswered`](crate::unanswered).

use std::sync::Arc;

use dlock_core::{
    AcquireRequest, Acquired, Claim, ClaimId, Clock, Error, Fairness, Fencing, FencingToken,
    Finding, Grant, Guarantees, LockName, Notes, OrphanRelease, Permits, Queue, Released, Scope,
    StoreClocks, WakeUp, machine::conflict,
};
use redis::Value;

use crate::{
    config::{Durability, RedisConfig, Topology},
    durable::Durable,
    error::{no_token, unreadable},
    examine::examine,
    keys::Bucket,
    release::{ReleaseTarget, claim_ended, release},
    reply::{ClaimStatus, status},
    session::Session,
    waiters::{QueuedGrant, Waiters},
};

/// One store, as one client sees it.
pub(crate) struct Store {
    pub(crate) session: Session,
    durable: Option<Durable>,
    pub(crate) waiters: Arc<Waiters>,
    pub(crate) clocks: StoreClocks,
}

impl Store {
    pub(crate) async fn open(config: RedisConfig) -> Result<Self, Error> {
        let waiters = Arc::new(Waiters::new());
        let session = Session::open(&config, Some(Arc::clone(&waiters))).await?;
        let durable = match config.durability {
            Durability::Master => None,
            durability => Some(Durable::open(&config, durability, &session.link).await?),
        };
        Ok(Self { session, durable, waiters, clocks: StoreClocks::new() })
    }

    /// Returns the channel for the message about a later grant. From now on the inbox expects that
    /// message.
    async fn channel_for(&self, request: &AcquireRequest) -> Option<Arc<str>> {
        if request.queue != Queue::Enqueue {
            return None;
        }
        // Both before the claim is sent: its message may arrive before the answer.
        let channel = self.session.link.channel(Bucket::of(&request.name)).await;
        self.waiters.expect(request);
        channel
    }

    /// Takes the lock or joins its queue.
    pub(crate) async fn acquire(
        self: &Arc<Self>,
        request: &AcquireRequest,
    ) -> Result<Acquired, Error> {
        self.session.check_lease(request.lease)?;
        let channel = self.channel_for(request).await;
        let call = self.session.scripts.acquire(request, channel.as_deref(), 0);
        let call = call.acquiring(&self.session.unanswered, std::slice::from_ref(request));
        let answer = match &self.durable {
            None => self.session.run(&call).await,
            Some(durable) => durable.run(&call).await,
        };
        match answer.and_then(|value| status(&value)) {
            Ok(answer) => self.settle(request, call.sending().began(), answer),
            Err(error) => {
                self.waiters.forget(request.claim);
                Err(error)
            }
        }
    }

    /// Interprets the answer to an acquire.
    fn settle(
        self: &Arc<Self>,
        request: &AcquireRequest,
        sent: dlock_core::Instant,
        answer: ClaimStatus,
    ) -> Result<Acquired, Error> {
        match answer {
            ClaimStatus::Waits(position) => {
                self.waiters.queued(request.claim, sent, position);
                // The grant was written later than the answer, but its message came first. With
                // durability it does not count until `granted` has confirmed it.
                Ok(match self.waiters.take(request.claim) {
                    Some(grant) if self.durable.is_none() => {
                        Acquired::Granted(grant.into_grant(request))
                    }
                    _ => Acquired::Queued,
                })
            }
            other => {
                self.waiters.forget(request.claim);
                if let ClaimStatus::Held(token) = other {
                    return Ok(Acquired::Granted(
                        QueuedGrant { token, since: sent }.into_grant(request),
                    ));
                }
                claim_ended(self, &request.name, request.claim);
                match other {
                    ClaimStatus::Conflict(capacity) => Err(conflict(request.mode, capacity)),
                    ClaimStatus::NoToken => Err(no_token()),
                    _ => Ok(Acquired::Busy),
                }
            }
        }
    }

    /// Waits for the grant of a claim that is in the queue.
    pub(crate) async fn granted(&self, request: &AcquireRequest) -> Result<Grant, Error> {
        let mut grant = self.waiters.listen(request).await?;
        if let Some(durable) = &self.durable {
            // Another client wrote the grant. `WAIT` covers only the writes of its own connection,
            // so this client writes as well, and waits for the replication of its own write.
            loop {
                if let Some(grant) = durable.confirm(&self.session, request).await? {
                    return Ok(grant.into_grant(request));
                }
                self.waiters.listen(request).await?;
            }
        }
        if Clock::Boot.now().since(grant.since) > request.lease / 2 {
            // The message is old because this process was stopped, or its time can't be trusted.
            // The next poll shows whether the grant is still there, and restarts its lease. This
            // happens once only: if every answer takes this long, the core decides.
            grant = self.waiters.listen(request).await?;
        }
        Ok(grant.into_grant(request))
    }

    pub(crate) async fn release(self: &Arc<Self>, claim: &Claim) -> Result<Released, Error> {
        self.waiters.forget(claim.id);
        // The inbox has forgotten the claim before its release is sent, so no poll keeps it alive.
        if release(self, &claim.name, claim.id, claim.used).await? {
            return Ok(Released::Released);
        }
        self.check_master()?;
        Ok(Released::AlreadyLost)
    }

    pub(crate) async fn examine(&self) -> Result<Vec<Finding>, Error> {
        examine(&self.session, self.durable.as_ref().map_or(0, |durable| durable.replicas)).await
    }

    pub(crate) async fn raise_tokens(
        &self,
        name: &LockName,
        above: FencingToken,
    ) -> Result<(), Error> {
        let call = self.session.scripts.raise_tokens(name, above)?;
        match self.session.run(&call).await? {
            Value::Int(1) => Ok(()),
            other => Err(unreadable("a script", &other)),
        }
    }

    /// Returns the part of the store that keeps a name. In a cluster it is the bucket and not the
    /// server, since the slot of a bucket may move.
    pub(crate) fn shard(&self, name: &LockName) -> u32 {
        match self.session.topology {
            Topology::Cluster => u32::from(Bucket::of(name).number()),
            _ => 0,
        }
    }

    /// Splits the list into batches for one command each. In a cluster, a batch has one slot.
    pub(crate) fn batches<T>(
        &self,
        list: Vec<T>,
        name: impl Fn(&T) -> &LockName,
        most: usize,
    ) -> Vec<Vec<T>> {
        let mut groups = std::collections::BTreeMap::<Option<Bucket>, Vec<Vec<T>>>::new();
        for item in list {
            let cluster = self.session.topology == Topology::Cluster;
            let bucket = cluster.then(|| Bucket::of(name(&item)));
            let group = groups.entry(bucket).or_default();
            match group.last_mut() {
                Some(batch) if batch.len() < most => batch.push(item),
                _ => group.push(vec![item]),
            }
        }
        groups.into_values().flatten().collect()
    }

    /// Returns the guarantees of this store.
    pub(crate) fn guarantees(&self) -> Guarantees {
        let wake_up = if self.session.link.has_push() { WakeUp::Push } else { WakeUp::Poll };
        Guarantees::WEAKEST
            .with_exclusion(self.session.exclusion())
            .with_fencing(Fencing::Clock)
            .with_orphan_release(OrphanRelease::LeaseEnd)
            .with_fairness(Fairness::Fifo)
            .with_wake_up(wake_up)
            .with_scope(Scope::Network)
            .with_permits(Permits::Counted)
            .with_notes(Notes::Kept)
    }
}

impl ReleaseTarget for Store {
    fn session(&self) -> &Session {
        &self.session
    }

    async fn send_release(
        &self,
        name: &LockName,
        claim: ClaimId,
        used: u32,
    ) -> Result<bool, Error> {
        self.session.release(name, claim, used).await
    }
}

impl Drop for Store {
    fn drop(&mut self) {
        self.waiters.close();
    }
}

//! The verbs over one link.
//!
//! 1. `acquire` takes a lock that is probably free with plain commands: see [`take`](crate::take).
//!    Otherwise it registers the claim with the waiters, then sends the script. The script grants the
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
    Claim, ClaimId, Error, Fairness, Fencing, FencingToken, Finding, Guarantees, LockName, Notes,
    OrphanRelease, Permits, Released, Scope, StoreClocks, WakeUp,
};
use redis::Value;

use crate::{
    config::{Durability, RedisConfig, Topology},
    contention::Contention,
    durable::Durable,
    error::unreadable,
    examine::examine,
    keys::Bucket,
    release::{ReleaseTarget, release},
    session::Session,
    waiters::Waiters,
};

/// One store, as one client sees it.
pub(crate) struct Store {
    pub(crate) session: Session,
    pub(crate) durable: Option<Durable>,
    pub(crate) waiters: Arc<Waiters>,
    pub(crate) clocks: StoreClocks,
    pub(crate) contention: Contention,
}

impl Store {
    pub(crate) async fn open(config: RedisConfig) -> Result<Self, Error> {
        let waiters = Arc::new(Waiters::new());
        let session = Session::open(&config, Some(Arc::clone(&waiters))).await?;
        let durable = match config.durability {
            Durability::Master => None,
            durability => Some(Durable::open(&config, durability, &session.link).await?),
        };
        Ok(Self {
            session,
            durable,
            waiters,
            clocks: StoreClocks::new(),
            contention: Contention::default(),
        })
    }

    pub(crate) async fn release(self: &Arc<Self>, claim: &Claim) -> Result<Released, Error> {
        self.waiters.forget(claim.id);
        // The claim is forgotten before its release is sent, so no poll keeps it alive.
        if release(self, &claim.name, claim.id, claim.used).await? {
            return Ok(Released::Released);
        }
        self.check_master()?;
        Ok(Released::AlreadyLost)
    }

    pub(crate) async fn examine(&self) -> Result<Vec<Finding>, Error> {
        examine(&self.session, self.durable.as_ref().map_or(0, Durable::replicas)).await
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
        if !self.contention.ends_alone(name, claim) {
            return self.session.release(name, claim, used).await;
        }
        let (found, others_wait) = self.session.release_alone(name, claim, used).await?;
        if others_wait {
            self.contention.claims_wait(name);
        }
        Ok(found)
    }
}

impl Drop for Store {
    fn drop(&mut self) {
        self.waiters.close();
    }
}

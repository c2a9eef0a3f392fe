//! The verbs over one link: scripts, and what to do when they fail.

mod keep;
mod together;

use std::{fmt, sync::Arc};

use dlock_core::{
    AcquireRequest, Acquired, Claim, ClaimId, Clock, Error, Fairness, Fencing, FencingToken,
    Finding, Grant, Guarantees, LockName, LockState, Notes, OrphanRelease, Permits, Queue,
    Released, Scope, StoreClocks, WakeUp, machine::conflict,
};
use redis::Value;

use crate::{
    config::{Durability, RedisConfig, Topology},
    durable::Durable,
    error::{no_token, unreadable},
    examine::examine,
    inbox::{Inbox, Turn},
    keys::{Bucket, Keys},
    later::{Later, Owed, is_over},
    list,
    reply::{self, Standing, standing},
    scripts::Scripts,
    session::Session,
    unanswered::Unanswered,
};

/// One store, as one client sees it.
pub(crate) struct Store {
    pub(crate) session: Session,
    durable: Option<Durable>,
    scripts: Scripts,
    pub(crate) inbox: Arc<Inbox>,
    pub(crate) clocks: StoreClocks,
    later: Later,
    retention: u64,
}

impl Store {
    pub(crate) async fn open(config: RedisConfig) -> Result<Self, Error> {
        let inbox = Arc::new(Inbox::new());
        let session = Session::open(&config, Some(Arc::clone(&inbox))).await?;
        let durable = match config.durability {
            Durability::Master => None,
            durability => Some(Durable::open(&config, durability, &session.link).await?),
        };
        Ok(Self {
            session,
            durable,
            scripts: Scripts::new(),
            inbox,
            clocks: StoreClocks::new(),
            later: Later::default(),
            retention: u64::try_from(config.retention.as_millis()).unwrap_or(u64::MAX),
        })
    }

    /// Where who waits is to be told of its grant, which is expected from now on.
    async fn channel_for(&self, request: &AcquireRequest, bucket: Bucket) -> Option<Arc<str>> {
        if request.queue != Queue::Enqueue {
            return None;
        }
        let channel = self.session.link.channel(bucket).await;
        self.inbox.expect(request);
        channel
    }

    /// Takes the lock or joins its queue.
    pub(crate) async fn acquire(
        self: &Arc<Self>,
        request: &AcquireRequest,
    ) -> Result<Acquired, Error> {
        self.session.check_lease(request.lease)?;
        let keys = Keys::of(&request.name);
        let channel = self.channel_for(request, keys.bucket()).await;
        let call = self
            .scripts
            .acquire
            .on(Keys::COUNT)
            .keys(&keys)
            .request(request, channel.as_deref())
            .arg(self.retention)
            .arg(0)
            .note(request.note.as_ref())
            .taking(&self.session.unanswered, std::slice::from_ref(request));
        let answer = match &self.durable {
            None => self.session.run(&call).await.and_then(|value| standing(&value)),
            Some(durable) => durable.run(&call).await.and_then(|value| standing(&value)),
        };
        match answer {
            Ok(answer) => self.settle(request, call.sending().began(), answer),
            Err(error) => {
                self.inbox.forget(request.claim);
                Err(error)
            }
        }
    }

    /// What an answer to an acquire means.
    fn settle(
        self: &Arc<Self>,
        request: &AcquireRequest,
        sent: dlock_core::Instant,
        answer: Standing,
    ) -> Result<Acquired, Error> {
        match answer {
            Standing::Waits(place) => {
                self.inbox.placed(request.claim, sent, place);
                Ok(match self.inbox.take(request.claim) {
                    Some(turn) if self.durable.is_none() => Acquired::Granted(turn.grant(request)),
                    _ => Acquired::Queued,
                })
            }
            other => {
                self.inbox.forget(request.claim);
                if let Standing::Held(token) = other {
                    return Ok(Acquired::Granted(Turn { token, since: sent }.grant(request)));
                }
                is_over(self, &request.name, request.claim);
                match other {
                    Standing::Conflict(capacity) => Err(conflict(request.mode, capacity)),
                    Standing::Spent => Err(no_token()),
                    _ => Ok(Acquired::Busy),
                }
            }
        }
    }

    /// Waits for the grant of a claim that is in the queue.
    pub(crate) async fn granted(&self, request: &AcquireRequest) -> Result<Grant, Error> {
        let mut turn = self.inbox.listen(request).await?;
        if let Some(durable) = &self.durable {
            // What another client wrote is waited for by writing something behind it.
            loop {
                if let Some(turn) = durable.confirm(self, request).await? {
                    return Ok(turn.grant(request));
                }
                self.inbox.listen(request).await?;
            }
        }
        if Clock::Boot.now().since(turn.since) > request.lease / 2 {
            // It lay around while this process stood still, or can't be trusted: to see whether it
            // is true, and to start its lease anew, the server is asked. Once: where every answer
            // takes so long, the core has the last word.
            turn = self.inbox.listen(request).await?;
        }
        Ok(turn.grant(request))
    }

    pub(crate) async fn release(self: &Arc<Self>, claim: &Claim) -> Result<Released, Error> {
        self.inbox.forget(claim.id);
        let found = self.give_up(&claim.name, claim.id, claim.used).await?;
        is_over(self, &claim.name, claim.id);
        if found {
            return Ok(Released::Released);
        }
        self.check_master()?;
        Ok(Released::AlreadyLost)
    }

    pub(crate) async fn inspect(&self, name: &LockName) -> Result<LockState, Error> {
        let call = self.scripts.inspect.on(Keys::COUNT).keys(&Keys::of(name));
        reply::state(&self.session.run(&call).await?)
    }

    pub(crate) async fn list(&self, prefix: &str, limit: usize) -> Result<Vec<LockName>, Error> {
        list::list(&self.session, &self.scripts, prefix, limit).await
    }

    pub(crate) async fn examine(&self) -> Result<Vec<Finding>, Error> {
        examine(&self.session, self.durable.as_ref().map_or(0, Durable::replicas)).await
    }

    pub(crate) async fn raise_tokens(
        &self,
        name: &LockName,
        above: FencingToken,
    ) -> Result<(), Error> {
        let call = self.scripts.floor(name, above, self.retention)?;
        match self.session.run(&call).await? {
            Value::Int(1) => Ok(()),
            other => Err(unreadable("a script", &other)),
        }
    }

    /// The part of the store that a name is in: a slot of a cluster goes where it likes.
    pub(crate) fn shard(&self, name: &LockName) -> u32 {
        match self.session.topology {
            Topology::Cluster => u32::from(Bucket::of(name).number()),
            _ => 0,
        }
    }

    /// The list in pieces that one command can carry.
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

    /// What this store promises.
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

impl Owed for Store {
    fn later(&self) -> &Later {
        &self.later
    }

    fn unanswered(&self) -> &Unanswered {
        &self.session.unanswered
    }

    fn is_up(&self) -> bool {
        // Of a cluster a part may be.
        self.session.topology == Topology::Cluster || self.session.link.epoch().is_some()
    }

    async fn give_up(&self, name: &LockName, claim: ClaimId, used: u32) -> Result<bool, Error> {
        let call = self
            .scripts
            .release
            .on(Keys::COUNT)
            .keys(&Keys::of(name))
            .arg(claim.to_string())
            .arg(used)
            .arg(self.retention)
            .giving_up(&self.session.unanswered, claim);
        self.session.give_up(&call).await
    }
}

impl Drop for Store {
    fn drop(&mut self) {
        self.inbox.close();
    }
}

impl fmt::Debug for Store {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Store").field("name", &self.session.store()).finish_non_exhaustive()
    }
}

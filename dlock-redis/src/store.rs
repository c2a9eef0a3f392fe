//! The verbs over one link: scripts, what to do when they fail, and the quiet path.

mod keep;
mod together;

use std::{fmt, sync::Arc};

use dlock_core::{
    AcquireRequest, Acquired, Certainty, Claim, Clock, Error, Fairness, Fencing, FencingToken,
    Finding, Grant, Guarantees, LockName, LockState, Mode, Notes, OrphanRelease, Permits, Queue,
    Released, Scope, StoreClocks, WakeUp, machine::conflict,
};
use redis::{Cmd, Value};

use crate::{
    config::{Durability, RedisConfig, Topology},
    durable::Durable,
    error::{no_token, unreadable},
    examine::examine,
    inbox::{Inbox, Turn},
    keys::{Bucket, Keys},
    list,
    quiet::{Last, Quiet, SPARE},
    reply::{self, Standing, millis, standing},
    scripts::Scripts,
    session::{Session, Trouble},
};

/// One store, as one client sees it.
pub(crate) struct Store {
    pub(crate) session: Session,
    durable: Option<Durable>,
    scripts: Scripts,
    pub(crate) inbox: Arc<Inbox>,
    quiet: Quiet,
    pub(crate) clocks: StoreClocks,
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
            quiet: Quiet::default(),
            clocks: StoreClocks::new(),
            retention: u64::try_from(config.retention.as_millis()).unwrap_or(u64::MAX),
        })
    }

    /// Takes the lock or joins its queue.
    pub(crate) async fn acquire(&self, request: &AcquireRequest) -> Result<Acquired, Error> {
        self.session.check_lease(request.lease)?;
        let epoch = self.session.link.epoch().filter(|_| self.can_be_quiet(request));
        let mut unsure = None;
        if let Some(epoch) = epoch {
            match self.acquire_quietly(request, epoch).await {
                Quickly::Granted(grant) => return Ok(Acquired::Granted(grant)),
                Quickly::No => {}
                Quickly::Unsure(left) => unsure = Some(left),
            }
        }
        // Boxed, so that the quiet path does not carry its size around.
        let answer = Box::pin(self.acquire_by_script(request, epoch)).await;
        match (answer, unsure) {
            (Err(error), Some(left)) => {
                // Where no script gets on with F, none takes back what the quiet path left.
                let call = self.scripts.delete.on(1).arg(left.keys.holder()).arg(left.holds());
                let _ = self.session.run(&call).await;
                Err(error.with_certainty(Certainty::Unknown))
            }
            (answer, _) => answer,
        }
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

    async fn acquire_by_script(
        &self,
        request: &AcquireRequest,
        epoch: Option<u64>,
    ) -> Result<Acquired, Error> {
        let keys = Arc::new(Keys::of(&request.name));
        let channel = self.channel_for(request, keys.bucket()).await;
        let sent = Clock::Boot.now();
        let spare = if epoch.is_some() { SPARE } else { 0 };
        let call = self
            .scripts
            .acquire
            .on(Keys::COUNT)
            .keys(&keys)
            .request(request, channel.as_deref())
            .arg(self.retention)
            .arg(spare)
            .arg(0)
            .note(request.note.as_ref())
            .granting();
        let answer = match &self.durable {
            None => self.session.run(&call).await.and_then(|value| standing(&value)),
            Some(durable) => durable.run(&call).await.and_then(|value| standing(&value)),
        };
        let answer = match answer {
            Ok(answer) => answer,
            Err(error) => {
                self.inbox.forget(request.claim);
                return Err(error);
            }
        };
        if let Standing::Held { token, spare: true } = answer
            && let Some(epoch) = epoch
        {
            self.quiet.put(&request.name, Last::new(keys, request, token, epoch));
        }
        self.settle(request, sent, answer)
    }

    /// What an answer to an acquire means.
    fn settle(
        &self,
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
                match other {
                    Standing::Held { token, .. } => {
                        Ok(Acquired::Granted(Turn { token, since: sent }.grant(request)))
                    }
                    Standing::Conflict(capacity) => Err(conflict(request.mode, capacity)),
                    Standing::Spent => Err(no_token()),
                    _ => Ok(Acquired::Busy),
                }
            }
        }
    }

    /// Whether the quiet path is open to a request: one that wants no more than a plain lock does.
    fn can_be_quiet(&self, request: &AcquireRequest) -> bool {
        request.tokens == 1 && request.mode == Mode::Exclusive && self.durable.is_none()
    }

    /// Takes a lock that nobody else has taken since: see [`quiet`](crate::quiet).
    async fn acquire_quietly(&self, request: &AcquireRequest, epoch: u64) -> Quickly {
        let last = self.quiet.take(&request.name, epoch);
        let Some(next) = last.and_then(|last| last.next(request)) else { return Quickly::No };
        let (holder, token) = (next.keys.holder(), next.keys.token());
        let mut set = Cmd::with_capacity(6, 2 * holder.len() + 128);
        set.arg("SET").arg(holder).arg(next.holds()).arg("NX").arg("PX").arg(millis(request.lease));
        let mut get = Cmd::with_capacity(2, token.len() + 16);
        get.arg("GET").arg(token);
        let mut commands = redis::Pipeline::with_capacity(2);
        commands.add_command(set).add_command(get).ignore_errors();
        let sent = Clock::Boot.now();
        let Ok(answers) = self.session.link.send_all(&commands, true).await else {
            return Quickly::Unsure(next);
        };
        match answers.as_slice() {
            [Value::Okay, Value::BulkString(shown)]
                if shown.as_slice() == next.shows().as_bytes()
                    // The lease may have ended between the two.
                    && Clock::Boot.now().since(sent) < request.lease / 2
                    && self.session.link.epoch() == Some(epoch) =>
            {
                let token = next.token();
                self.quiet.put(&request.name, next);
                Quickly::Granted(Grant { token, tokens: 1, since: sent })
            }
            // Somebody holds it, or the claim itself does.
            [Value::Nil, _] => Quickly::No,
            _ => Quickly::Unsure(next),
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

    pub(crate) async fn release(&self, claim: &Claim) -> Result<Released, Error> {
        self.inbox.forget(claim.id);
        let mut trouble = self.session.trouble();
        if let Some(last) = self.quiet.held(&claim.name, claim.id) {
            let call = self.scripts.delete.on(1).arg(last.keys.holder()).arg(last.holds());
            if self.session.found(&call, &mut trouble).await? {
                return Ok(Released::Released);
            }
            // Somebody waits, or it was lost.
        }
        Box::pin(self.release_by_script(claim, trouble)).await
    }

    async fn release_by_script(
        &self,
        claim: &Claim,
        mut trouble: Trouble,
    ) -> Result<Released, Error> {
        let call = self
            .scripts
            .release
            .on(Keys::COUNT)
            .keys(&Keys::of(&claim.name))
            .arg(claim.id.to_string())
            .arg(claim.used)
            .arg(self.retention);
        let found = self.session.found(&call, &mut trouble).await?;
        // A sending whose answer got lost may have been the one that found it.
        if found || trouble.unknown() {
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

/// How the quiet path went.
enum Quickly {
    Granted(Grant),
    /// It can't be gone.
    No,
    /// H may be the claim's, and hold this.
    Unsure(Last),
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

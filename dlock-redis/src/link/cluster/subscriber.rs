//! Messages from the masters of a cluster, and the map of its slots.
//!
//! Messages come on separate connections, one for each master with a waiter. When a slot moves away
//! from a node, the node unsubscribes its clients without a request. The driver mistakes that for
//! the answer to the command that is under way. From then on every answer belongs to the command
//! before. On these connections no answer matters much, and a connection on which that happened is
//! closed.
//!
//! A replica accepts subscriptions as well. But the scripts run on the master and count the
//! receivers there, so they would treat the client of a replica as dead. So the map is read again
//! about once a second and whenever a connection is lost.
//!
//! A master that was replaced may still grant, and its clock may differ. So a message counts only over
//! a connection to the master that its bucket has by the map. If a bucket gets another master, what
//! the waiters know from the one before is forgotten.
//!
//! # Concurrency
//!
//! `denied` goes from false to true once, and only saves attempts that would be refused.
//!
//! `closed` of a listener goes from false to true once: the connection's own callback sets it when
//! messages end, and the task that reads the map sets it when a master has moved or does not answer.
//! The task that sees it opens another connection. The callback stores it, then notifies `lost`, which
//! keeps one notification for a task that is not waiting yet. So that task does not sleep again while
//! a listener is closed. `late` counts requests in a row without an answer.
//!
//! The callback locks `state` until the waiters have its message, and the task that changes the map
//! until they have forgotten the former master. So no message of that one comes in between. The
//! waiters never use `state`.

use std::{
    collections::{BTreeSet, HashMap, HashSet},
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU32, Ordering},
    },
    time::Duration,
};

use dlock_core::{Backoff, Clock, SendFlag};
use futures_util::future::join_all;
use parking_lot::Mutex;
use redis::{PushInfo, PushKind, RedisResult, Value, aio::MultiplexedConnection};
use tokio::{
    sync::{Notify, OnceCell},
    time::timeout,
};

use super::{
    super::open::{self, receive},
    map::Map,
    route::no_master,
};
use crate::{config::RedisConfig, error::is_denial, keys::Bucket, waiters::Waiters};

/// The longest wait for the map of one node. It is short, since any other node can answer as well.
const TIMEOUT: Duration = Duration::from_millis(500);
/// The pause after a failed subscription.
const PAUSE: Duration = Duration::from_secs(1);

/// The connections that listen.
pub(super) struct Subscriber {
    config: RedisConfig,
    waiters: Option<Arc<Waiters>>,
    /// The callbacks of the connections that it has keep a weak reference.
    state: Arc<Mutex<Subscriptions>>,
    /// A connection was lost, or leads to the wrong node by now.
    lost: Arc<Notify>,
    /// The map was just read.
    map_read: Notify,
    /// This user may not subscribe.
    denied: AtomicBool,
}

impl Subscriber {
    pub(super) fn new(config: &RedisConfig, waiters: Option<Arc<Waiters>>) -> Self {
        Self {
            config: config.clone(),
            waiters,
            state: Arc::default(),
            lost: Arc::default(),
            map_read: Notify::new(),
            denied: AtomicBool::new(false),
        }
    }

    /// Returns the channel of a bucket, and subscribes to it before, if necessary: then the flag of
    /// the acquire begins, so that this is not dropped half-way. If it can't subscribe now, the claim
    /// has the channel nevertheless, and [`resubscribe`](Self::resubscribe) makes up for it: a claim
    /// without a channel would find its grant only by polling.
    pub(super) async fn channel(&self, bucket: Bucket, flag: &SendFlag) -> Option<String> {
        let waiters = self.waiters.as_ref().filter(|_| self.may_subscribe())?;
        let is_subscribed = self.state.lock().is_subscribed(bucket);
        if !is_subscribed {
            // Always true: this runs in the future that the core drops when it gives a request up.
            flag.begin();
            match self.subscribe_to(waiters, bucket).await {
                Err(error) if is_denial(&error) => return None,
                Err(error) => {
                    tracing::debug!(target: "dlock", %error, "pub/sub failed, will be retried");
                    self.lost.notify_one();
                }
                Ok(()) => {}
            }
        }
        Some(waiters.channel_of(bucket))
    }

    /// Checks whether this user may subscribe. It asks a master for a bucket of another master. The
    /// answer is a redirection, so no subscription remains. If one master has all buckets, the
    /// subscription stays.
    pub(super) async fn check_rights(&self, store: &str) {
        let Some(waiters) = &self.waiters else { return };
        let elsewhere = {
            let state = self.state.lock();
            let of_another = |at: &Arc<str>| {
                let is_other = |master: &Arc<str>| master != at;
                Bucket::all().find(|bucket| state.map.master(number(*bucket)).is_some_and(is_other))
            };
            state.open().into_iter().find_map(|(at, listener)| Some((listener, of_another(&at)?)))
        };
        let tried = match elsewhere {
            Some((mut listener, bucket)) => subscribe(&mut listener, waiters, bucket).await,
            None => self.subscribe_to(waiters, Bucket::ANY).await,
        };
        // Other errors may be transient.
        if let Err(error) = tried
            && is_denial(&error)
        {
            tracing::warn!(
                target: "dlock",
                %error, store,
                "pub/sub not permitted, falling back to polling: allow +ssubscribe and &dlock:*"
            );
            self.denied.store(true, Ordering::Relaxed);
            self.state.lock().subscribed.clear();
        }
    }

    /// Returns whether this user may subscribe, as far as is known.
    pub(super) fn may_subscribe(&self) -> bool {
        !self.denied.load(Ordering::Relaxed)
    }

    /// Returns the masters that have buckets.
    pub(super) fn masters(&self) -> BTreeSet<Arc<str>> {
        self.state.lock().map.masters()
    }

    /// Returns the largest number of replicas that a master has had in any map.
    pub(super) fn most_replicas(&self) -> usize {
        self.state.lock().most_replicas
    }

    /// Returns the master of a bucket, by its number.
    pub(super) fn master(&self, bucket: usize) -> Option<Arc<str>> {
        self.state.lock().map.master(bucket).cloned()
    }

    /// Requests that the map is read again.
    pub(super) fn read_map_soon(&self) {
        self.lost.notify_one();
    }

    /// Waits for a reason to read the map.
    pub(super) async fn until_lost(&self) {
        self.lost.notified().await;
    }

    /// Reads the map, and uses the one on which most of the connected nodes agree. Returns false if
    /// no node answered.
    pub(super) async fn read_map(&self) -> bool {
        let known = self.state.lock().open();
        let answers = join_all(known.iter().map(|(at, listener)| listener.ask(at, TIMEOUT))).await;
        let mut votes: Vec<(usize, Map)> = Vec::new();
        for map in answers.into_iter().flatten() {
            match votes.iter_mut().find(|(_, other)| *other == map) {
                Some((count, _)) => *count += 1,
                None => votes.push((1, map)),
            }
        }
        let found = votes.into_iter().max_by_key(|(count, _)| *count).map(|(_, map)| map);
        let found = match found {
            Some(map) => Some(map),
            None => self.ask_any_node().await,
        };
        let Some(map) = found else { return false };
        {
            let mut state = self.state.lock();
            let moved = state.follow(map);
            if let Some(waiters) = self.waiters.as_ref().filter(|_| !moved.is_empty()) {
                waiters.forget_answers(|name| moved.contains(&Bucket::of(name)));
            }
        }
        self.map_read.notify_one();
        true
    }

    async fn ask_any_node(&self) -> Option<Map> {
        let candidates = self.state.lock().candidates(&self.config.addresses);
        for at in candidates {
            if let Ok(listener) = self.listener(&at).await
                && let Some(map) = listener.ask(&at, self.config.response_timeout).await
            {
                return Some(map);
            }
        }
        None
    }

    /// Renews lost subscriptions, then requests a poll of all claims whose message may have been
    /// lost meanwhile.
    pub(super) async fn resubscribe(&self) {
        let Some(waiters) = &self.waiters else { return };
        loop {
            self.map_read.notified().await;
            let lost = self.state.lock().missing();
            let subscribed =
                join_all(lost.iter().map(|bucket| self.subscribe_to(waiters, *bucket))).await;
            if subscribed.iter().any(Result::is_ok) {
                waiters.reconnected();
            }
            if subscribed.iter().any(Result::is_err) {
                Backoff::between(PAUSE, PAUSE).wait().await;
            }
        }
    }

    async fn subscribe_to(&self, waiters: &Arc<Waiters>, bucket: Bucket) -> RedisResult<()> {
        let master = {
            let mut state = self.state.lock();
            state.subscribed.entry(bucket).or_default();
            state.map.master(number(bucket)).cloned()
        };
        let at = master.ok_or_else(no_master)?;
        let mut listener = self.listener(&at).await?;
        subscribe(&mut listener, waiters, bucket).await?;
        self.state
            .lock()
            .subscribed
            .insert(bucket, Some(Subscription { at, closed: listener.closed }));
        Ok(())
    }

    async fn listener(&self, at: &Arc<str>) -> RedisResult<Listener> {
        let cell = {
            let mut state = self.state.lock();
            let listener = state.connections.entry(Arc::clone(at)).or_default();
            if is_closed(listener) {
                *listener = Arc::default();
            }
            Arc::clone(listener)
        };
        cell.get_or_try_init(|| self.open(at)).await.cloned()
    }

    async fn open(&self, address: &Arc<str>) -> RedisResult<Listener> {
        let closed = Arc::new(AtomicBool::new(false));
        let (state, waiters, lost) =
            (Arc::downgrade(&self.state), self.waiters.clone(), Arc::clone(&self.lost));
        let (at, ends) = (Arc::clone(address), Arc::clone(&closed));
        let push = move |info: PushInfo| {
            let Some(state) = state.upgrade() else { return };
            let unasked = info.kind == PushKind::SUnsubscribe;
            if state.lock().receive(info, &at, &ends, waiters.as_deref()) || unasked {
                ends.store(true, Ordering::SeqCst);
                lost.notify_one();
            }
        };
        let redis = open::connection(&self.config, address, &self.config.login, push).await?;
        Ok(Listener::new(redis, closed))
    }
}

async fn subscribe(listener: &mut Listener, waiters: &Waiters, bucket: Bucket) -> RedisResult<()> {
    let mut command = redis::cmd("SSUBSCRIBE");
    command.arg(waiters.channel_of(bucket));
    listener.redis.send_packed_command(&command).await?.extract_error().map(drop)
}

/// The map, and the connections that listen.
#[derive(Default)]
struct Subscriptions {
    map: Map,
    /// The largest number of replicas in this map and those before.
    most_replicas: usize,
    /// By address.
    connections: HashMap<Arc<str>, Arc<OnceCell<Listener>>>,
    /// For each bucket that had a waiter, the connection that is subscribed to it.
    subscribed: HashMap<Bucket, Option<Subscription>>,
    /// The index of the address to try next.
    turn: usize,
}

/// A connection that listens.
#[derive(Clone)]
struct Listener {
    redis: MultiplexedConnection,
    /// No message arrives on it any more.
    closed: Arc<AtomicBool>,
    /// The number of requests in a row without an answer.
    late: Arc<AtomicU32>,
}

/// The subscription for a bucket.
struct Subscription {
    at: Arc<str>,
    closed: Arc<AtomicBool>,
}

impl Listener {
    fn new(redis: MultiplexedConnection, closed: Arc<AtomicBool>) -> Self {
        Self { redis, closed, late: Arc::default() }
    }

    /// Asks the node at the other end, which has this address, for its map.
    async fn ask(&self, at: &str, limit: Duration) -> Option<Map> {
        let mut question = redis::cmd("CLUSTER");
        question.arg("SLOTS");
        let mut redis = self.redis.clone();
        let answer = timeout(limit, redis.send_packed_command(&question)).await;
        let map = answer.ok().and_then(Result::ok).and_then(|value| Map::read(&value, at));
        match map {
            Some(_) => self.late.store(0, Ordering::Relaxed),
            // A single timeout may come from load.
            None if self.late.fetch_add(1, Ordering::Relaxed) == 0 => {}
            None => self.closed.store(true, Ordering::SeqCst),
        }
        map
    }
}

impl Subscriptions {
    /// Returns whether messages of a bucket arrive from its master.
    fn is_subscribed(&self, bucket: Bucket) -> bool {
        let subscribed = self.subscribed.get(&bucket).and_then(Option::as_ref);
        subscribed.is_some_and(|subscribed| {
            !subscribed.closed.load(Ordering::SeqCst)
                && self.map.master(number(bucket)) == Some(&subscribed.at)
        })
    }

    /// Returns the buckets that need a new subscription.
    fn missing(&self) -> Vec<Bucket> {
        self.subscribed.keys().copied().filter(|bucket| !self.is_subscribed(*bucket)).collect()
    }

    /// Returns the connections that work, as far as is known.
    fn open(&self) -> Vec<(Arc<str>, Listener)> {
        let open = self.connections.iter().filter(|(_, listener)| !is_closed(listener));
        open.filter_map(|(at, listener)| Some((Arc::clone(at), listener.get()?.clone()))).collect()
    }

    /// Passes a message of the connection to this address to the waiters, if it counts. Returns
    /// whether the connection is lost.
    fn receive(
        &self,
        info: PushInfo,
        at: &Arc<str>,
        closed: &AtomicBool,
        waiters: Option<&Waiters>,
    ) -> bool {
        let counts = match info.data.first() {
            Some(Value::BulkString(channel)) => {
                let bucket = bucket_of(channel);
                let master = bucket.and_then(|bucket| self.map.master(bucket));
                master == Some(at) && !closed.load(Ordering::SeqCst)
            }
            _ => false,
        };
        receive(info, waiters.filter(|_| counts), Clock::Boot.now())
    }

    /// Replaces the map. Connections to nodes that are no masters any more are closed. Returns the
    /// buckets that have another master than before.
    fn follow(&mut self, map: Map) -> HashSet<Bucket> {
        let masters = map.masters();
        self.connections.retain(|at, listener| {
            if let Some(listener) = listener.get().filter(|_| !masters.contains(at)) {
                listener.closed.store(true, Ordering::SeqCst);
            }
            masters.contains(at) && !is_closed(listener)
        });
        self.most_replicas = self.most_replicas.max(map.replicas);
        let before = std::mem::replace(&mut self.map, map);
        let master = |map: &Map, bucket| map.master(number(bucket)).cloned();
        Bucket::all().filter(|of| master(&before, *of) != master(&self.map, *of)).collect()
    }

    /// Returns all addresses that may lead to a node, each time with another one first. Masters
    /// come first, since connections to other nodes are closed again.
    fn candidates(&mut self, configured: &[String]) -> Vec<Arc<str>> {
        let mut masters: Vec<_> = self.map.masters().into_iter().collect();
        self.turn = (self.turn + 1) % masters.len().max(1);
        masters.rotate_left(self.turn);
        masters.extend(configured.iter().map(|at| Arc::from(at.as_str())));
        masters
    }
}

/// Returns the index of a bucket in a map.
fn number(bucket: Bucket) -> usize {
    usize::from(bucket.number())
}

/// Returns the index of the bucket of a [channel](Waiters::channel_of).
fn bucket_of(channel: &[u8]) -> Option<usize> {
    let number = channel.strip_suffix(b"}")?.rsplit(|byte| *byte == b'{').next()?;
    std::str::from_utf8(number).ok()?.parse().ok()
}

/// Returns whether there is a connection, and it is closed.
fn is_closed(listener: &OnceCell<Listener>) -> bool {
    listener.get().is_some_and(|listener| listener.closed.load(Ordering::SeqCst))
}

#[cfg(test)]
mod tests {
    use dlock_core::{AcquireRequest, LockName, Mode};

    use super::*;
    use crate::reply::QueuePosition;

    /// A map with one master at this port, which has this number of replicas.
    fn map(port: i64, replicas: usize) -> Map {
        let node = Value::Array(vec![Value::BulkString(b"host".to_vec()), Value::Int(port)]);
        let mut range = vec![Value::Int(0), Value::Int(16_383)];
        range.resize(range.len() + 1 + replicas, node);
        Map::read(&Value::Array(vec![Value::Array(range)]), "x:9").unwrap()
    }

    #[test]
    fn the_most_replicas_of_all_maps_count() {
        let mut state = Subscriptions::default();
        for (replicas, most) in [(1, 1), (2, 2), (0, 2)] {
            state.follow(map(1, replicas));
            assert_eq!(state.most_replicas, most);
        }
    }

    #[test]
    fn a_message_of_a_replaced_master_is_ignored() {
        let waiters = Waiters::new();
        let name = LockName::new("a").unwrap();
        let bucket = Bucket::of(&name);
        let request = AcquireRequest::new(name, Mode::Exclusive, Duration::from_secs(60));
        let channel = waiters.channel_of(bucket);
        let position = QueuePosition { first: true, next_end: Duration::MAX, at: 1_000 };
        let mut state = Subscriptions::default();
        let comes = |state: &Subscriptions, from: &str, is_closed| {
            waiters.expect(&request);
            waiters.queued(request.claim, Clock::Boot.now(), position);
            let text = |text: &str| Value::BulkString(text.as_bytes().to_vec());
            let data = vec![text(&channel), text(&format!("{} 7 1000", request.claim))];
            let message = PushInfo { kind: PushKind::SMessage, data };
            state.receive(message, &from.into(), &AtomicBool::new(is_closed), Some(&waiters));
            waiters.take(request.claim).is_some()
        };
        assert_eq!(state.follow(map(1, 0)).len(), Bucket::all().count());
        assert!(comes(&state, "host:1", false));
        assert!(!comes(&state, "host:1", true), "a connection that was closed");
        assert!(state.follow(map(1, 1)).is_empty());
        assert!(state.follow(map(2, 0)).contains(&bucket));
        assert!(!comes(&state, "host:1", false), "the former master");
        assert!(comes(&state, "host:2", false));
    }
}

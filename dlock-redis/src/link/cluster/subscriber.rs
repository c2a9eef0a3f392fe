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
//! # Concurrency
//!
//! `denied` goes from false to true once, and only saves attempts that would be refused. For `closed` see
//! [`book`](super::book): the callback stores it, then notifies `lost`, which keeps one notice for a task
//! that is not waiting yet.

use std::{
    collections::BTreeSet,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use dlock_core::Clock;
use futures_util::future::join_all;
use parking_lot::Mutex;
use redis::{PushInfo, PushKind, RedisResult};
use tokio::sync::Notify;

use super::{
    super::{open, push::receive},
    map::Map,
    route::no_master,
    state::{Listener, Subscription, Subscriptions, is_closed, number},
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
    state: Mutex<Subscriptions>,
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
            state: Mutex::default(),
            lost: Arc::default(),
            map_read: Notify::new(),
            denied: AtomicBool::new(false),
        }
    }

    /// Returns the channel of a bucket, if there is a subscription.
    pub(super) async fn channel(&self, bucket: Bucket) -> Option<String> {
        let waiters = self.waiters.as_ref().filter(|_| self.may_subscribe())?;
        if !self.state.lock().is_subscribed(bucket)
            && let Err(error) = self.subscribe_to(waiters, bucket).await
        {
            tracing::debug!(target: "dlock", %error, "pub/sub connection failed, falling back to polling");
            self.lost.notify_one();
            return None;
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

    /// Returns the largest number of replicas that a master has.
    pub(super) fn replicas(&self) -> usize {
        self.state.lock().map.replicas
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
        self.state.lock().follow(map);
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
                tokio::time::sleep(PAUSE).await;
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

    async fn open(&self, address: &str) -> RedisResult<Listener> {
        let closed = Arc::new(AtomicBool::new(false));
        let (waiters, lost, ends) =
            (self.waiters.clone(), Arc::clone(&self.lost), Arc::clone(&closed));
        let push = move |info: PushInfo| {
            let unasked = info.kind == PushKind::SUnsubscribe;
            if receive(info, waiters.as_deref(), Clock::Boot.now()) || unasked {
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

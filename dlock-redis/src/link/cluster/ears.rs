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
//! `denied` goes from false to true once, and only saves attempts that would be refused. For `deaf` see
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
    book::{Ear, Heard, ListenerBook, is_deaf, number},
    map::Map,
    route::lost,
};
use crate::{config::RedisConfig, error::is_denial, inbox::Inbox, keys::Bucket};

/// The longest wait for the map of one node. It is short, since any other node can answer as well.
const PATIENCE: Duration = Duration::from_millis(500);
/// The pause after a failed subscription.
const PAUSE: Duration = Duration::from_secs(1);

/// The connections that listen.
pub(super) struct Ears {
    config: RedisConfig,
    inbox: Option<Arc<Inbox>>,
    book: Mutex<ListenerBook>,
    /// A connection was lost, or leads to the wrong node by now.
    lost: Arc<Notify>,
    /// The map was just read.
    looked: Notify,
    /// This user may not subscribe.
    denied: AtomicBool,
}

impl Ears {
    pub(super) fn new(config: &RedisConfig, inbox: Option<Arc<Inbox>>) -> Self {
        Self {
            config: config.clone(),
            inbox,
            book: Mutex::default(),
            lost: Arc::default(),
            looked: Notify::new(),
            denied: AtomicBool::new(false),
        }
    }

    /// Returns the channel of a bucket, if there is a subscription.
    pub(super) async fn channel(&self, bucket: Bucket) -> Option<String> {
        let inbox = self.inbox.as_ref().filter(|_| self.may_listen())?;
        if !self.book.lock().hears(bucket)
            && let Err(error) = self.listen(inbox, bucket).await
        {
            tracing::debug!(target: "dlock", %error, "pub/sub connection failed, falling back to polling");
            self.lost.notify_one();
            return None;
        }
        Some(inbox.channel_of(bucket))
    }

    /// Checks whether this user may subscribe. It asks a master for a bucket of another master. The
    /// answer is a redirection, so no subscription remains. If one master has all buckets, the
    /// subscription stays.
    pub(super) async fn try_listening(&self, store: &str) {
        let Some(inbox) = &self.inbox else { return };
        let elsewhere = {
            let book = self.book.lock();
            let of_another = |at: &Arc<str>| {
                let is_other = |master: &Arc<str>| master != at;
                Bucket::all().find(|bucket| book.map.master(number(*bucket)).is_some_and(is_other))
            };
            book.open().into_iter().find_map(|(at, ear)| Some((ear, of_another(&at)?)))
        };
        let tried = match elsewhere {
            Some((mut ear, bucket)) => ask_to_listen(&mut ear, inbox, bucket).await,
            None => self.listen(inbox, Bucket::ANY).await,
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
            self.book.lock().heard.clear();
        }
    }

    /// Returns whether this user may subscribe, as far as is known.
    pub(super) fn may_listen(&self) -> bool {
        !self.denied.load(Ordering::Relaxed)
    }

    /// Returns the masters that have buckets.
    pub(super) fn masters(&self) -> BTreeSet<Arc<str>> {
        self.book.lock().map.masters()
    }

    /// Returns the largest number of replicas that a master has.
    pub(super) fn replicas(&self) -> usize {
        self.book.lock().map.replicas
    }

    /// Returns the master of a bucket, by its number.
    pub(super) fn master(&self, bucket: usize) -> Option<Arc<str>> {
        self.book.lock().map.master(bucket).cloned()
    }

    /// Requests that the map is read again.
    pub(super) fn look_soon(&self) {
        self.lost.notify_one();
    }

    /// Waits for a reason to read the map.
    pub(super) async fn until_lost(&self) {
        self.lost.notified().await;
    }

    /// Reads the map, and uses the one on which most of the connected nodes agree. Returns false if
    /// no node answered.
    pub(super) async fn look(&self) -> bool {
        let known = self.book.lock().open();
        let answers = join_all(known.iter().map(|(at, ear)| ear.ask(at, PATIENCE))).await;
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
            None => self.ask_anybody().await,
        };
        let Some(map) = found else { return false };
        self.book.lock().follow(map);
        self.looked.notify_one();
        true
    }

    async fn ask_anybody(&self) -> Option<Map> {
        let candidates = self.book.lock().candidates(&self.config.addresses);
        for at in candidates {
            if let Ok(ear) = self.ear(&at).await
                && let Some(map) = ear.ask(&at, self.config.response_timeout).await
            {
                return Some(map);
            }
        }
        None
    }

    /// Renews lost subscriptions, then requests a poll of all claims whose message may have been
    /// lost meanwhile.
    pub(super) async fn keep_listening(&self) {
        let Some(inbox) = &self.inbox else { return };
        loop {
            self.looked.notified().await;
            let lost = self.book.lock().unheard();
            let heard = join_all(lost.iter().map(|bucket| self.listen(inbox, *bucket))).await;
            if heard.iter().any(Result::is_ok) {
                inbox.reconnected();
            }
            if heard.iter().any(Result::is_err) {
                tokio::time::sleep(PAUSE).await;
            }
        }
    }

    async fn listen(&self, inbox: &Arc<Inbox>, bucket: Bucket) -> RedisResult<()> {
        let master = {
            let mut book = self.book.lock();
            book.heard.entry(bucket).or_default();
            book.map.master(number(bucket)).cloned()
        };
        let at = master.ok_or_else(lost)?;
        let mut ear = self.ear(&at).await?;
        ask_to_listen(&mut ear, inbox, bucket).await?;
        self.book.lock().heard.insert(bucket, Some(Heard { at, deaf: ear.deaf }));
        Ok(())
    }

    async fn ear(&self, at: &Arc<str>) -> RedisResult<Ear> {
        let cell = {
            let mut book = self.book.lock();
            let ear = book.ears.entry(Arc::clone(at)).or_default();
            if is_deaf(ear) {
                *ear = Arc::default();
            }
            Arc::clone(ear)
        };
        cell.get_or_try_init(|| self.open(at)).await.cloned()
    }

    async fn open(&self, address: &str) -> RedisResult<Ear> {
        let deaf = Arc::new(AtomicBool::new(false));
        let (inbox, lost, ends) = (self.inbox.clone(), Arc::clone(&self.lost), Arc::clone(&deaf));
        let push = move |info: PushInfo| {
            let unasked = info.kind == PushKind::SUnsubscribe;
            if receive(info, inbox.as_deref(), Clock::Boot.now()) || unasked {
                ends.store(true, Ordering::SeqCst);
                lost.notify_one();
            }
        };
        let redis = open::connection(&self.config, address, &self.config.login, push).await?;
        Ok(Ear::new(redis, deaf))
    }
}

async fn ask_to_listen(ear: &mut Ear, inbox: &Inbox, bucket: Bucket) -> RedisResult<()> {
    let mut subscribe = redis::cmd("SSUBSCRIBE");
    subscribe.arg(inbox.channel_of(bucket));
    ear.redis.send_packed_command(&subscribe).await?.extract_error().map(drop)
}

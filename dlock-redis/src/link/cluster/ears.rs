//! Messages from the masters of a cluster, and where the slots are.
//!
//! Messages come on connections of their own, one for each master that somebody waits at. A node
//! that gives a slot away unsubscribes its clients unasked, and the driver takes that for the
//! answer to whatever command is on its way, so that every answer after it belongs to the command
//! before. Here no answer matters much, and a connection on which that happened is closed.
//!
//! The driver also subscribes anew with one command for all channels of a node, which a cluster
//! refuses when they are of several slots; and at a master that became a replica it would hear
//! everything while the scripts, which count who hears them, believe it gone. So where a channel
//! belongs is looked up here, about once a second and whenever a connection is lost.

use std::{
    collections::{BTreeSet, HashMap},
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU32, Ordering},
    },
    time::Duration,
};

use dlock_core::Clock;
use futures_util::future::join_all;
use parking_lot::Mutex;
use redis::{ErrorKind, PushInfo, PushKind, RedisError, RedisResult, aio::MultiplexedConnection};
use tokio::{
    sync::{Notify, OnceCell},
    time::timeout,
};

use super::{map::Map, open, receive};
use crate::{config::RedisConfig, inbox::Inbox, keys::Bucket};

/// How long a node may take to say where the slots are, since another one will do.
const PATIENCE: Duration = Duration::from_millis(500);
/// The pause before listening again where that failed.
const PAUSE: Duration = Duration::from_secs(1);

/// Connections that listen.
pub(super) struct Ears {
    config: RedisConfig,
    inbox: Option<Arc<Inbox>>,
    book: Mutex<Book>,
    /// A connection was lost, or is not at the right node any more.
    lost: Arc<Notify>,
    /// It was just found out where the slots are.
    looked: Notify,
}

#[derive(Default)]
struct Book {
    map: Map,
    /// By address.
    ears: HashMap<Arc<str>, Arc<OnceCell<Ear>>>,
    /// Where each bucket is heard that somebody has waited at.
    heard: HashMap<Bucket, Option<Heard>>,
    /// Which of all addresses to try next.
    turn: usize,
}

#[derive(Clone)]
struct Ear {
    redis: MultiplexedConnection,
    deaf: Arc<AtomicBool>,
    /// How many questions in a row got no answer.
    late: Arc<AtomicU32>,
}

struct Heard {
    at: Arc<str>,
    deaf: Arc<AtomicBool>,
}

impl Ears {
    pub(super) fn new(config: &RedisConfig, inbox: Option<Arc<Inbox>>) -> Self {
        Self {
            config: config.clone(),
            inbox,
            book: Mutex::default(),
            lost: Arc::default(),
            looked: Notify::new(),
        }
    }

    /// The channel of a bucket, if it can be heard.
    pub(super) async fn channel(&self, bucket: Bucket) -> Option<String> {
        let inbox = self.inbox.as_ref()?;
        if !self.book.lock().hears(bucket)
            && let Err(error) = self.listen(inbox, bucket).await
        {
            tracing::debug!(%error, "no messages yet, so waiting locks ask now and then");
            self.lost.notify_one();
            return None;
        }
        Some(inbox.channel_of(bucket))
    }

    /// The masters that have buckets.
    pub(super) fn masters(&self) -> BTreeSet<Arc<str>> {
        self.book.lock().map.masters()
    }

    /// How many replicas a master has, at the most.
    pub(super) fn replicas(&self) -> usize {
        self.book.lock().map.replicas
    }

    /// The master of a bucket, by its number.
    pub(super) fn master(&self, bucket: usize) -> Option<Arc<str>> {
        self.book.lock().map.master(bucket).cloned()
    }

    /// There is reason to look where the slots are.
    pub(super) fn look_soon(&self) {
        self.lost.notify_one();
    }

    /// Waits until there is reason to look where the slots are.
    pub(super) async fn until_lost(&self) {
        self.lost.notified().await;
    }

    /// Finds out where the slots are: what most of the nodes say that are listened to. Whether
    /// anybody answered.
    pub(super) async fn look(&self) -> bool {
        let known = self.book.lock().open();
        let answers = join_all(known.iter().map(|(at, ear)| ask(at, ear, PATIENCE))).await;
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
                && let Some(map) = ask(&at, &ear, self.config.response_timeout).await
            {
                return Some(map);
            }
        }
        None
    }

    /// Listens again where it was heard before, and has everybody asked who may have missed a
    /// message meanwhile.
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
        let nobody = || RedisError::from((ErrorKind::ClusterConnectionNotFound, "no master"));
        let at = master.ok_or_else(nobody)?;
        let mut ear = self.ear(&at).await?;
        let mut subscribe = redis::cmd("SSUBSCRIBE");
        subscribe.arg(inbox.channel_of(bucket));
        ear.redis.send_packed_command(&subscribe).await?.extract_error()?;
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
        Ok(Ear { redis, deaf, late: Arc::default() })
    }
}

impl Book {
    fn hears(&self, bucket: Bucket) -> bool {
        let heard = self.heard.get(&bucket).and_then(Option::as_ref);
        heard.is_some_and(|heard| {
            !heard.deaf.load(Ordering::SeqCst) && self.map.master(number(bucket)) == Some(&heard.at)
        })
    }

    fn unheard(&self) -> Vec<Bucket> {
        self.heard.keys().copied().filter(|bucket| !self.hears(*bucket)).collect()
    }

    /// The connections that work, as far as anybody knows.
    fn open(&self) -> Vec<(Arc<str>, Ear)> {
        let open = self.ears.iter().filter(|(_, ear)| !is_deaf(ear));
        open.filter_map(|(at, ear)| Some((Arc::clone(at), ear.get()?.clone()))).collect()
    }

    /// Connections to nodes that are no masters any more end with this.
    fn follow(&mut self, map: Map) {
        let masters = map.masters();
        self.ears.retain(|at, ear| {
            if let Some(ear) = ear.get().filter(|_| !masters.contains(at)) {
                ear.deaf.store(true, Ordering::SeqCst);
            }
            masters.contains(at) && !is_deaf(ear)
        });
        self.map = map;
    }

    /// All addresses that may lead to a node, beginning with another one each time.
    fn candidates(&mut self, configured: &[String]) -> Vec<Arc<str>> {
        let mut all = self.map.masters();
        all.extend(configured.iter().map(|at| Arc::from(at.as_str())));
        let mut all: Vec<_> = all.into_iter().collect();
        self.turn = (self.turn + 1) % all.len().max(1);
        all.rotate_left(self.turn);
        all
    }
}

fn number(bucket: Bucket) -> usize {
    usize::from(bucket.number())
}

/// Where the slots are, by the node at the other end.
async fn ask(at: &str, ear: &Ear, patience: Duration) -> Option<Map> {
    let mut question = redis::cmd("CLUSTER");
    question.arg("SLOTS");
    let mut redis = ear.redis.clone();
    let answer = timeout(patience, redis.send_packed_command(&question)).await;
    let map = answer.ok().and_then(Result::ok).and_then(|value| Map::read(&value, at));
    match map {
        Some(_) => ear.late.store(0, Ordering::Relaxed),
        // Once may be the load.
        None if ear.late.fetch_add(1, Ordering::Relaxed) == 0 => {}
        None => ear.deaf.store(true, Ordering::SeqCst),
    }
    map
}

/// Whether a connection is there that nothing is heard on any more.
fn is_deaf(ear: &OnceCell<Ear>) -> bool {
    ear.get().is_some_and(|ear| ear.deaf.load(Ordering::SeqCst))
}

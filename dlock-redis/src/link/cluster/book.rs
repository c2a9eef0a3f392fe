//! What is known of the masters of a cluster, and of the connections that listen there.
//!
//! # Concurrency
//!
//! `deaf` goes from false to true once: the connection's own callback sets it when messages end, and
//! the look at the masters sets it when they have moved or do not answer. The task that sees it opens
//! another connection. The callback sets `deaf` before it wakes that task, so the task does not sleep
//! again over a connection that is deaf. `late` counts questions in a row without an answer.

use std::{
    collections::HashMap,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU32, Ordering},
    },
    time::Duration,
};

use redis::aio::MultiplexedConnection;
use tokio::{sync::OnceCell, time::timeout};

use super::map::Map;
use crate::keys::Bucket;

/// What is known.
#[derive(Default)]
pub(super) struct ListenerBook {
    pub(super) map: Map,
    /// By address.
    pub(super) ears: HashMap<Arc<str>, Arc<OnceCell<Ear>>>,
    /// Where each bucket is heard that somebody has waited at.
    pub(super) heard: HashMap<Bucket, Option<Heard>>,
    /// Which of all addresses to try next.
    turn: usize,
}

/// A connection that listens.
#[derive(Clone)]
pub(super) struct Ear {
    pub(super) redis: MultiplexedConnection,
    /// Nothing is heard on it any more.
    pub(super) deaf: Arc<AtomicBool>,
    /// How many questions in a row got no answer.
    late: Arc<AtomicU32>,
}

/// Where messages of a bucket arrive.
pub(super) struct Heard {
    pub(super) at: Arc<str>,
    pub(super) deaf: Arc<AtomicBool>,
}

impl Ear {
    pub(super) fn new(redis: MultiplexedConnection, deaf: Arc<AtomicBool>) -> Self {
        Self { redis, deaf, late: Arc::default() }
    }

    /// Where the slots are, by the node at the other end, which has this address.
    pub(super) async fn ask(&self, at: &str, patience: Duration) -> Option<Map> {
        let mut question = redis::cmd("CLUSTER");
        question.arg("SLOTS");
        let mut redis = self.redis.clone();
        let answer = timeout(patience, redis.send_packed_command(&question)).await;
        let map = answer.ok().and_then(Result::ok).and_then(|value| Map::read(&value, at));
        match map {
            Some(_) => self.late.store(0, Ordering::Relaxed),
            // Once may be the load.
            None if self.late.fetch_add(1, Ordering::Relaxed) == 0 => {}
            None => self.deaf.store(true, Ordering::SeqCst),
        }
        map
    }
}

impl ListenerBook {
    /// Whether messages of a bucket arrive from its master.
    pub(super) fn hears(&self, bucket: Bucket) -> bool {
        let heard = self.heard.get(&bucket).and_then(Option::as_ref);
        heard.is_some_and(|heard| {
            !heard.deaf.load(Ordering::SeqCst) && self.map.master(number(bucket)) == Some(&heard.at)
        })
    }

    /// The buckets whose messages do not arrive and should.
    pub(super) fn unheard(&self) -> Vec<Bucket> {
        self.heard.keys().copied().filter(|bucket| !self.hears(*bucket)).collect()
    }

    /// The connections that work, as far as anybody knows.
    pub(super) fn open(&self) -> Vec<(Arc<str>, Ear)> {
        let open = self.ears.iter().filter(|(_, ear)| !is_deaf(ear));
        open.filter_map(|(at, ear)| Some((Arc::clone(at), ear.get()?.clone()))).collect()
    }

    /// Takes note of where the slots are. Connections to nodes that are no masters any more end.
    pub(super) fn follow(&mut self, map: Map) {
        let masters = map.masters();
        self.ears.retain(|at, ear| {
            if let Some(ear) = ear.get().filter(|_| !masters.contains(at)) {
                ear.deaf.store(true, Ordering::SeqCst);
            }
            masters.contains(at) && !is_deaf(ear)
        });
        self.map = map;
    }

    /// All addresses that may lead to a node, beginning with another one each time. Masters first,
    /// since connections to others don't stay.
    pub(super) fn candidates(&mut self, configured: &[String]) -> Vec<Arc<str>> {
        let mut masters: Vec<_> = self.map.masters().into_iter().collect();
        self.turn = (self.turn + 1) % masters.len().max(1);
        masters.rotate_left(self.turn);
        masters.extend(configured.iter().map(|at| Arc::from(at.as_str())));
        masters
    }
}

/// The place of a bucket in a map.
pub(super) fn number(bucket: Bucket) -> usize {
    usize::from(bucket.number())
}

/// Whether a connection is there that nothing is heard on any more.
pub(super) fn is_deaf(ear: &OnceCell<Ear>) -> bool {
    ear.get().is_some_and(|ear| ear.deaf.load(Ordering::SeqCst))
}

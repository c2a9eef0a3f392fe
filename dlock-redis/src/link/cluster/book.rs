//! The masters of a cluster, and the connections that listen for messages there.
//!
//! # Concurrency
//!
//! `closed` goes from false to true once: the connection's own callback sets it when messages end,
//! and the task that reads the map sets it when a master has moved or does not answer. The task
//! that sees it opens another connection. The callback sets `closed` before it wakes that task, so
//! the task does not sleep again while a connection is closed. `late` counts requests in a row
//! without an answer.

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

/// The map, and the connections that listen.
#[derive(Default)]
pub(super) struct Subscriptions {
    pub(super) map: Map,
    /// By address.
    pub(super) connections: HashMap<Arc<str>, Arc<OnceCell<Listener>>>,
    /// For each bucket that had a waiter, the connection that is subscribed to it.
    pub(super) subscribed: HashMap<Bucket, Option<Subscription>>,
    /// The index of the address to try next.
    turn: usize,
}

/// A connection that listens.
#[derive(Clone)]
pub(super) struct Listener {
    pub(super) redis: MultiplexedConnection,
    /// No message arrives on it any more.
    pub(super) closed: Arc<AtomicBool>,
    /// The number of requests in a row without an answer.
    late: Arc<AtomicU32>,
}

/// The subscription for a bucket.
pub(super) struct Subscription {
    pub(super) at: Arc<str>,
    pub(super) closed: Arc<AtomicBool>,
}

impl Listener {
    pub(super) fn new(redis: MultiplexedConnection, closed: Arc<AtomicBool>) -> Self {
        Self { redis, closed, late: Arc::default() }
    }

    /// Asks the node at the other end, which has this address, for its map.
    pub(super) async fn ask(&self, at: &str, limit: Duration) -> Option<Map> {
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
    pub(super) fn is_subscribed(&self, bucket: Bucket) -> bool {
        let subscribed = self.subscribed.get(&bucket).and_then(Option::as_ref);
        subscribed.is_some_and(|subscribed| {
            !subscribed.closed.load(Ordering::SeqCst)
                && self.map.master(number(bucket)) == Some(&subscribed.at)
        })
    }

    /// Returns the buckets that need a new subscription.
    pub(super) fn missing(&self) -> Vec<Bucket> {
        self.subscribed.keys().copied().filter(|bucket| !self.is_subscribed(*bucket)).collect()
    }

    /// Returns the connections that work, as far as is known.
    pub(super) fn open(&self) -> Vec<(Arc<str>, Listener)> {
        let open = self.connections.iter().filter(|(_, listener)| !is_closed(listener));
        open.filter_map(|(at, listener)| Some((Arc::clone(at), listener.get()?.clone()))).collect()
    }

    /// Replaces the map. Connections to nodes that are no masters any more are closed.
    pub(super) fn follow(&mut self, map: Map) {
        let masters = map.masters();
        self.connections.retain(|at, listener| {
            if let Some(listener) = listener.get().filter(|_| !masters.contains(at)) {
                listener.closed.store(true, Ordering::SeqCst);
            }
            masters.contains(at) && !is_closed(listener)
        });
        self.map = map;
    }

    /// Returns all addresses that may lead to a node, each time with another one first. Masters
    /// come first, since connections to other nodes are closed again.
    pub(super) fn candidates(&mut self, configured: &[String]) -> Vec<Arc<str>> {
        let mut masters: Vec<_> = self.map.masters().into_iter().collect();
        self.turn = (self.turn + 1) % masters.len().max(1);
        masters.rotate_left(self.turn);
        masters.extend(configured.iter().map(|at| Arc::from(at.as_str())));
        masters
    }
}

/// Returns the place of a bucket in a map.
pub(super) fn number(bucket: Bucket) -> usize {
    usize::from(bucket.number())
}

/// Returns whether there is a connection, and it is closed.
pub(super) fn is_closed(listener: &OnceCell<Listener>) -> bool {
    listener.get().is_some_and(|listener| listener.closed.load(Ordering::SeqCst))
}

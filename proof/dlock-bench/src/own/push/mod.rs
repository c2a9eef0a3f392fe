//! The baseline of a hand-off: a message in a ring of processes. Each step takes as long as the
//! server and the driver need to deliver it.
//!
//! ```text
//! join PLACE                    -> ok          listens at a place of the ring
//! ring PLACE NEXT US FROM UNTIL -> ok NANOS... the time of each step to this place; each place keeps
//!                                 the message for so many microseconds
//! ```

mod etcd;
mod postgres;
mod redis;
mod zk;

use std::{sync::Arc, time::Duration};

use tokio::sync::Mutex;

use crate::{
    Failure,
    subject::{Lock, Subject, Want, Witness},
};

/// A place in the ring, after `join`.
#[derive(Clone)]
pub(super) struct Push {
    url: String,
    ring: Arc<Mutex<Option<Ring>>>,
}

enum Ring {
    Redis(redis::RedisRing),
    Postgres(postgres::PostgresRing),
    Zk(zk::ZkRing),
    Etcd(etcd::EtcdRing),
}

impl Push {
    pub(super) fn new(url: &str) -> Self {
        Self { url: url.to_owned(), ring: Arc::default() }
    }
}

/// What a place does with the message.
struct Trip<'a> {
    /// It sends the message first.
    first: bool,
    next: &'a str,
    hold: Duration,
    from: u64,
    until: u64,
}

/// Keeps the message for a while.
async fn pause(hold: Duration) {
    if !hold.is_zero() {
        tokio::time::sleep(hold).await;
    }
}

/// The type of its locks: it has none.
pub(super) enum Never {}

impl Lock for Never {
    async fn cycle<W: Witness>(&mut self, _witness: &mut W) -> Result<(), Failure> {
        match *self {}
    }
}

impl Subject for Push {
    type Lock = Never;

    async fn lock(&self, _want: Want<'_>) -> Result<Never, Failure> {
        Err("it has no locks".into())
    }

    async fn more(&self, words: &[&str]) -> Result<String, Failure> {
        let mut ring = self.ring.lock().await;
        match (words, ring.as_mut()) {
            (["join", place], None) => {
                *ring = Some(match self.url.split(':').next() {
                    Some("redis") => Ring::Redis(redis::RedisRing::join(&self.url, place).await?),
                    Some("postgres") => {
                        Ring::Postgres(postgres::PostgresRing::join(&self.url, place).await?)
                    }
                    Some("zk") => {
                        Ring::Zk(zk::ZkRing::join(super::address(&self.url), place).await?)
                    }
                    Some("etcd") => {
                        Ring::Etcd(etcd::EtcdRing::join(super::address(&self.url), place).await?)
                    }
                    _ => return Err("the store has no messages".into()),
                });
                Ok(String::new())
            }
            (["join", _], Some(_)) => Ok(String::new()),
            (["ring", place, next, hold, from, until], Some(ring)) => {
                let (first, hold) = (*place == "0", Duration::from_micros(hold.parse()?));
                let trip = Trip { first, next, hold, from: from.parse()?, until: until.parse()? };
                let took = match ring {
                    Ring::Redis(ring) => ring.go(trip).await?,
                    Ring::Postgres(ring) => ring.go(trip).await?,
                    Ring::Zk(ring) => ring.go(trip).await?,
                    Ring::Etcd(ring) => ring.go(trip).await?,
                };
                Ok(took.iter().map(|took| format!("{} ", took.as_nanos())).collect())
            }
            _ => Err(format!("it does not know: {}", words.join(" ")).into()),
        }
    }
}

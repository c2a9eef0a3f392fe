//! The baselines of Redis.

use futures_util::future::try_join_all;

use super::{
    Own,
    baseline::redis::{self as baseline, RedisBaselineLock},
    once::{self, Once},
};
use crate::{
    Failure,
    subject::{Lock, Subject, Want, Witness},
};

/// A connection that carries all concurrent requests.
#[derive(Clone)]
pub(super) struct RedisBaseline {
    /// The lock from which all others are derived.
    first: RedisBaselineLock,
    /// Whether the lock reads a token too.
    as_dlock: bool,
}

impl RedisBaseline {
    pub(super) async fn connect(url: &str, own: Own) -> Result<Self, Failure> {
        let first = RedisBaselineLock::new(baseline::connect(url).await?, "first").await?;
        Ok(Self { first, as_dlock: own == Own::Same })
    }
}

/// Locks that are acquired together.
pub(super) struct RedisBaselineLocks(Vec<RedisBaselineLock>);

impl Subject for RedisBaseline {
    type Lock = RedisBaselineLocks;

    async fn lock(&self, want: Want<'_>) -> Result<RedisBaselineLocks, Failure> {
        let names: Vec<&str> = match &want {
            Want::One(name) => vec![name],
            Want::All(names) => names.iter().map(String::as_str).collect(),
            Want::Fair(_) | Want::Read(_) | Want::Write(_) => return Err(super::NO_WAIT.into()),
        };
        let mut locks = Vec::new();
        for name in names {
            let lock = self.first.named(name);
            locks.push(if self.as_dlock { lock.with_look().await? } else { lock });
        }
        Ok(RedisBaselineLocks(locks))
    }

    async fn more(&self, words: &[&str]) -> Result<String, Failure> {
        once::more(self, words).await
    }
}

impl Once for RedisBaseline {
    async fn once(&self, name: &str) -> Result<(), Failure> {
        self.first.named(name).cycle().await
    }
}

impl Lock for RedisBaselineLocks {
    async fn cycle<W: Witness>(&mut self, _witness: &mut W) -> Result<(), Failure> {
        match &mut self.0[..] {
            [one] => one.cycle().await,
            all => try_join_all(all.iter_mut().map(RedisBaselineLock::cycle)).await.map(|_| ()),
        }
    }
}

//! The floors of Redis.

use futures_util::future::try_join_all;

use super::{
    Own,
    floor::redis::{self as floor, FloorLock},
    once::{self, Once},
};
use crate::{
    Failure,
    subject::{Lock, Subject, Want, Witness},
};

/// A connection, over which all requests go that are made at one time.
#[derive(Clone)]
pub(super) struct Bare {
    /// The lock that all others are made of.
    first: FloorLock,
    /// Whether it looks at a token as well.
    as_dlock: bool,
}

impl Bare {
    pub(super) async fn connect(url: &str, own: Own) -> Result<Self, Failure> {
        let first = FloorLock::new(floor::connect(url).await?, "first").await?;
        Ok(Self { first, as_dlock: own == Own::Same })
    }
}

/// Locks that are taken together.
pub(super) struct BareLocks(Vec<FloorLock>);

impl Subject for Bare {
    type Lock = BareLocks;

    async fn lock(&self, want: Want<'_>) -> Result<BareLocks, Failure> {
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
        Ok(BareLocks(locks))
    }

    async fn more(&self, words: &[&str]) -> Result<String, Failure> {
        once::more(self, words).await
    }
}

impl Once for Bare {
    async fn once(&self, name: &str) -> Result<(), Failure> {
        self.first.named(name).cycle().await
    }
}

impl Lock for BareLocks {
    async fn cycle<W: Witness>(&mut self, _witness: &mut W) -> Result<(), Failure> {
        match &mut self.0[..] {
            [one] => one.cycle().await,
            all => try_join_all(all.iter_mut().map(FloorLock::cycle)).await.map(|_| ()),
        }
    }
}

//! The floors of Redis.

use futures_util::future::try_join_all;
use redis::aio::MultiplexedConnection;

use super::Own;
use crate::{
    Failure,
    cycle::Cycle,
    redis::floor::{self, FloorLock},
    subject::{Lock, Subject, Want, Witness},
};

/// A connection, over which all requests go that are made at one time.
#[derive(Clone)]
pub(super) struct Bare {
    connection: MultiplexedConnection,
    /// Whether it sends all that dlock does.
    as_dlock: bool,
}

impl Bare {
    pub(super) async fn connect(url: &str, own: Own) -> Result<Self, Failure> {
        Ok(Self { connection: floor::connect(url).await?, as_dlock: own == Own::Same })
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
        let first = FloorLock::new(self.connection.clone(), "first").await?;
        let mut locks = Vec::new();
        for name in names {
            let lock = first.named(name);
            locks.push(if self.as_dlock { lock.with_look().await? } else { lock });
        }
        Ok(BareLocks(locks))
    }
}

impl Lock for BareLocks {
    async fn cycle<W: Witness>(&mut self, _witness: &mut W) -> Result<(), Failure> {
        match &mut self.0[..] {
            [one] => one.cycle().await,
            all => try_join_all(all.iter_mut().map(Cycle::cycle)).await.map(|_| ()),
        }
    }
}

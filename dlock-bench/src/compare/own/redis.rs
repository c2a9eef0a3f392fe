//! The floor of Redis.

use futures_util::future::try_join_all;
use redis::aio::MultiplexedConnection;

use crate::{
    Failure,
    cycle::Cycle,
    redis::floor::{self, FloorLock},
    subject::{Lock, Subject, Want, Witness},
};

/// A connection, over which all requests go that are made at one time.
#[derive(Clone)]
pub(super) struct Bare(MultiplexedConnection);

impl Bare {
    pub(super) async fn connect(url: &str) -> Result<Self, Failure> {
        Ok(Self(floor::connect(url).await?))
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
        let first = FloorLock::new(self.0.clone(), "first").await?;
        Ok(BareLocks(names.into_iter().map(|name| first.named(name)).collect()))
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

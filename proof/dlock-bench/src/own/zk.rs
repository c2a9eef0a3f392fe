//! The baseline of ZooKeeper.

use futures_util::future::try_join_all;
use zookeeper_client::Client;

use super::{
    baseline::zk::{self as baseline, ZkBaselineLock},
    once::{self, Once},
};
use crate::{
    Failure,
    subject::{Lock, Subject, Want, Witness},
};

/// A session that carries all concurrent requests.
#[derive(Clone)]
pub(super) struct ZkBaseline(Client);

impl ZkBaseline {
    pub(super) async fn connect(url: &str) -> Result<Self, Failure> {
        let client = baseline::connect(super::address(url)).await?;
        // This creates the parent directory, which must exist for a new name.
        ZkBaselineLock::new(&client, "first").await?;
        Ok(Self(client))
    }
}

/// Locks that are acquired together.
pub(super) struct ZkBaselineLocks(Vec<ZkBaselineLock>);

impl Subject for ZkBaseline {
    type Lock = ZkBaselineLocks;

    async fn lock(&self, want: Want<'_>) -> Result<ZkBaselineLocks, Failure> {
        let names: Vec<&str> = match &want {
            Want::One(name) => vec![name],
            Want::All(names) => names.iter().map(String::as_str).collect(),
            Want::Fair(_) | Want::Read(_) | Want::Write(_) => return Err(super::NO_WAIT.into()),
        };
        // Each part of a name with slashes would need a directory.
        let named = names.iter().map(|name| name.replace('/', "."));
        let mut locks = Vec::new();
        for name in named {
            locks.push(ZkBaselineLock::new(&self.0, &name).await?);
        }
        Ok(ZkBaselineLocks(locks))
    }

    async fn more(&self, words: &[&str]) -> Result<String, Failure> {
        once::more(self, words).await
    }
}

impl Once for ZkBaseline {
    async fn once(&self, name: &str) -> Result<(), Failure> {
        ZkBaselineLock::cycle_of_new(&self.0, &name.replace('/', ".")).await
    }
}

impl Lock for ZkBaselineLocks {
    async fn cycle<W: Witness>(&mut self, _witness: &mut W) -> Result<(), Failure> {
        match &self.0[..] {
            [one] => one.cycle().await,
            all => try_join_all(all.iter().map(ZkBaselineLock::cycle)).await.map(|_| ()),
        }
    }
}

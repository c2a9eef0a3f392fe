//! Which names are held or waited for.
//!
//! Their directories stand below the root, beside those that nobody has cleaned up yet. ZooKeeper has
//! no way to ask for some of the children of a node, so all of them come in one answer, about 60 bytes
//! each. This client takes an answer of any size; others that list the same node stop at their
//! `jute.maxbuffer`, 1 MB by default. Then the directories are looked at, some at a time.

use dlock_core::{Error, LockName};
use futures_util::future::try_join_all;
use zookeeper_client::Error as ZkError;

use crate::{
    error::{explain, no_answer},
    node::name_of,
    session::Session,
};

/// How many directories are looked at together.
const TOGETHER: usize = 100;

impl Session {
    /// The names that begin with `prefix` and are held or waited for, at most `limit`, as the leader
    /// knew it when it was asked.
    pub(crate) async fn names(&self, prefix: &str, limit: usize) -> Result<Vec<LockName>, Error> {
        let all = self.in_time(async {
            self.catch_up().await?;
            self.directories().await
        });
        let names: Vec<LockName> = (all.await?.iter())
            .filter_map(|dir| name_of(dir))
            .filter(|name| name.as_str().starts_with(prefix))
            .collect();
        let mut used = Vec::new();
        for some in names.chunks(TOGETHER) {
            if used.len() >= limit {
                break;
            }
            let looks = try_join_all(some.iter().map(|name| self.is_used(name)));
            let looks = self.in_time(looks).await?;
            used.extend(
                some.iter().zip(looks).filter(|(_, used)| *used).map(|(name, _)| name.clone()),
            );
        }
        used.truncate(limit);
        Ok(used)
    }

    /// Whether a claim is in the directory. Most are empty, which is seen without their children.
    async fn is_used(&self, name: &LockName) -> Result<bool, ZkError> {
        let dir = self.dir(name);
        let stat = self.read(|| self.client.check_stat(&dir)).await?;
        if stat.is_none_or(|stat| stat.num_children == 0) {
            return Ok(false);
        }
        let queue = self.list(&dir).await?;
        Ok(queue
            .is_some_and(|queue| !queue.nodes().is_empty() || queue.newer_before(None).is_some()))
    }

    /// The children of the root, as the connected server knows them.
    pub(crate) async fn directories(&self) -> Result<Vec<String>, ZkError> {
        let root = if self.root().is_empty() { "/" } else { self.root() };
        match self.read(|| self.client.list_children(root)).await {
            Err(ZkError::NoNode) => Ok(Vec::new()),
            answer => answer,
        }
    }

    /// What is answered while a caller has patience.
    pub(crate) async fn in_time<T>(
        &self,
        answer: impl Future<Output = Result<T, ZkError>>,
    ) -> Result<T, Error> {
        match tokio::time::timeout(self.patience(), answer).await {
            Ok(answer) => answer.map_err(explain),
            Err(_) => Err(no_answer()),
        }
    }
}

//! The names that are held or waited for.
//!
//! Their directories are below the root, together with empty ones that the servers have not removed
//! yet. ZooKeeper can't list a part of the children of a node, so all of them come in one answer,
//! with about 60 bytes each. This client accepts an answer of any size. Other clients that list the
//! same node stop at their `jute.maxbuffer`, 1 MB by default. Then this client reads the
//! directories, several at a time.

use dlock_core::{Error, LockName};
use futures_util::{TryFutureExt, future::try_join_all};
use zookeeper_client::Error as ZkError;

use crate::{
    error::{explain, no_answer},
    node::name_of,
    session::Session,
};

/// The number of directories that are read at a time.
const TOGETHER: usize = 100;

impl Session {
    /// Returns the names that begin with `prefix` and are held or waited for, at most `limit`, no
    /// older than this call.
    pub(crate) async fn list(&self, prefix: &str, limit: usize) -> Result<Vec<LockName>, Error> {
        let all = self.in_time(async {
            self.catch_up().await.map_err(explain)?;
            self.directories().await.map_err(explain)
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
            let looks = self.in_time(looks.map_err(explain)).await?;
            used.extend(
                some.iter().zip(looks).filter(|(_, used)| *used).map(|(name, _)| name.clone()),
            );
        }
        used.truncate(limit);
        Ok(used)
    }

    /// Returns whether there is a claim in the directory. Most are empty, which their stat shows
    /// without a list.
    async fn is_used(&self, name: &LockName) -> Result<bool, ZkError> {
        let dir = self.dir(name);
        let stat = self.read(|| self.client.check_stat(&dir)).await?;
        if stat.is_none_or(|stat| stat.num_children == 0) {
            return Ok(false);
        }
        let queue = self.listing(&dir).await?;
        Ok(queue
            .is_some_and(|queue| !queue.nodes().is_empty() || queue.newer_before(None).is_some()))
    }

    /// Returns the children of the root, as the connected server knows them.
    pub(crate) async fn directories(&self) -> Result<Vec<String>, ZkError> {
        let root = if self.root().is_empty() { "/" } else { self.root() };
        match self.read(|| self.client.list_children(root)).await {
            Err(ZkError::NoNode) => Ok(Vec::new()),
            answer => answer,
        }
    }

    /// Returns the answer of some work, if it arrives within the response timeout of the session.
    pub(crate) async fn in_time<T>(
        &self,
        answer: impl Future<Output = Result<T, Error>>,
    ) -> Result<T, Error> {
        match tokio::time::timeout(self.response_timeout(), answer).await {
            Ok(answer) => answer,
            Err(_) => Err(no_answer()),
        }
    }
}

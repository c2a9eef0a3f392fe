//! The state of a claim, read from the server.
//!
//! A list that was sent behind the creation of a node, or behind a heartbeat, is recent enough to
//! decide. Any server may answer a read, and may be behind the leader. So a read that has to be up
//! to date follows [`catch_up`](Session::catch_up), whose answer this server has to wait for.

use std::sync::Arc;

use futures_util::future::try_join_all;
use zookeeper_client::Error as ZkError;

use crate::{
    claim::Spot,
    queue::{Queue, Standing, Watch},
    record::{Mark, Record},
    session::Session,
};

impl Session {
    /// Returns the state of this node, according to the given list of its directory or a new one.
    pub(crate) async fn standing(
        &self,
        spot: &Spot,
        listed: Option<Arc<Queue>>,
    ) -> Result<Standing, ZkError> {
        let Some(queue) = self.queue(&spot.dir, listed).await? else {
            return Ok(Standing::Gone);
        };
        if let Some(format) = queue.newer_before(Some(&spot.child)) {
            return Ok(Standing::Unread(format));
        }
        let standing = queue.standing(&spot.child);
        match &standing {
            Standing::Behind(Watch::Writer(child)) if self.reads_only(&spot.dir, child).await? => {
                Ok(Standing::Held { followed: true })
            }
            _ => Ok(standing),
        }
    }

    /// Returns the claims in a directory by their numbers, or `None` if there is no directory.
    pub(crate) async fn listing(&self, dir: &str) -> Result<Option<Arc<Queue>>, ZkError> {
        match self.read(|| self.lists.queue(dir)).await {
            Ok(queue) => Ok(Some(queue)),
            Err(ZkError::NoNode) => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Returns the claims in a directory in their order, according to the given list or a new one,
    /// or `None` if there is no directory. If their numbers do not give the order any more, the
    /// zxids of their nodes do.
    pub(crate) async fn queue(
        &self,
        dir: &str,
        listed: Option<Arc<Queue>>,
    ) -> Result<Option<Arc<Queue>>, ZkError> {
        let mut listed = listed;
        loop {
            let Some(queue) = (match listed.take() {
                None => self.listing(dir).await?,
                listed => listed,
            }) else {
                return Ok(None);
            };
            // If a node can't be read, its age is unknown, too. The caller finds its format.
            if queue.in_order() || queue.newer_before(None).is_some() {
                return Ok(Some(queue));
            }
            let aged = queue.nodes().iter().map(async |node| {
                let path = format!("{dir}/{}", node.child);
                let stat = self.read(|| self.client.check_stat(&path)).await?;
                Ok::<_, ZkError>((stat.map(|stat| stat.czxid), node))
            });
            let (mut there, mut missing) = (Vec::new(), Vec::new());
            for (czxid, node) in try_join_all(aged).await? {
                match czxid {
                    Some(czxid) => there.push((czxid, node.clone())),
                    None => missing.push(node.claim),
                }
            }
            // A deleted node does not matter. But it may only have been renamed, and then it is
            // still in the queue.
            let renamed = !missing.is_empty()
                && self.listing(dir).await?.is_some_and(|now| {
                    now.nodes().iter().any(|node| missing.contains(&node.claim))
                });
            if !renamed {
                return Ok(Some(Arc::new(Queue::by_age(there))));
            }
        }
    }

    /// Makes the next read show all changes that a majority has committed until now.
    pub(crate) async fn catch_up(&self) -> Result<(), ZkError> {
        self.read(|| self.heartbeat()).await.map(|_| ())
    }

    /// Returns whether the first of the queue, which was a writer, has become a reader.
    async fn reads_only(&self, dir: &str, child: &str) -> Result<bool, ZkError> {
        let path = format!("{dir}/{child}");
        match self.read(|| self.client.get_data(&path)).await {
            Ok((data, _)) => Ok(Record::has(&data, Mark::Shared)),
            // It was deleted. It was the first of the queue and the last writer before the claim,
            // so only readers are left there.
            Err(ZkError::NoNode) => Ok(true),
            Err(error) => Err(error),
        }
    }
}

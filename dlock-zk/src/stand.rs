//! Where a claim stands, read from the server.

use std::sync::Arc;

use futures_util::future::try_join_all;
use zookeeper_client::Error as ZkError;

use crate::{
    data::{Data, Mark},
    error::newer,
    place::Spot,
    queue::{Queue, Standing, Watch},
    session::Session,
};

impl Session {
    /// How this node stands, as of a list of its directory, or of a new one.
    pub(crate) async fn standing(
        &self,
        spot: &Spot,
        listed: Option<Arc<Queue>>,
    ) -> Result<Standing, ZkError> {
        let Some(queue) = self.queue(&spot.dir, listed).await? else {
            return Ok(Standing::Gone);
        };
        if let Some(format) = queue.newer_before(Some(&spot.child)) {
            return Err(newer(format));
        }
        let standing = queue.standing(&spot.child);
        match &standing {
            Standing::Behind(Watch::Writer(child)) if self.reads_only(&spot.dir, child).await? => {
                Ok(Standing::Held { followed: true })
            }
            _ => Ok(standing),
        }
    }

    /// The claims in a directory by their numbers; `None` when it is not there.
    pub(crate) async fn list(&self, dir: &str) -> Result<Option<Arc<Queue>>, ZkError> {
        match self.read(|| self.lists.queue(dir)).await {
            Ok(queue) => Ok(Some(queue)),
            Err(ZkError::NoNode) => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// The claims in a directory in their order, as of a list or of a new one; `None` when it is not
    /// there. Where their numbers do not tell it any more, the zxids of their nodes do.
    pub(crate) async fn queue(
        &self,
        dir: &str,
        listed: Option<Arc<Queue>>,
    ) -> Result<Option<Arc<Queue>>, ZkError> {
        let mut listed = listed;
        loop {
            let Some(queue) = (match listed.take() {
                None => self.list(dir).await?,
                listed => listed,
            }) else {
                return Ok(None);
            };
            if queue.in_order() {
                return Ok(Some(queue));
            }
            if let Some(format) = queue.newer_before(None) {
                return Err(newer(format));
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
            // What has gone stands in nobody's way, but it may only have another name by now.
            let renamed = !missing.is_empty()
                && self.list(dir).await?.is_some_and(|now| {
                    now.nodes().iter().any(|node| missing.contains(&node.claim))
                });
            if !renamed {
                return Ok(Some(Arc::new(Queue::by_age(there))));
            }
        }
    }

    /// What a majority knows now is what the next read shows.
    pub(crate) async fn catch_up(&self) -> Result<(), ZkError> {
        self.read(|| self.heartbeat()).await.map(|_| ())
    }

    /// Whether the first in line, once a writer, has become a reader.
    async fn reads_only(&self, dir: &str, child: &str) -> Result<bool, ZkError> {
        let path = format!("{dir}/{child}");
        match self.read(|| self.client.get_data(&path)).await {
            Ok((data, _)) => Ok(Data::has(&data, Mark::Shared)),
            // It has gone, and it was the first and the last writer before.
            Err(ZkError::NoNode) => Ok(true),
            Err(error) => Err(error),
        }
    }
}

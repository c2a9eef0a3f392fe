//! Where a claim stands, read from the server.

use futures_util::future::try_join_all;
use zookeeper_client::Error as ZkError;

use crate::{
    children::Children,
    data::{Data, Mark},
    place::Spot,
    queue::{Queue, Standing, Watch},
    session::Session,
};

impl Session {
    /// How this node stands, as of a list of its directory, or of a new one.
    pub(crate) async fn standing(
        &self,
        spot: &Spot,
        listed: Option<Children>,
    ) -> Result<Standing, ZkError> {
        let mut listed = listed;
        let standing = loop {
            let Some(children) = self.list(&spot.dir, listed.take()).await? else {
                return Ok(Standing::Gone);
            };
            if let Some(queue) = self.queue(&spot.dir, &children).await? {
                break queue.standing(&spot.child);
            }
        };
        match &standing {
            Standing::Behind(Watch::Writer(child)) if self.reads_only(&spot.dir, child).await? => {
                Ok(Standing::Held { followed: true })
            }
            _ => Ok(standing),
        }
    }

    /// The children of a directory; `None` when it is not there.
    pub(crate) async fn list(
        &self,
        dir: &str,
        listed: Option<Children>,
    ) -> Result<Option<Children>, ZkError> {
        if listed.is_some() {
            return Ok(listed);
        }
        match self.read(|| self.lists.children(dir)).await {
            Ok(children) => Ok(Some(children)),
            Err(ZkError::NoNode) => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// The claims among these children; `None` when they have to be listed again. Where their
    /// numbers are not in order any more, the zxids of their nodes decide.
    pub(crate) async fn queue<'a>(
        &self,
        dir: &str,
        children: &'a [String],
    ) -> Result<Option<Queue<'a>>, ZkError> {
        let (queue, in_order) = Queue::of(children);
        if in_order {
            return Ok(Some(queue));
        }
        let aged = queue.nodes().iter().map(async |node| {
            let path = format!("{dir}/{}", node.child);
            let stat = self.read(|| self.client.check_stat(&path)).await?;
            Ok::<_, ZkError>((stat.map(|stat| stat.czxid), *node))
        });
        let (mut there, mut missing) = (Vec::new(), Vec::new());
        for (czxid, node) in try_join_all(aged).await? {
            match czxid {
                Some(czxid) => there.push((czxid, node)),
                None => missing.push(node.claim),
            }
        }
        // What has gone stands in nobody's way, but it may only have another name by now.
        if !missing.is_empty()
            && let Some(now) = self.list(dir, None).await?
            && Queue::of(&now).0.nodes().iter().any(|node| missing.contains(&node.claim))
        {
            return Ok(None);
        }
        Ok(Some(Queue::by_age(there)))
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

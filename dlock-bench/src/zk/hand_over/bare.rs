//! The floor of a hand-over: a node that one session deletes while another one watches it.

use std::time::Duration;

use dlock_testlab::zookeeper::ZooKeeperServer;
use zookeeper_client::Client;

use crate::{
    Failure, clock,
    runtime::as_task,
    zk::{
        counters::Counters,
        floor::{FloorLock, connect},
    },
};

/// How often in a round.
const TIMES: usize = 100;

/// Two sessions.
pub(super) struct Bare<'a> {
    server: &'a ZooKeeperServer,
    holder: FloorLock,
    deletes: Client,
    watches: Client,
}

impl<'a> Bare<'a> {
    pub(super) async fn connect(server: &'a ZooKeeperServer) -> Result<Self, Failure> {
        let deletes = connect(&server.address()).await?;
        let watches = connect(&server.address()).await?;
        let holder = FloorLock::new(&deletes, "hand-over").await?;
        Ok(Self { server, holder, deletes, watches })
    }

    /// How long it takes from the deletion until the other one knows, and has a list if it wants.
    pub(super) async fn rounds(&mut self, lists: bool) -> Result<Vec<Duration>, Failure> {
        let mut took = Vec::with_capacity(TIMES);
        for _ in 0..TIMES {
            let node = self.holder.take().await?;
            let (_, _, watcher) = self.watches.get_and_watch_data(&node).await?;
            let (watches, dir) = (self.watches.clone(), self.holder.dir().to_owned());
            let waiter = as_task(async move {
                watcher.changed().await;
                if lists {
                    watches.list_children(&dir).await?;
                }
                Ok(clock::now())
            });
            // As before each of dlock's, where it tells that somebody waits.
            Counters::look(self.server).await?;
            let (deletes, start) = (self.deletes.clone(), clock::now());
            let deleter = as_task(async move { Ok(deletes.delete(&node, None).await?) });
            let (_, knows) = tokio::try_join!(deleter, waiter)?;
            took.push(clock::between(start, knows));
        }
        Ok(took)
    }
}

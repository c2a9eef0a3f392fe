//! A cluster, the masters of its names, and clients that wait in a queue.

use std::time::Duration;

use dlock_core::{Error, Guard};
use dlock_testlab::{
    Stop, Verdict,
    redis::{Options, RedisCluster, RedisServer},
};
use tokio::task::JoinHandle;

use crate::support::{SOON, beside, locks, scripts, tag, until, within};

/// A cluster of three masters, each with a replica.
pub(crate) struct Nodes(pub(crate) RedisCluster);

impl Nodes {
    pub(crate) async fn start() -> Result<Self, Stop> {
        // If some slots are lost, the others are still served.
        let options = Options::new().with_config("cluster-require-full-coverage no");
        Ok(Self(RedisCluster::start(&options).await?))
    }

    pub(crate) fn url(&self) -> String {
        self.0.url()
    }

    /// The slot of a name's keys.
    pub(crate) async fn slot(&self, name: &str) -> Result<u16, Stop> {
        self.0.slot_of(&tag(name)).await
    }

    /// The master of a name.
    pub(crate) async fn master(&self, name: &str) -> Result<&RedisServer, Stop> {
        self.0.master_of_slot(self.slot(name).await?).await
    }

    /// Another master than that of the name.
    pub(crate) async fn another(&self, name: &str) -> Result<&RedisServer, Stop> {
        let not = self.master(name).await?.port();
        let mut masters = Vec::new();
        for slot in [0, 6000, 12_000] {
            masters.push(self.0.master_of_slot(slot).await?);
        }
        let other = masters.into_iter().find(|master| master.port() != not);
        other.ok_or_else(|| Stop::failed("there is one master only"))
    }

    /// Returns this number of names, each in another bucket. Their master is that of the given
    /// name, or another one.
    pub(crate) async fn names(
        &self,
        like: &str,
        same_master: bool,
        count: usize,
    ) -> Result<Vec<String>, Stop> {
        let port = self.master(like).await?.port();
        let (mut names, mut tags) = (Vec::new(), vec![tag(like)]);
        for i in 0..2000 {
            let name = format!("name/{i}");
            if tags.contains(&tag(&name))
                || (self.master(&name).await?.port() == port) != same_master
            {
                continue;
            }
            tags.push(tag(&name));
            names.push(name);
            if names.len() == count {
                return Ok(names);
            }
        }
        Err(Stop::failed("there are fewer buckets"))
    }

    /// The channels with listeners, on all nodes.
    pub(crate) async fn channels(&self) -> Result<Vec<String>, Stop> {
        let mut channels = Vec::new();
        for node in self.0.nodes().iter().filter(|node| node.pid().is_some()) {
            let some = node.command(&["PUBSUB", "SHARDCHANNELS", "dlock:*"]).await?;
            channels.extend(some.ok()?.texts()?);
        }
        channels.sort();
        Ok(channels)
    }
}

/// The number of waiters: while one is granted, another one may poll.
pub(crate) const WAITERS: usize = 6;

/// Clients that wait for one lock, each by its own connection.
pub(crate) struct Waiting(Vec<JoinHandle<Result<Guard, Error>>>);

impl Waiting {
    /// The clients have joined the queue one after the other.
    pub(crate) async fn start(nodes: &Nodes, name: &str, lease: Duration) -> Result<Self, Stop> {
        let onlooker = locks(&nodes.url(), lease).await?;
        let mut waiting = Vec::new();
        for _ in 0..WAITERS {
            let lock = locks(&nodes.url(), lease).await?.mutex(name)?;
            waiting.push(beside(async move { lock.lock().await }));
            let count = waiting.len();
            until("it has joined the queue", async || {
                Ok(onlooker.inspect(name).await?.waiters.len() == count)
            })
            .await?;
        }
        Ok(Self(waiting))
    }

    /// The holder hands off to the first waiter, that one to the second, and so on. A waiter also
    /// polls, so it would get the lock without a message, too, but a poll is one more script. So at
    /// least one hand-off must succeed with the script of the release alone.
    pub(crate) async fn are_notified_one_by_one(
        self,
        holder: Guard,
        master: &RedisServer,
    ) -> Verdict {
        let (mut guard, mut notified, mut costs) = (holder, false, Vec::new());
        for next in self.0 {
            let (last, before) = (guard.token(), scripts(master).await?);
            within(SOON, guard.release()).await??;
            guard = within(SOON, next).await???;
            let cost = scripts(master).await? - before;
            notified |= cost == 1;
            costs.push(cost);
            assert!(guard.token() > last, "{} after {last}", guard.token());
        }
        assert!(notified, "nobody was told, all asked: {costs:?} scripts");
        within(SOON, guard.release()).await??;
        Ok(())
    }
}

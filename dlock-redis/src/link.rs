//! The connections to the servers: one for all commands and a path for messages. Both reconnect.
//!
//! | link | connects to |
//! |---|---|
//! | [`node`] | one server, or the master that [`sentinel`]s report; it reconnects on its own |
//! | [`cluster`] | the nodes of a cluster |
//!
//! A link sends a command once. The exception is an acquire that was refused because of its
//! deadline, which is sent again with a new one. The retries are in [`session`](crate::session).

pub(crate) mod cluster;
pub(crate) mod node;
mod open;
pub(crate) mod sentinel;
pub(crate) mod server_info;
mod tls;
mod uptime;
pub(crate) mod window;

use std::{fmt, sync::Arc};

use dlock_core::{Error, SendFlag};
use redis::{Pipeline, RedisResult, Value};

use self::{cluster::ClusterLink, node::NodeLink, server_info::ServerInfo, window::Sending};
use crate::{
    config::{RedisConfig, Topology},
    keys::Bucket,
    reply,
    take::{Take, Taken},
    waiters::Waiters,
};

/// The connection to the servers of one store.
pub(crate) enum Link {
    Node(NodeLink),
    Cluster(Box<ClusterLink>),
}

/// One of a link's servers: its address in a cluster.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Server(Option<Arc<str>>);

impl fmt::Display for Server {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.0.as_deref().unwrap_or("the server"))
    }
}

impl Link {
    /// Connects. With waiters, the link also delivers the messages to them.
    pub(crate) async fn open(
        config: &RedisConfig,
        waiters: Option<Arc<Waiters>>,
    ) -> Result<Self, Error> {
        match config.topology {
            Topology::Cluster => {
                let link = ClusterLink::open(config, waiters).await?;
                Ok(Self::Cluster(Box::new(link)))
            }
            _ => {
                let (link, first) = NodeLink::open(config, waiters).await;
                first.map(|()| Self::Node(link))
            }
        }
    }

    /// Sends one command to the server of its keys.
    pub(crate) async fn send(
        &self,
        command: &Pipeline,
        sending: &Sending<'_>,
    ) -> RedisResult<Value> {
        reply::first(self.send_all(command, sending).await?)
    }

    /// Sends commands back to back to the server that has the keys of the first, which has this
    /// role. The answers contain the errors. During the restart guard, a command that exists to
    /// grant locks is refused, and one that may grant some on the way gets an argument that forbids
    /// it. An acquire gets its deadline.
    pub(crate) async fn send_all(
        &self,
        commands: &Pipeline,
        sending: &Sending<'_>,
    ) -> RedisResult<Vec<Value>> {
        match self {
            Self::Node(link) => link.send_all(commands, 0, sending).await,
            // Boxed: its size would be that of every send.
            Self::Cluster(link) => Box::pin(link.send_all(commands, sending)).await,
        }
    }

    /// Sends the plain commands that take a lock, once. `None` if the server's clock is not known well
    /// enough: then nothing was sent.
    pub(crate) async fn take(
        &self,
        take: &Take<'_>,
        sending: &Sending<'_>,
    ) -> RedisResult<Option<Taken>> {
        match self {
            Self::Node(link) => link.take(take, sending).await,
            Self::Cluster(link) => Box::pin(link.take(take, sending)).await,
        }
    }

    /// Returns the servers that have the keys, as far as they are known.
    pub(crate) fn servers(&self) -> Vec<Server> {
        match self {
            Self::Node(_) => vec![Server(None)],
            Self::Cluster(link) => {
                link.masters_of_buckets().into_iter().map(|at| Server(Some(at))).collect()
            }
        }
    }

    /// Returns a bucket of each server.
    pub(crate) fn buckets(&self) -> Vec<Bucket> {
        match self {
            Self::Node(_) => vec![Bucket::ANY],
            Self::Cluster(link) => link.buckets(),
        }
    }

    /// Checks that a command can be sent to the master to which a slot is moving.
    pub(crate) async fn try_asking(&self, bucket: Bucket) -> RedisResult<()> {
        match self {
            Self::Node(_) => Ok(()),
            Self::Cluster(link) => Box::pin(link.try_asking(bucket)).await,
        }
    }

    /// Returns the configuration with which it was opened.
    pub(crate) fn config(&self) -> &RedisConfig {
        match self {
            Self::Node(link) => link.config(),
            Self::Cluster(link) => link.config(),
        }
    }

    /// Sends a command without a key to one of the servers. Returns the answer and the number of
    /// the connection that brought it, or `None` if that connection was lost meanwhile.
    pub(crate) async fn send_to(
        &self,
        server: &Server,
        command: &Pipeline,
    ) -> RedisResult<(Value, Option<u64>)> {
        match (self, &server.0) {
            (Self::Node(link), _) => link.send_known(command).await,
            (Self::Cluster(link), Some(at)) => Box::pin(link.send_to(at, command)).await,
            (Self::Cluster(_), None) => Err(cluster::route::no_master()),
        }
    }

    /// Returns the number of the current connection. It changes with each loss. `None` for a
    /// cluster, where a command may reach another server without notice.
    pub(crate) fn epoch(&self) -> Option<u64> {
        match self {
            Self::Node(link) => link.epoch(),
            Self::Cluster(_) => None,
        }
    }

    /// Returns whether both lead to the same server, as far as is known. After a failover each
    /// finds the new master on its own, so one may still be connected to the old master.
    pub(crate) fn agrees_with(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Node(one), Self::Node(other)) => {
                let address = one.address();
                address.is_some() && address == other.address()
            }
            _ => true,
        }
    }

    /// Returns the channel on which messages about locks of this bucket arrive. `None` if this user
    /// may not subscribe. The flag of the acquire begins if it has to subscribe first.
    pub(crate) async fn channel(&self, bucket: Bucket, flag: &SendFlag) -> Option<Arc<str>> {
        match self {
            Self::Node(link) => link.channel(),
            Self::Cluster(link) => link.channel(bucket, flag).await.map(Arc::from),
        }
    }

    /// Returns whether messages can be received.
    pub(crate) fn has_push(&self) -> bool {
        match self {
            Self::Node(link) => link.channel().is_some(),
            Self::Cluster(link) => link.has_push(),
        }
    }

    /// Returns whether grants survive a restart of the one server, by the latest knowledge.
    pub(crate) fn keeps_grants(&self) -> bool {
        match self {
            Self::Node(link) => link.keeps_grants(),
            // The nodes of a cluster may restart unnoticed.
            Self::Cluster(_) => false,
        }
    }

    /// Returns the largest number of replicas that a master has had, as far as this link knows.
    pub(crate) fn most_replicas(&self) -> u32 {
        match self {
            Self::Node(link) => link.most_replicas(),
            Self::Cluster(link) => link.most_replicas(),
        }
    }

    /// Returns the information about the server.
    pub(crate) fn server_info(&self) -> Arc<ServerInfo> {
        match self {
            Self::Node(link) => link.server_info(),
            Self::Cluster(link) => link.server_info(),
        }
    }
}

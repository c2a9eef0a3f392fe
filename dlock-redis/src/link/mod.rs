//! The way to the servers: one connection for all commands and one push path, kept up.
//!
//! | link | leads to |
//! |---|---|
//! | [`node`] | one server, or the master that [`sentinel`]s name; connects anew by itself |
//! | [`cluster`] | the nodes of a cluster, by the driver's own connection |
//!
//! A link sends one command once. What to do about an error is said in [`store`](crate::store).

pub(crate) mod cluster;
pub(crate) mod facts;
pub(crate) mod node;
mod open;
mod push;
pub(crate) mod sentinel;
mod sight;
mod tls;
pub(crate) mod window;

use std::{fmt, sync::Arc};

use dlock_core::Error;
use redis::{Pipeline, RedisResult, Value};

use self::{cluster::ClusterLink, facts::Facts, node::NodeLink, window::Sending};
use crate::{
    config::{RedisConfig, Topology},
    inbox::Inbox,
    keys::Bucket,
    reply,
};

/// A way to the servers of one store.
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
    /// Connects. With an inbox, it also brings the messages for it.
    pub(crate) async fn open(
        config: &RedisConfig,
        inbox: Option<Arc<Inbox>>,
    ) -> Result<Self, Error> {
        match config.topology {
            Topology::Cluster => {
                let link = ClusterLink::open(config, inbox).await?;
                Ok(Self::Cluster(Box::new(link)))
            }
            _ => {
                let (link, first) = NodeLink::open(config, inbox).await;
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

    /// Sends commands back to back to the server that has the keys of the first, which has this role;
    /// errors stand among the answers. If it may grant a lock, it is refused while the server may have
    /// lost who holds it, and if it takes one, it gets its deadline.
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

    /// The servers that have the keys, as far as is known just now.
    pub(crate) fn servers(&self) -> Vec<Server> {
        match self {
            Self::Node(_) => vec![Server(None)],
            Self::Cluster(link) => link.places().into_iter().map(|at| Server(Some(at))).collect(),
        }
    }

    /// A bucket of each server.
    pub(crate) fn buckets(&self) -> Vec<Bucket> {
        match self {
            Self::Node(_) => vec![Bucket::ANY],
            Self::Cluster(link) => link.buckets(),
        }
    }

    /// Tries what is sent to a master that a slot is on its way to.
    pub(crate) async fn try_asking(&self, bucket: Bucket) -> RedisResult<()> {
        match self {
            Self::Node(_) => Ok(()),
            Self::Cluster(link) => Box::pin(link.try_asking(bucket)).await,
        }
    }

    /// How it was opened.
    pub(crate) fn config(&self) -> &RedisConfig {
        match self {
            Self::Node(link) => link.config(),
            Self::Cluster(link) => link.config(),
        }
    }

    /// Sends a command that has no key to one of the servers. Beside the answer, which of the
    /// connections to that server brought it; `None` when it was lost meanwhile.
    pub(crate) async fn send_to(
        &self,
        server: &Server,
        command: &Pipeline,
    ) -> RedisResult<(Value, Option<u64>)> {
        match (self, &server.0) {
            (Self::Node(link), _) => link.send_known(command).await,
            (Self::Cluster(link), Some(at)) => Box::pin(link.send_to(at, command)).await,
            (Self::Cluster(_), None) => Err(cluster::route::lost()),
        }
    }

    /// Which connection this is: another number after each loss. `None` where commands may reach
    /// another server without being told.
    pub(crate) fn epoch(&self) -> Option<u64> {
        match self {
            Self::Node(link) => link.epoch(),
            Self::Cluster(_) => None,
        }
    }

    /// Whether both lead to the same server, as far as is known: after a failover, each finds the
    /// new master by itself, and one may still be with the old one, if that is back.
    pub(crate) fn agrees_with(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Node(one), Self::Node(other)) => {
                let address = one.address();
                address.is_some() && address == other.address()
            }
            _ => true,
        }
    }

    /// The channel on which messages about locks of this bucket arrive; `None` while there is no
    /// way for them.
    pub(crate) async fn channel(&self, bucket: Bucket) -> Option<Arc<str>> {
        match self {
            Self::Node(link) => link.channel(),
            Self::Cluster(link) => link.channel(bucket).await.map(Arc::from),
        }
    }

    /// Whether messages can be had.
    pub(crate) fn has_push(&self) -> bool {
        match self {
            Self::Node(link) => link.channel().is_some(),
            Self::Cluster(link) => link.has_push(),
        }
    }

    /// Whether what is granted outlasts a restart of the one server, as far as it was known last.
    pub(crate) fn keeps_grants(&self) -> bool {
        match self {
            Self::Node(link) => link.keeps_grants(),
            // Its nodes restart unseen.
            Self::Cluster(_) => false,
        }
    }

    /// What is known of the server.
    pub(crate) fn facts(&self) -> Arc<Facts> {
        match self {
            Self::Node(link) => link.facts(),
            Self::Cluster(link) => link.facts(),
        }
    }
}

//! One etcd server or three, with their counters.

use dlock_testlab::{
    Stop,
    etcd::{Ensemble, EtcdServer, Options as EtcdOptions},
};

use tokio::runtime::{Builder, Runtime};

use crate::Failure;

/// The number of members of an etcd cluster.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Members {
    One,
    Three,
}

/// The members of a cluster. Clients connect to one of them.
pub(super) enum EtcdServers {
    One(Box<EtcdServer>),
    Three(Three),
}

/// Three members.
pub(super) struct Three {
    all: Ensemble,
    /// The index of their leader at the start. Clients connect to it, so that their requests need no
    /// further hop.
    leader: usize,
    /// Runs the connections between them. Dropped last.
    _links: Runtime,
}

impl EtcdServers {
    /// Starts a cluster. If `durable` is true, a write waits for the disk.
    pub(super) async fn start(members: Members, durable: bool) -> Result<Self, Failure> {
        let etcd = EtcdOptions::new().with_fsync(durable);
        match members {
            Members::One => {
                let server = EtcdServer::start(&etcd).await.map_err(no_server)?;
                Ok(Self::One(Box::new(server)))
            }
            Members::Three => {
                let links = Builder::new_multi_thread().worker_threads(1).enable_all().build()?;
                let starting = links.spawn(async move {
                    let all = Ensemble::start(&etcd).await?;
                    let leader = all.leader().await?;
                    Ok((all, leader))
                });
                let (all, leader) = starting.await?.map_err(no_server)?;
                Ok(Self::Three(Three { all, leader, _links: links }))
            }
        }
    }

    /// Returns the member that clients connect to.
    pub(super) fn asked(&self) -> &EtcdServer {
        match self {
            Self::One(server) => server,
            Self::Three(three) => &three.all.nodes()[three.leader],
        }
    }

    /// Returns the version and the number of members.
    pub(super) fn version(&self) -> String {
        let members = match self {
            Self::One(_) => "one member",
            Self::Three(_) => "three members",
        };
        format!("{}, {members}", self.asked().version())
    }

    /// Returns the number of messages that clients have sent, also on streams.
    pub(super) async fn requests(&self) -> Result<f64, Failure> {
        self.asked().metric("grpc_server_msg_received_total").await.map_err(no_server)
    }

    /// Returns the number of keys without the markers of sessions.
    pub(super) async fn entries(&self) -> Result<f64, Failure> {
        let keys = self.asked().keys_under("").await.map_err(no_server)?;
        let keys =
            keys.iter().filter(|key| !key.contains("/%session/") && !key.starts_with("/ring-"));
        Ok(f64::from(u32::try_from(keys.count())?))
    }

    /// Returns the bytes of the database that are in use, old revisions included.
    pub(super) async fn bytes(&self) -> Result<f64, Failure> {
        let metric = "etcd_mvcc_db_total_size_in_use_in_bytes";
        self.asked().metric(metric).await.map_err(no_server)
    }
}

/// Returns the failure of a server that does not answer.
fn no_server(stop: Stop) -> Failure {
    format!("no server: {stop:?}").into()
}

//! The baseline of ZooKeeper: the cost of a minimal lock with the bare client.
//!
//! It creates an ephemeral sequential node in an existing directory and lists the directory, in two
//! pipelined requests; then it deletes the node. It does not wait for other nodes, and does not
//! search for its node if an answer is missing.

use std::time::Duration;

use futures_util::future::try_join_all;
use zookeeper_client::{Acls, Client, CreateMode, Error as ZkError};

use super::once::{self, Once};
use crate::{
    Failure,
    subject::{Lock, Subject, Want, Witness},
};

/// Long, so that a busy machine does not end the session.
const SESSION: Duration = Duration::from_secs(30);
/// The parent of the locks' directories.
const ROOT: &str = "/baseline";
/// As long as the names and data of a real lock.
const CHILD: &str = "_c_01234567-89ab-cdef-0123-456789abcdef-lock-";
const DATA: &[u8] = b"lease=30000ms";

/// Opens a session with the bare driver.
pub(crate) async fn connect(address: &str) -> Result<Client, Failure> {
    Ok(Client::connector()
        .with_session_timeout(SESSION)
        .with_fail_eagerly()
        .connect(address)
        .await?)
}

/// A lock that consists only of the baseline.
#[derive(Clone)]
struct ZkBaselineLock {
    client: Client,
    dir: String,
}

impl ZkBaselineLock {
    /// Returns a lock in this session, and creates its directory.
    pub(crate) async fn new(client: &Client, name: &str) -> Result<Self, Failure> {
        let dir = format!("{ROOT}/{name}");
        for dir in [ROOT, &dir] {
            make(client, dir, CreateMode::Persistent).await?;
        }
        Ok(Self { client: client.clone(), dir })
    }

    /// Acquires and releases the lock.
    pub(crate) async fn cycle(&self) -> Result<(), Failure> {
        let node = self.take().await?;
        Ok(self.client.delete(&node, None).await?)
    }

    /// Acquires and releases a lock whose name was never used before. It sends the requests first,
    /// and creates the directory when the server reports that it does not exist.
    async fn cycle_of_new(client: &Client, name: &str) -> Result<(), Failure> {
        let lock = Self { client: client.clone(), dir: format!("{ROOT}/{name}") };
        let node = match lock.create().await? {
            Ok(node) => node,
            Err(ZkError::NoNode) => {
                let made = make(client, &lock.dir, CreateMode::Container);
                let (made, taken) = tokio::join!(made, lock.take());
                made?;
                taken?
            }
            Err(error) => return Err(error.into()),
        };
        Ok(client.delete(&node, None).await?)
    }

    /// Acquires the lock, and returns the path of its node.
    async fn take(&self) -> Result<String, Failure> {
        match self.create().await? {
            Ok(node) => Ok(node),
            Err(error) => Err(error.into()),
        }
    }

    async fn create(&self) -> Result<Result<String, ZkError>, Failure> {
        let prefix = format!("{}/{CHILD}", self.dir);
        let node = CreateMode::EphemeralSequential.with_acls(Acls::anyone_all());
        // Called in the order in which the requests must be sent.
        let made = self.client.create(&prefix, DATA, &node);
        let listed = self.client.list_children(&self.dir);
        let (made, listed) = tokio::join!(made, listed);
        Ok(match (made, listed) {
            (Ok((_, number)), Ok(children)) if children.len() == 1 => {
                Ok(format!("{prefix}{number}"))
            }
            (Ok(_), Ok(_)) => return Err("the baseline's lock is taken".into()),
            (Err(error), _) | (_, Err(error)) => Err(error),
        })
    }
}

/// Creates a directory, if it does not exist.
async fn make(client: &Client, dir: &str, mode: CreateMode) -> Result<(), Failure> {
    match client.create(dir, b"", &mode.with_acls(Acls::anyone_all())).await {
        Ok(_) | Err(ZkError::NodeExists) => Ok(()),
        Err(error) => Err(error.into()),
    }
}

/// A session that carries all concurrent requests.
#[derive(Clone)]
pub(super) struct ZkBaseline(Client);

impl ZkBaseline {
    pub(super) async fn connect(url: &str) -> Result<Self, Failure> {
        let client = connect(super::address(url)).await?;
        // This creates the parent directory, which must exist for a new name.
        ZkBaselineLock::new(&client, "first").await?;
        Ok(Self(client))
    }
}

/// Locks that are acquired together.
pub(super) struct ZkBaselineLocks(Vec<ZkBaselineLock>);

impl Subject for ZkBaseline {
    type Lock = ZkBaselineLocks;

    async fn lock(&self, want: Want<'_>) -> Result<ZkBaselineLocks, Failure> {
        let names: Vec<&str> = match &want {
            Want::One(name) => vec![name],
            Want::All(names) => names.iter().map(String::as_str).collect(),
            Want::Fair(_) | Want::Read(_) | Want::Write(_) => return Err(super::NO_WAIT.into()),
        };
        // Each part of a name with slashes would need a directory.
        let named = names.iter().map(|name| name.replace('/', "."));
        let mut locks = Vec::new();
        for name in named {
            locks.push(ZkBaselineLock::new(&self.0, &name).await?);
        }
        Ok(ZkBaselineLocks(locks))
    }

    async fn more(&self, words: &[&str]) -> Result<String, Failure> {
        once::more(self, words).await
    }
}

impl Once for ZkBaseline {
    async fn once(&self, name: &str) -> Result<(), Failure> {
        ZkBaselineLock::cycle_of_new(&self.0, &name.replace('/', ".")).await
    }
}

impl Lock for ZkBaselineLocks {
    async fn cycle<W: Witness>(&mut self, _witness: &mut W) -> Result<(), Failure> {
        match &self.0[..] {
            [one] => one.cycle().await,
            all => try_join_all(all.iter().map(ZkBaselineLock::cycle)).await.map(|_| ()),
        }
    }
}

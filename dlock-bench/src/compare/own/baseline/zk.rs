//! The baseline: what the bare client needs for the least that can be called a lock.
//!
//! An ephemeral sequential node in a directory that is there, and a list of the directory, asked
//! for back to back; then the node is deleted. Nobody waits behind another node, nothing is looked
//! for when an answer is missing.

use std::time::Duration;

use zookeeper_client::{Acls, Client, CreateMode, Error as ZkError};

use crate::Failure;

/// Long, as a busy machine must not end it.
const SESSION: Duration = Duration::from_secs(30);
/// The directory of the directories.
const ROOT: &str = "/baseline";
/// As long as the names and data that a real lock needs.
const CHILD: &str = "_c_01234567-89ab-cdef-0123-456789abcdef-lock-";
const DATA: &[u8] = b"lease=30000ms";

/// A session by the driver alone.
pub(crate) async fn connect(address: &str) -> Result<Client, Failure> {
    Ok(Client::connector()
        .with_session_timeout(SESSION)
        .with_fail_eagerly()
        .connect(address)
        .await?)
}

/// A lock made of nothing but the baseline.
#[derive(Clone)]
pub(crate) struct ZkBaselineLock {
    client: Client,
    dir: String,
}

impl ZkBaselineLock {
    /// One in this session, whose directory is there from now on.
    pub(crate) async fn new(client: &Client, name: &str) -> Result<Self, Failure> {
        let dir = format!("{ROOT}/{name}");
        for dir in [ROOT, &dir] {
            make(client, dir, CreateMode::Persistent).await?;
        }
        Ok(Self { client: client.clone(), dir })
    }

    /// Takes it and gives it back.
    pub(crate) async fn cycle(&self) -> Result<(), Failure> {
        let node = self.take().await?;
        Ok(self.client.delete(&node, None).await?)
    }

    /// Takes and gives back a lock whose name nobody has used before. It is asked for first, and its
    /// directory is made when the server says that there is none.
    pub(crate) async fn cycle_of_new(client: &Client, name: &str) -> Result<(), Failure> {
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

    /// Takes it, and says what node that is.
    async fn take(&self) -> Result<String, Failure> {
        match self.create().await? {
            Ok(node) => Ok(node),
            Err(error) => Err(error.into()),
        }
    }

    async fn create(&self) -> Result<Result<String, ZkError>, Failure> {
        let prefix = format!("{}/{CHILD}", self.dir);
        let node = CreateMode::EphemeralSequential.with_acls(Acls::anyone_all());
        // Called in the order in which they are to be sent.
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

/// Makes a directory, if it is not there.
async fn make(client: &Client, dir: &str, mode: CreateMode) -> Result<(), Failure> {
    match client.create(dir, b"", &mode.with_acls(Acls::anyone_all())).await {
        Ok(_) | Err(ZkError::NodeExists) => Ok(()),
        Err(error) => Err(error.into()),
    }
}

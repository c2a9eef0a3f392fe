//! A server that several tests share, each with its own root.
//!
//! It is for tests of what clients do with locks. A test that stops a server, counts its requests,
//! or reads its other nodes starts its own server.

use std::sync::atomic::{AtomicUsize, Ordering};

use dlock_core::{DynBackend, Error};
use dlock_testlab::{Stop, zookeeper::ZooKeeperServer};
use tokio::sync::OnceCell;

use crate::support::{connect, server, url};

/// The server is never dropped: its watchdog ends it with this process.
static SERVER: OnceCell<ZooKeeperServer> = OnceCell::const_new();

static ROOTS: AtomicUsize = AtomicUsize::new(0);

/// A root on the server.
pub(crate) struct ServerRoot {
    pub(crate) server: &'static ZooKeeperServer,
    root: String,
}

impl ServerRoot {
    /// Returns the URL of this root.
    pub(crate) fn url(&self) -> String {
        format!("{}&dlock.root={}", url(self.server), self.root)
    }

    /// The path of a directory below the root.
    pub(crate) fn path(&self, directory: &str) -> String {
        format!("{}/{directory}", self.root)
    }

    /// Another client.
    pub(crate) async fn connect(&self) -> Result<DynBackend, Error> {
        connect(&self.url()).await
    }
}

/// A new root, and a client of it.
pub(crate) async fn start() -> Result<(ServerRoot, DynBackend), Stop> {
    let server = SERVER.get_or_try_init(server).await?;
    let root = format!("/test-{}", ROOTS.fetch_add(1, Ordering::Relaxed));
    let place = ServerRoot { server, root };
    let client = place.connect().await?;
    Ok((place, client))
}

//! Access to the nodes of a server without the client under test.

use super::{
    ZooKeeperServer,
    wire::{Refused, Wire},
};
use crate::{Stop, Verdict, wait::until};

impl ZooKeeperServer {
    /// Creates a persistent node without access restrictions.
    ///
    /// # Errors
    /// If the node exists or its parent does not, and if no answer arrives.
    pub async fn create(&self, path: &str, data: &str) -> Verdict {
        let mut wire = self.wire().await?;
        wire.create(path, data.as_bytes()).await?;
        wire.close().await
    }

    /// Returns the data of a node; `None` if there is no such node.
    ///
    /// # Errors
    /// If no answer arrives.
    pub async fn data(&self, path: &str) -> Result<Option<Vec<u8>>, Stop> {
        let mut wire = self.wire().await?;
        let data = wire.data(path).await?;
        wire.close().await?;
        Ok(data)
    }

    /// Returns the paths of all nodes below this one, sorted and without ZooKeeper's own; none if
    /// there is no such node.
    ///
    /// # Errors
    /// If no answer arrives.
    pub async fn nodes_under(&self, path: &str) -> Result<Vec<String>, Stop> {
        let mut wire = self.wire().await?;
        let mut found = below(&mut wire, path).await?;
        wire.close().await?;
        found.sort();
        Ok(found)
    }

    /// Deletes a node, if it exists, and all nodes below it, whichever client created them.
    ///
    /// # Errors
    /// If another client adds nodes faster, and if no answer arrives.
    pub async fn delete_recursively(&self, path: &str) -> Verdict {
        until("the nodes are deleted", || async {
            let mut wire = self.wire().await?;
            let mut paths = below(&mut wire, path).await?;
            // Parents were found before their children.
            paths.insert(0, path.to_owned());
            for path in paths.iter().rev().filter(|path| *path != "/") {
                match wire.delete(path).await? {
                    Ok(()) | Err(Refused::NoNode) => {}
                    Err(why) => return Err(Stop::failed(format!("{path}: {why:?}"))),
                }
            }
            wire.close().await
        })
        .await
    }

    async fn wire(&self) -> Result<Wire, Stop> {
        Wire::connect(&self.address()).await
    }
}

/// Returns all nodes below this one, parents before their children.
async fn below(wire: &mut Wire, path: &str) -> Result<Vec<String>, Stop> {
    let mut found = vec![path.to_owned()];
    let mut looked = 0;
    while let Some(parent) = found.get(looked).cloned() {
        let names = wire.children(&parent).await?.unwrap_or_default();
        let children = names.iter().map(|name| format!("{}/{name}", parent.trim_end_matches('/')));
        found.extend(children.filter(|child| child != "/zookeeper"));
        looked += 1;
    }
    found.remove(0);
    Ok(found)
}

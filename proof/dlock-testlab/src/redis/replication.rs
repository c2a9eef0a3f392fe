//! The state of replication between a master and a replica.

use super::RedisServer;
use crate::{Stop, Verdict, wait::until};

impl RedisServer {
    /// Returns the position in the stream of changes, in bytes: what the server wrote as a master,
    /// or has received as a replica. The difference of the two is the replica's lag.
    ///
    /// # Errors
    /// If no answer arrives.
    pub async fn replication_offset(&self) -> Result<u64, Stop> {
        let info = self.info("replication").await?;
        let field = |name: &str| info.lines().find_map(|line| line.strip_prefix(name));
        let offset = field("slave_repl_offset:").or_else(|| field("master_repl_offset:"));
        Ok(offset.ok_or_else(|| Stop::failed(format!("no offset in {info}")))?.parse()?)
    }

    /// Waits until the server is a replica that has all changes of this master.
    ///
    /// # Errors
    /// If this does not happen in time.
    pub async fn until_in_sync_with(&self, master: &Self) -> Verdict {
        until("the replica is in sync", || async {
            let info = self.info("replication").await?;
            let up = info.lines().any(|line| line == "master_link_status:up");
            let (has, all) = (self.replication_offset().await?, master.replication_offset().await?);
            match up && has >= all {
                true => Ok(()),
                false => Err(Stop::failed(format!("{has} of {all}, linked: {up}"))),
            }
        })
        .await
    }

    /// Makes a replica a master. It keeps its data.
    ///
    /// # Errors
    /// If no answer arrives.
    pub async fn promote(&self) -> Verdict {
        self.command(&["REPLICAOF", "NO", "ONE"]).await?.ok().map(|_| ())
    }
}

//! What a replica has of its master.

use super::RedisServer;
use crate::{Stop, Verdict, wait::until};

impl RedisServer {
    /// How much of the stream of changes it has, in bytes: what it wrote as a master, or what it has
    /// got as a replica, which lags behind by the difference.
    ///
    /// # Errors
    /// When no answer comes.
    pub async fn replication_offset(&self) -> Result<u64, Stop> {
        let info = self.info("replication").await?;
        let field = |name: &str| info.lines().find_map(|line| line.strip_prefix(name));
        let offset = field("slave_repl_offset:").or_else(|| field("master_repl_offset:"));
        Ok(offset.ok_or_else(|| Stop::failed(format!("no offset in {info}")))?.parse()?)
    }

    /// Waits until it is a replica that has all that this master has.
    ///
    /// # Errors
    /// When it does not come about.
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

    /// Makes a replica a master, with what it has.
    ///
    /// # Errors
    /// When no answer comes.
    pub async fn promote(&self) -> Verdict {
        self.command(&["REPLICAOF", "NO", "ONE"]).await?.ok().map(|_| ())
    }
}

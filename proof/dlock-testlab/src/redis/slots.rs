//! Moves a slot of a cluster, at once or in steps between which a test can make its checks.

use super::{RedisCluster, RedisServer};
use crate::{Verdict, wait::until};

impl RedisCluster {
    /// Moves a slot with its keys from one master to another, and waits until all nodes know.
    ///
    /// # Errors
    /// If this does not happen in time.
    pub async fn move_slot(&self, slot: u16, from: &RedisServer, to: &RedisServer) -> Verdict {
        self.begin_move(slot, from, to).await?;
        self.end_move(slot, from, to).await
    }

    /// Does the first half of [`Self::move_slot`]: from now on `from` answers `ASK` for keys that
    /// it does not have.
    ///
    /// # Errors
    /// If a node refuses.
    pub async fn begin_move(&self, slot: u16, from: &RedisServer, to: &RedisServer) -> Verdict {
        let slot = slot.to_string();
        for (node, state, peer) in [(to, "IMPORTING", from), (from, "MIGRATING", to)] {
            let id = peer.command(&["CLUSTER", "MYID"]).await?.ok()?.text()?;
            node.command(&["CLUSTER", "SETSLOT", &slot, state, &id]).await?.ok()?;
        }
        Ok(())
    }

    /// Moves the keys of a slot between the two halves of a move. Afterwards `from` answers `ASK`
    /// for these keys too.
    ///
    /// # Errors
    /// If a node refuses.
    pub async fn move_keys(&self, slot: u16, from: &RedisServer, to: &RedisServer) -> Verdict {
        let (slot, port) = (slot.to_string(), to.port().to_string());
        let mut connection = from.connect().await?;
        loop {
            let some = ["CLUSTER", "GETKEYSINSLOT", &slot, "100"];
            let keys = connection.command(&some).await?.ok()?.texts()?;
            if keys.is_empty() {
                return Ok(());
            }
            let mut migrate = vec!["MIGRATE", "127.0.0.1", &port, "", "0", "5000"];
            if let Some(password) = &from.options().password {
                migrate.extend(["AUTH", password]);
            }
            migrate.push("KEYS");
            migrate.extend(keys.iter().map(String::as_str));
            connection.command(&migrate).await?.ok()?;
        }
    }

    /// Does the second half of [`Self::move_slot`]: moves the remaining keys, assigns the slot to
    /// `to`, and waits until all nodes know.
    ///
    /// # Errors
    /// If this does not happen in time.
    pub async fn end_move(&self, slot: u16, from: &RedisServer, to: &RedisServer) -> Verdict {
        self.move_keys(slot, from, to).await?;
        let id = to.command(&["CLUSTER", "MYID"]).await?.ok()?.text()?;
        // The new master gets the slot first. If this stopped halfway, a slot without a master
        // would be lost.
        for node in [to, from] {
            let give = ["CLUSTER", "SETSLOT", &slot.to_string(), "NODE", &id];
            node.command(&give).await?.ok()?;
        }
        until("all nodes know the slot's new master", || async {
            for (_, view) in self.views().await {
                view.agrees(slot, &to.address())?;
            }
            Ok(())
        })
        .await
    }
}

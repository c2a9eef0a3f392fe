//! The message as a ZooKeeper node that one session writes and another one watches.

use std::time::Duration;

use zookeeper_client::{Acls, Client, CreateMode, Error as ZkError, OneshotWatcher};

use super::{Trip, pause};
use crate::{Failure, clock, own::baseline::zk as baseline};

/// The time to wait for messages that are still pending after a run.
const STRAGGLERS: Duration = Duration::from_millis(50);

/// A place in the ring.
pub(super) struct ZkRing {
    client: Client,
    node: String,
}

impl ZkRing {
    /// Creates the node of this place.
    pub(super) async fn join(address: &str, place: &str) -> Result<Self, Failure> {
        let client = baseline::connect(address).await?;
        let node = node(place);
        let mode = CreateMode::Persistent.with_acls(Acls::anyone_all());
        match client.create(&node, b"0", &mode).await {
            Ok(_) | Err(ZkError::NodeExists) => Ok(Self { client, node }),
            Err(error) => Err(error.into()),
        }
    }

    /// Forwards the message until the time is over. Returns how long it took to this place each time.
    pub(super) async fn go(
        &mut self,
        Trip { first, next, hold, from, until }: Trip<'_>,
    ) -> Result<Vec<Duration>, Failure> {
        let end = until + u64::try_from(STRAGGLERS.as_nanos())?;
        let (_, mut watcher) = self.look().await?;
        clock::sleep_until(from).await;
        if first {
            self.send(next).await?;
        }
        let mut took = Vec::new();
        loop {
            tokio::select! {
                _ = watcher.changed() => {}
                () = clock::sleep_until(end) => return Ok(took),
            }
            let arrived = clock::now();
            let sent;
            // The content is read together with the next watch, and this time does not count.
            (sent, watcher) = self.look().await?;
            took.push(clock::between(sent, arrived));
            if arrived < until {
                pause(hold).await;
                self.send(next).await?;
            }
        }
    }

    /// Returns the time when the last message to this place was sent, and a watch for the next one.
    async fn look(&self) -> Result<(u64, OneshotWatcher), Failure> {
        let (data, _, watcher) = self.client.get_and_watch_data(&self.node).await?;
        Ok((str::from_utf8(&data)?.parse()?, watcher))
    }

    async fn send(&self, next: &str) -> Result<(), Failure> {
        let now = clock::now().to_string();
        self.client.set_data(&node(next), now.as_bytes(), None).await?;
        Ok(())
    }
}

fn node(place: &str) -> String {
    format!("/ring-{place}")
}

//! The message as a key that one client puts and another one watches.

use std::time::Duration;

use tonic::Streaming;

use super::{Trip, pause};
use crate::{
    Failure, clock,
    own::baseline::etcd::{self as baseline, EtcdClient, WatchResponse},
};

/// The time to wait for messages that are still pending after a run.
const STRAGGLERS: Duration = Duration::from_millis(50);

/// A place in the ring.
pub(super) struct EtcdRing {
    client: EtcdClient,
    events: Streaming<WatchResponse>,
}

impl EtcdRing {
    /// Watches the key of this place.
    pub(super) async fn join(address: &str, place: &str) -> Result<Self, Failure> {
        let client = baseline::connect(address).await?;
        let events = client.watch(key(place).as_bytes()).await?;
        Ok(Self { client, events })
    }

    /// Forwards the message until the time is over. Returns how long it took to this place each time.
    pub(super) async fn go(
        &mut self,
        Trip { first, next, hold, from, until }: Trip<'_>,
    ) -> Result<Vec<Duration>, Failure> {
        let end = until + u64::try_from(STRAGGLERS.as_nanos())?;
        clock::sleep_until(from).await;
        if first {
            self.send(next).await?;
        }
        let mut took = Vec::new();
        loop {
            let message = tokio::select! {
                message = self.events.message() => message?.ok_or("the watch has ended")?,
                () = clock::sleep_until(end) => return Ok(took),
            };
            let arrived = clock::now();
            for sent in message.values() {
                took.push(clock::between(str::from_utf8(sent)?.parse()?, arrived));
                if arrived < until {
                    pause(hold).await;
                    self.send(next).await?;
                }
            }
        }
    }

    async fn send(&self, next: &str) -> Result<(), Failure> {
        self.client.put(key(next).as_bytes(), clock::now().to_string().as_bytes(), 0).await
    }
}

fn key(place: &str) -> String {
    format!("/ring-{place}")
}

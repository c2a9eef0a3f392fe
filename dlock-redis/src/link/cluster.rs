//! The nodes of a cluster.
//!
//! The driver finds out where the slots are, follows them, and connects anew. Messages come on
//! sharded channels, one for each bucket that somebody waits on, since only there a script learns
//! whether they reached anybody.

use std::{
    collections::HashSet,
    fmt,
    sync::{Arc, Weak},
    time::Duration,
};

use dlock_core::{Clock, Error};
use redis::{
    Cmd, Pipeline, ProtocolVersion, PushInfo, RedisResult, Value, aio::ConnectionLike,
    cluster::ClusterClientBuilder, cluster_async::ClusterConnection,
};

use super::{facts::Facts, open, receive, tls};
use crate::{config::RedisConfig, inbox::Inbox, keys::Bucket};

/// How often the driver sends a command again when a slot has moved or a node does not answer.
const RETRIES: u32 = 8;

/// The driver's connections to all masters.
pub(crate) struct ClusterLink {
    store: String,
    redis: ClusterConnection,
    facts: Facts,
    inbox: Option<Arc<Inbox>>,
    /// The buckets whose channels are subscribed to.
    channels: tokio::sync::Mutex<HashSet<Bucket>>,
}

impl ClusterLink {
    /// Connects to all nodes.
    pub(crate) async fn open(
        config: &RedisConfig,
        inbox: Option<Arc<Inbox>>,
    ) -> Result<Self, Error> {
        open::check_files(config)?;
        let store = config.store();
        let refused = |error| open::refused(error, &store);
        // One node by itself, for an error that says what is wrong.
        let facts = first_that_answers(config, &store).await?;
        facts.check(true, &store).map_err(|error| error.during("connect").with_store(&store))?;

        let nodes = config
            .addresses
            .iter()
            .map(|address| open::info(config, address, &config.login))
            .collect::<RedisResult<Vec<_>>>()
            .map_err(refused)?;
        let mut builder = ClusterClientBuilder::new(nodes)
            .use_protocol(ProtocolVersion::RESP3)
            .tcp_settings(open::tcp())
            .connection_timeout(config.response_timeout.min(Duration::from_secs(2)))
            .response_timeout(config.response_timeout)
            .overall_response_timeout(Some(config.response_timeout * 3))
            .retries(RETRIES)
            .min_retry_wait(10)
            .max_retry_wait(400);
        builder = tls::cluster(builder, config.tls.as_ref()).map_err(refused)?;
        if let Some(inbox) = &inbox {
            let weak: Weak<Inbox> = Arc::downgrade(inbox);
            builder = builder.push_sender(
                move |info: PushInfo| -> Result<(), std::convert::Infallible> {
                    if let Some(inbox) = weak.upgrade()
                        && receive(info, Some(&inbox), Clock::Boot.now())
                    {
                        inbox.reconnected();
                    }
                    Ok(())
                },
            );
        }
        let redis = builder.build().map_err(refused)?.get_async_connection().await;
        let redis = redis.map_err(refused)?;
        Ok(Self { store, redis, facts, inbox, channels: tokio::sync::Mutex::default() })
    }

    pub(super) async fn send(&self, command: &Cmd) -> RedisResult<Value> {
        self.redis.clone().req_packed_command(command).await?.extract_error()
    }

    pub(super) async fn send_all(&self, commands: &Pipeline) -> RedisResult<Vec<Value>> {
        self.redis.clone().req_packed_commands(commands, 0, commands.len()).await
    }

    /// Subscribes to the channel of this bucket, if that was not done yet.
    pub(super) async fn channel(&self, bucket: Bucket) -> Option<String> {
        let inbox = self.inbox.as_ref()?;
        if !self.facts.has_sharded_push() {
            return None;
        }
        let channel = inbox.channel_of(bucket);
        let mut channels = self.channels.lock().await;
        if channels.contains(&bucket) {
            return Some(channel);
        }
        match self.redis.clone().ssubscribe(&channel).await {
            Ok(()) => {
                channels.insert(bucket);
                Some(channel)
            }
            Err(error) => {
                tracing::debug!(%error, channel, "no messages yet, so waiting locks ask now and then");
                None
            }
        }
    }

    pub(super) fn facts(&self) -> Facts {
        self.facts.clone()
    }
}

/// What the first node says that answers.
async fn first_that_answers(config: &RedisConfig, store: &str) -> Result<Facts, Error> {
    let mut failed = None;
    for address in &config.addresses {
        let facts = async {
            let mut node = open::connection(config, address, &config.login, |_| {}).await?;
            open::facts(&mut node).await
        };
        match facts.await {
            Ok(facts) => return Ok(facts),
            Err(error) => failed = Some(error),
        }
    }
    match failed {
        Some(error) => Err(open::refused(error, store)),
        None => Ok(Facts::default()),
    }
}

impl fmt::Debug for ClusterLink {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ClusterLink").field("store", &self.store).finish_non_exhaustive()
    }
}

//! The nodes of a cluster.
//!
//! Commands go by the driver's own connection, which follows slots that move and connects anew.
//! Messages come by [`ears`], on sharded channels, one for each bucket that somebody waits on,
//! since only there a script learns whether they reached anybody.

mod ears;
mod map;

use std::{fmt, sync::Arc, time::Duration};

use dlock_core::{Error, ErrorKind, current_runtime};
use parking_lot::RwLock;
use redis::{
    Cmd, Pipeline, ProtocolVersion, RedisError, RedisResult, ServerErrorKind, Value,
    aio::ConnectionLike, cluster::ClusterClientBuilder, cluster_async::ClusterConnection,
};
use tokio::{
    task::AbortHandle,
    time::{sleep, timeout},
};

use self::ears::Ears;
use super::{facts::Facts, open, receive, tls};
use crate::{config::RedisConfig, inbox::Inbox, keys::Bucket};

/// How often the driver sends a command again when a slot has moved or a node does not answer.
const RETRIES: u32 = 8;
/// How often a node is asked where the slots are.
const WATCH: Duration = Duration::from_secs(1);
/// The shortest pause between two looks, whatever is lost.
const PAUSE: Duration = Duration::from_millis(200);

/// The connections to all masters.
pub(crate) struct ClusterLink {
    shared: Arc<Shared>,
    /// The watch ends with the link, and its connections with it.
    watch: AbortHandle,
}

struct Shared {
    config: RedisConfig,
    store: String,
    facts: Arc<Facts>,
    redis: RwLock<ClusterConnection>,
    ears: Ears,
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
        let mut facts = first_that_answers(config, &store).await?;
        facts.check(true, &store).map_err(|error| error.during("connect").with_store(&store))?;
        let redis = connect(config, &config.addresses).await.map_err(refused)?;
        let ears = Ears::new(config, inbox.filter(|_| facts.has_sharded_push()));
        if !ears.look().await {
            let lost = Error::new(ErrorKind::Unavailable, "no node says where the slots are");
            return Err(lost.during("connect").with_store(&store));
        }
        // The node that answered may be a replica itself, and know of none.
        facts.replicas = u32::try_from(ears.replicas()).unwrap_or(0).max(facts.replicas);
        let (config, facts, redis) = (config.clone(), Arc::new(facts), RwLock::new(redis));
        let shared = Arc::new(Shared { config, store, facts, redis, ears });
        let watched = Arc::clone(&shared);
        let watch = async move {
            tokio::join!(watch(&watched), watched.ears.keep_listening());
        };
        let watch = current_runtime()?.spawn(watch).abort_handle();
        Ok(Self { shared, watch })
    }

    pub(super) async fn send(&self, command: &Cmd) -> RedisResult<Value> {
        let mut redis = self.shared.redis.read().clone();
        let answer = redis.req_packed_command(command).await.and_then(Value::extract_error);
        answer.map_err(unsettled)
    }

    pub(super) async fn send_all(&self, commands: &Pipeline) -> RedisResult<Vec<Value>> {
        let mut redis = self.shared.redis.read().clone();
        let answers = redis.req_packed_commands(commands, 0, commands.len()).await;
        answers.map_err(unsettled)
    }

    /// The channel of this bucket, if messages can be had there just now.
    pub(super) async fn channel(&self, bucket: Bucket) -> Option<String> {
        self.shared.ears.channel(bucket).await
    }

    pub(super) fn facts(&self) -> Arc<Facts> {
        Arc::clone(&self.shared.facts)
    }
}

/// Looks where the slots are, about once a second, and follows.
///
/// The driver learns of a failover from the nodes that redirect it. From a master that hangs it
/// learns nothing, not even after a replica has taken over: then it is replaced.
async fn watch(shared: &Shared) {
    let mut masters = shared.ears.masters();
    loop {
        let pause = sleep(PAUSE.mul_f64(rand::random_range(0.8..1.2)));
        // It makes no difference whether something was lost.
        let _ = timeout(WATCH, shared.ears.until_lost()).await;
        pause.await;
        shared.ears.look().await;
        let now = shared.ears.masters();
        if now == masters {
            continue;
        }
        match connect(&shared.config, &now).await {
            Ok(redis) => {
                *shared.redis.write() = redis;
                masters = now;
            }
            Err(error) => tracing::debug!(%error, "the new masters can't be reached yet"),
        }
    }
}

/// The driver's connection to the cluster that these nodes belong to.
async fn connect<'a>(
    config: &RedisConfig,
    nodes: impl IntoIterator<Item = &'a String>,
) -> RedisResult<ClusterConnection> {
    let nodes = nodes.into_iter().map(|address| open::info(config, address, &config.login));
    let builder = ClusterClientBuilder::new(nodes.collect::<RedisResult<Vec<_>>>()?)
        .use_protocol(ProtocolVersion::RESP3)
        .tcp_settings(open::tcp())
        .connection_timeout(config.response_timeout.min(Duration::from_secs(2)))
        .response_timeout(config.response_timeout)
        .overall_response_timeout(Some(config.response_timeout * 3))
        .retries(RETRIES)
        .min_retry_wait(10)
        .max_retry_wait(400);
    tls::cluster(builder, config.tls.as_ref())?.build()?.get_async_connection().await
}

/// The error for a slot that still has no settled place after all retries.
fn unsettled(error: RedisError) -> RedisError {
    match error.kind() {
        redis::ErrorKind::Server(
            ServerErrorKind::Moved | ServerErrorKind::Ask | ServerErrorKind::TryAgain,
        ) => RedisError::from((
            redis::ErrorKind::Server(ServerErrorKind::ClusterDown),
            "the slot has no place",
            error.to_string(),
        )),
        _ => error,
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

impl Drop for ClusterLink {
    fn drop(&mut self) {
        self.watch.abort();
    }
}

impl fmt::Debug for ClusterLink {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ClusterLink").field("store", &self.shared.store).finish_non_exhaustive()
    }
}

//! The nodes of a cluster.
//!
//! Commands go to the master of their bucket, by a [`NodeLink`] for each master, and follow `MOVED`
//! and `ASK`. Messages come by [`subscriber`], on sharded channels, one for each bucket with a waiter.
//! Only a publish on these channels returns to the script whether the message had a receiver.
//!
//! The driver's own cluster connection is not used, for three reasons. First, one redirection with
//! many commands under way can stop it for ever: a command keeps its share of the lock on the map
//! while it yields, and is not polled again until the map has been renewed, which needs that lock.
//! Second, it continues to send to a master that hangs, even after a replica has taken over. Third,
//! while it looks for one master, the commands to all others wait.

pub(crate) mod map;
pub(crate) mod route;
mod subscriber;

use std::{
    collections::{BTreeSet, HashMap},
    sync::Arc,
    time::Duration,
};

use dlock_core::{Error, ErrorKind, SendFlag, current_runtime};
use futures_util::future::join_all;
use parking_lot::Mutex;
use redis::{Pipeline, RedisError, RedisResult, ServerErrorKind, Value};
use tokio::{
    sync::OnceCell,
    task::AbortHandle,
    time::{sleep, timeout},
};

use self::{
    route::{Route, asking, bucket_of, no_master},
    subscriber::Subscriber,
};
use super::{
    node::NodeLink,
    open,
    server_info::{ServerInfo, SkippedQueries},
    window::{Kind, Sending},
};
use crate::{
    config::RedisConfig,
    keys::Bucket,
    reply,
    take::{Take, Taken},
    waiters::Waiters,
};

/// How many redirections a command follows.
const HOPS: usize = 5;
/// The interval between two reads of the map.
const WATCH: Duration = Duration::from_secs(1);
/// The shortest pause between two reads of the map, whatever is lost.
const PAUSE: Duration = Duration::from_millis(200);

/// The connections to all masters.
pub(crate) struct ClusterLink {
    shared: Arc<ClusterShared>,
    /// The watch ends with the link, and its connections with it.
    watch: AbortHandle,
}

struct ClusterShared {
    config: RedisConfig,
    store: String,
    server_info: Arc<ServerInfo>,
    subscriber: Subscriber,
    /// By address.
    nodes: Mutex<HashMap<Arc<str>, Arc<Node>>>,
}

/// A link to one node, once it is open.
type Node = OnceCell<Arc<NodeLink>>;

impl ClusterLink {
    /// Finds all masters, and connects to them.
    pub(crate) async fn open(
        config: &RedisConfig,
        waiters: Option<Arc<Waiters>>,
    ) -> Result<Self, Error> {
        open::check_files(config)?;
        let store = config.store();
        let named = |error: Error| error.during("connect").with_store(&store);
        let server_info = first_that_answers(config, &store).await?;
        server_info.check(true, &store).map_err(named)?;
        let subscriber = Subscriber::new(config, waiters);
        if !subscriber.read_map().await {
            let lost = "no node reports where the slots are: check CLUSTER INFO";
            let lost = named(Error::new(ErrorKind::Unavailable, lost));
            return Err(no_slots(config).await.map_or(lost, |why| open::refused(why, &store)));
        }
        let (config, server_info, nodes) =
            (config.clone(), Arc::new(server_info), Mutex::default());
        let shared = Arc::new(ClusterShared { config, store, server_info, subscriber, nodes });
        let masters = shared.subscriber.masters();
        join_all(masters.iter().map(|at| async { drop(shared.node(at).await) })).await;
        shared.subscriber.check_rights(&shared.store).await;
        let watched = Arc::clone(&shared);
        let watch = async move {
            tokio::join!(watch(&watched), watched.subscriber.resubscribe());
        };
        let watch = current_runtime()?.spawn(watch).abort_handle();
        Ok(Self { shared, watch })
    }

    pub(super) async fn send_all(
        &self,
        commands: &Pipeline,
        sending: &Sending<'_>,
    ) -> RedisResult<Vec<Value>> {
        let mut route = self.shared.route(commands)?;
        for _ in 0..HOPS {
            let node = match self.shared.known(&route.at) {
                Some(node) => node,
                None => {
                    sending.commit();
                    self.shared.node(&route.at).await
                }
            };
            let answers = match route.asking {
                false => node.send_all(commands, 0, sending).await?,
                true => {
                    let answers = node.send_all(&asking(commands), 1, sending).await?;
                    answers.into_iter().skip(1).collect()
                }
            };
            let Some(Value::ServerError(error)) = answers.first() else { return Ok(answers) };
            let error = RedisError::from(error.clone());
            match route.next(&error) {
                Some(next) => {
                    if !next.asking {
                        self.shared.subscriber.read_map_soon();
                    }
                    route = next;
                }
                None if is_unsettled(&error) => return Err(unsettled(&error)),
                None => return Ok(answers),
            }
        }
        Err(no_master())
    }

    /// Sends the plain commands that take a lock. Redirections are left to the script that follows.
    pub(super) async fn take(
        &self,
        take: &Take<'_>,
        sending: &Sending<'_>,
    ) -> RedisResult<Option<Taken>> {
        let at = self.shared.subscriber.master(take.bucket().number().into());
        match at.and_then(|at| self.shared.known(&at)) {
            Some(node) => node.take(take, sending).await,
            None => Ok(None),
        }
    }

    pub(super) fn config(&self) -> &RedisConfig {
        &self.shared.config
    }

    /// Returns the masters of all buckets.
    pub(super) fn masters_of_buckets(&self) -> Vec<Arc<str>> {
        Bucket::all().filter_map(|at| self.shared.subscriber.master(at.number().into())).collect()
    }

    /// Returns one bucket of each master.
    pub(super) fn buckets(&self) -> Vec<Bucket> {
        let mut seen = BTreeSet::new();
        let master = |at: &Bucket| self.shared.subscriber.master(at.number().into());
        let mut one_each: Vec<_> =
            Bucket::all().filter(|at| master(at).is_some_and(|at| seen.insert(at))).collect();
        if one_each.is_empty() {
            one_each.push(Bucket::ANY);
        }
        one_each
    }

    /// Tries the commands that go to a master to which this bucket is moving.
    pub(super) async fn try_asking(&self, bucket: Bucket) -> RedisResult<()> {
        let Some(at) = self.shared.subscriber.master(bucket.number().into()) else { return Ok(()) };
        let mut time = redis::pipe();
        time.cmd("TIME");
        let node = self.shared.node(&at).await;
        let answers = node.send_all(&asking(&time), 1, &Sending::of(Kind::Acquire)).await?;
        reply::first(answers).map(drop)
    }

    /// Returns whether messages can be received.
    pub(super) fn has_push(&self) -> bool {
        self.shared.subscriber.may_subscribe()
    }

    /// Sends a command to this node, regardless of its keys.
    pub(super) async fn send_to(
        &self,
        at: &Arc<str>,
        command: &Pipeline,
    ) -> RedisResult<(Value, Option<u64>)> {
        self.shared.node(at).await.send_known(command).await
    }

    /// Returns the channel of this bucket, if this user may subscribe.
    pub(super) async fn channel(&self, bucket: Bucket, flag: &SendFlag) -> Option<String> {
        self.shared.subscriber.channel(bucket, flag).await
    }

    pub(super) fn server_info(&self) -> Arc<ServerInfo> {
        Arc::clone(&self.shared.server_info)
    }

    pub(super) fn most_replicas(&self) -> u32 {
        // The node that answered may itself be a replica, and know none.
        let known = u32::try_from(self.shared.subscriber.most_replicas()).unwrap_or(0);
        known.max(self.shared.server_info.replicas)
    }
}

impl ClusterShared {
    /// Returns the master of the first command's keys, if it is known.
    fn route(&self, commands: &Pipeline) -> RedisResult<Route> {
        let bucket = commands.cmd_iter().next().and_then(bucket_of);
        let at = bucket.and_then(|bucket| self.subscriber.master(bucket));
        Ok(Route { at: at.ok_or_else(no_master)?, asking: false })
    }

    /// Returns the link to a node that this client has connected to before.
    fn known(&self, at: &Arc<str>) -> Option<Arc<NodeLink>> {
        self.nodes.lock().get(at).and_then(|node| node.get().cloned())
    }

    /// Returns the link to a node. The link reconnects on its own.
    async fn node(&self, at: &Arc<str>) -> Arc<NodeLink> {
        if let Some(node) = self.known(at) {
            return node;
        }
        let node = Arc::clone(self.nodes.lock().entry(Arc::clone(at)).or_default());
        let open = || async {
            let config = RedisConfig { addresses: vec![at.to_string()], ..self.config.clone() };
            // The link continues to connect, and its commands report the reason until then.
            Arc::new(NodeLink::open(&config, None).await.0)
        };
        Arc::clone(node.get_or_init(open).await)
    }
}

/// Reads the map about once a second, and whenever something has changed.
async fn watch(shared: &ClusterShared) {
    loop {
        let pause = sleep(PAUSE.mul_f64(rand::random_range(0.8..1.2)));
        // Either outcome is a reason to read the map.
        let _ = timeout(WATCH, shared.subscriber.until_lost()).await;
        pause.await;
        if shared.subscriber.read_map().await {
            let masters = shared.subscriber.masters();
            shared.nodes.lock().retain(|at, _| masters.contains(at));
        }
    }
}

/// Returns whether the server reports that the keys are elsewhere, or partly elsewhere.
fn is_unsettled(error: &RedisError) -> bool {
    use ServerErrorKind::{Ask, Moved, TryAgain};
    matches!(error.kind(), redis::ErrorKind::Server(Moved | Ask | TryAgain))
}

/// Returns the error for a slot that is moving.
fn unsettled(error: &RedisError) -> RedisError {
    let kind = redis::ErrorKind::Server(ServerErrorKind::ClusterDown);
    RedisError::from((kind, "the slot is being moved", error.to_string()))
}

/// Returns the reason why the first node does not report the slots.
async fn no_slots(config: &RedisConfig) -> Option<RedisError> {
    let address = config.addresses.first()?;
    let asked = async {
        let mut node = open::connection(config, address, &config.login, |_| {}).await?;
        node.send_packed_command(redis::cmd("CLUSTER").arg("SLOTS")).await?.extract_error()
    };
    asked.await.err()
}

/// Returns the server information of the first node that answers.
async fn first_that_answers(config: &RedisConfig, store: &str) -> Result<ServerInfo, Error> {
    let mut failed = None;
    for address in &config.addresses {
        let server_info = async {
            let mut node = open::connection(config, address, &config.login, |_| {}).await?;
            open::server_info(&mut node, None, SkippedQueries { info: false, settings: true }).await
        };
        match server_info.await {
            Ok(server_info) => return Ok(server_info),
            Err(error) => failed = Some(error),
        }
    }
    match failed {
        Some(error) => Err(open::refused(error, store)),
        None => Ok(ServerInfo::default()),
    }
}

impl Drop for ClusterLink {
    fn drop(&mut self) {
        self.watch.abort();
    }
}

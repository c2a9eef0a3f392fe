//! The baseline of a hand-off: a message in a ring of processes. Each step takes as long as the
//! server and the driver need to deliver it.
//!
//! ```text
//! join PLACE                    -> ok          listens at a place of the ring
//! ring PLACE NEXT US FROM UNTIL -> ok NANOS... the time of each step to this place; each place keeps
//!                                 the message for so many microseconds
//! ```

use std::{sync::Arc, time::Duration};

use ::redis::{PushInfo, PushKind, Value, aio::MultiplexedConnection};
use sqlx::{
    ConnectOptions,
    postgres::{PgConnectOptions, PgConnection, PgListener, PgNotification, PgPoolOptions},
};
use tokio::sync::{Mutex, Notify};
use tonic::Streaming;
use zookeeper_client::{Acls, Client, CreateMode, Error as ZkError, OneshotWatcher};

use super::{
    etcd::{self, EtcdClient, WatchResponse},
    redis, zk,
};
use crate::{
    Failure, clock,
    subject::{Lock, Subject, Want, Witness},
};

/// The time to wait for messages that are still pending after a run, so that none is left for the
/// next one.
const STRAGGLERS: Duration = Duration::from_millis(50);

/// A place in the ring, after `join`.
#[derive(Clone)]
pub(super) struct Push {
    url: String,
    ring: Arc<Mutex<Option<Ring>>>,
}

enum Ring {
    Redis(RedisRing),
    Postgres(PostgresRing),
    Zk(ZkRing),
    Etcd(EtcdRing),
}

impl Push {
    pub(super) fn new(url: &str) -> Self {
        Self { url: url.to_owned(), ring: Arc::default() }
    }
}

/// The type of its locks: it has none.
pub(super) enum Never {}

impl Lock for Never {
    async fn cycle<W: Witness>(&mut self, _witness: &mut W) -> Result<(), Failure> {
        match *self {}
    }
}

impl Subject for Push {
    type Lock = Never;

    async fn lock(&self, _want: Want<'_>) -> Result<Never, Failure> {
        Err("it has no locks".into())
    }

    async fn more(&self, words: &[&str]) -> Result<String, Failure> {
        let mut ring = self.ring.lock().await;
        match (words, ring.as_mut()) {
            (["join", place], None) => {
                let (url, address) = (&self.url, super::address(&self.url));
                *ring = Some(match url.split(':').next() {
                    Some("redis") => Ring::Redis(RedisRing::join(url, place).await?),
                    Some("postgres") => Ring::Postgres(PostgresRing::join(url, place).await?),
                    Some("zk") => Ring::Zk(ZkRing::join(address, place).await?),
                    Some("etcd") => Ring::Etcd(EtcdRing::join(address, place).await?),
                    _ => return Err("the store has no messages".into()),
                });
                Ok(String::new())
            }
            (["join", _], Some(_)) => Ok(String::new()),
            (["ring", place, next, hold, from, until], Some(ring)) => {
                let (first, hold) = (*place == "0", Duration::from_micros(hold.parse()?));
                let trip = Trip { first, next, hold, from: from.parse()?, until: until.parse()? };
                let took = match ring {
                    Ring::Redis(ring) => trip.go(ring).await?,
                    Ring::Postgres(ring) => trip.go(ring).await?,
                    Ring::Zk(ring) => {
                        ring.watch().await?;
                        trip.go(ring).await?
                    }
                    Ring::Etcd(ring) => trip.go(ring).await?,
                };
                Ok(took.iter().map(|took| format!("{} ", took.as_nanos())).collect())
            }
            _ => Err(format!("it does not know: {}", words.join(" ")).into()),
        }
    }
}

/// How a place of one store sends and receives the message.
trait Station: Send {
    /// The form in which the message arrives.
    type Message: Send;

    /// Sends the time of now to the next place.
    fn send(&mut self, next: &str) -> impl Future<Output = Result<(), Failure>> + Send;

    /// Waits for the message.
    fn receive(&mut self) -> impl Future<Output = Result<Self::Message, Failure>> + Send;

    /// Returns how long the message took to this place, where it arrived at this time: more than one
    /// value if several arrived together.
    fn took(
        &mut self,
        message: Self::Message,
        arrived: u64,
    ) -> impl Future<Output = Result<Vec<Duration>, Failure>> + Send;
}

/// What a place does with the message.
struct Trip<'a> {
    /// It sends the message first.
    first: bool,
    next: &'a str,
    hold: Duration,
    from: u64,
    until: u64,
}

impl Trip<'_> {
    /// Forwards the message until the time is over. Returns how long it took to this place each time.
    async fn go(&self, station: &mut impl Station) -> Result<Vec<Duration>, Failure> {
        let end = self.until + u64::try_from(STRAGGLERS.as_nanos())?;
        if self.first {
            clock::sleep_until(self.from).await;
            station.send(self.next).await?;
        }
        let mut all = Vec::new();
        loop {
            let message = tokio::select! {
                message = station.receive() => message?,
                () = clock::sleep_until(end) => return Ok(all),
            };
            let arrived = clock::now();
            for took in station.took(message, arrived).await? {
                all.push(took);
                if arrived < self.until {
                    if !self.hold.is_zero() {
                        tokio::time::sleep(self.hold).await;
                    }
                    station.send(self.next).await?;
                }
            }
        }
    }
}

/// Each step is a bare `PUBLISH` to a process, which listens on the connection that it also publishes
/// on.
struct RedisRing {
    connection: MultiplexedConnection,
    inbox: Arc<Inbox>,
}

#[derive(Default)]
struct Inbox {
    took: parking_lot::Mutex<Vec<Duration>>,
    arrived: Notify,
}

impl RedisRing {
    /// Starts to listen at this place.
    async fn join(url: &str, place: &str) -> Result<Self, Failure> {
        let inbox = Arc::new(Inbox::default());
        let to = Arc::clone(&inbox);
        let config = redis::config().set_push_sender(move |push: PushInfo| {
            to.receive(&push);
            Ok::<(), ()>(())
        });
        let client = redis::client(url)?;
        let mut connection = client.get_multiplexed_async_connection_with_config(&config).await?;
        connection.subscribe(format!("ring:{place}")).await?;
        Ok(Self { connection, inbox })
    }
}

impl Station for RedisRing {
    type Message = ();

    async fn send(&mut self, next: &str) -> Result<(), Failure> {
        let mut publish = ::redis::cmd("PUBLISH");
        publish.arg(format!("ring:{next}")).arg(clock::now());
        match publish.query_async(&mut self.connection).await? {
            1 => Ok(()),
            listeners => Err(format!("{listeners} instead of 1 listen at place {next}").into()),
        }
    }

    async fn receive(&mut self) -> Result<(), Failure> {
        self.inbox.arrived.notified().await;
        Ok(())
    }

    async fn took(&mut self, (): (), _arrived: u64) -> Result<Vec<Duration>, Failure> {
        Ok(std::mem::take(&mut *self.inbox.took.lock()))
    }
}

impl Inbox {
    fn receive(&self, push: &PushInfo) {
        let arrived = clock::now();
        if let (PushKind::Message, [_, Value::BulkString(sent)]) = (&push.kind, &push.data[..])
            && let Some(sent) = str::from_utf8(sent).ok().and_then(|sent| sent.parse().ok())
        {
            self.took.lock().push(clock::between(sent, arrived));
            self.arrived.notify_one();
        }
    }
}

/// A database without dlock. Each notification wakes every listener of its database, so in dlock's
/// database the ring and dlock would slow each other down. This one exists on every server.
const DATABASE: &str = "postgres";

/// The message is a notification: one connection runs `NOTIFY`, and another one listens.
struct PostgresRing {
    listens: PgListener,
    sends: PgConnection,
}

impl PostgresRing {
    /// Starts to listen at this place.
    async fn join(url: &str, place: &str) -> Result<Self, Failure> {
        let options = url.parse::<PgConnectOptions>()?.database(DATABASE);
        let pool = PgPoolOptions::new().max_connections(1).connect_with(options.clone()).await?;
        let mut listens = PgListener::connect_with(&pool).await?;
        listens.listen(&format!("ring_{place}")).await?;
        Ok(Self { listens, sends: options.connect().await? })
    }
}

impl Station for PostgresRing {
    type Message = PgNotification;

    async fn send(&mut self, next: &str) -> Result<(), Failure> {
        let notify = sqlx::query("SELECT pg_notify($1, $2)").bind(format!("ring_{next}"));
        notify.bind(clock::now().to_string()).execute(&mut self.sends).await?;
        Ok(())
    }

    async fn receive(&mut self) -> Result<PgNotification, Failure> {
        Ok(self.listens.recv().await?)
    }

    async fn took(
        &mut self,
        message: PgNotification,
        arrived: u64,
    ) -> Result<Vec<Duration>, Failure> {
        Ok(vec![clock::between(message.payload().parse()?, arrived)])
    }
}

/// The message is the data of a node that one session writes and another one watches.
struct ZkRing {
    client: Client,
    node: String,
    watcher: Option<OneshotWatcher>,
}

impl ZkRing {
    /// Creates the node of this place.
    async fn join(address: &str, place: &str) -> Result<Self, Failure> {
        let client = zk::connect(address).await?;
        let node = format!("/ring-{place}");
        let mode = CreateMode::Persistent.with_acls(Acls::anyone_all());
        match client.create(&node, b"0", &mode).await {
            Ok(_) | Err(ZkError::NodeExists) => Ok(Self { client, node, watcher: None }),
            Err(error) => Err(error.into()),
        }
    }

    /// Watches the node. Returns the time when the last message to it was sent.
    async fn watch(&mut self) -> Result<u64, Failure> {
        let (data, _, watcher) = self.client.get_and_watch_data(&self.node).await?;
        self.watcher = Some(watcher);
        Ok(str::from_utf8(&data)?.parse()?)
    }
}

impl Station for ZkRing {
    type Message = ();

    async fn send(&mut self, next: &str) -> Result<(), Failure> {
        let now = clock::now().to_string();
        self.client.set_data(&format!("/ring-{next}"), now.as_bytes(), None).await?;
        Ok(())
    }

    async fn receive(&mut self) -> Result<(), Failure> {
        self.watcher.take().ok_or("a node without a watch")?.changed().await;
        Ok(())
    }

    /// The data is read together with the next watch, and this time does not count.
    async fn took(&mut self, (): (), arrived: u64) -> Result<Vec<Duration>, Failure> {
        Ok(vec![clock::between(self.watch().await?, arrived)])
    }
}

/// The message is the value of a key that one client puts and another one watches.
struct EtcdRing {
    client: EtcdClient,
    events: Streaming<WatchResponse>,
}

impl EtcdRing {
    /// Watches the key of this place.
    async fn join(address: &str, place: &str) -> Result<Self, Failure> {
        let client = etcd::connect(address).await?;
        let events = client.watch(format!("/ring-{place}").as_bytes()).await?;
        Ok(Self { client, events })
    }
}

impl Station for EtcdRing {
    type Message = WatchResponse;

    async fn send(&mut self, next: &str) -> Result<(), Failure> {
        let now = clock::now().to_string();
        self.client.put(format!("/ring-{next}").as_bytes(), now.as_bytes(), 0).await
    }

    async fn receive(&mut self) -> Result<WatchResponse, Failure> {
        Ok(self.events.message().await?.ok_or("the watch has ended")?)
    }

    async fn took(
        &mut self,
        message: WatchResponse,
        arrived: u64,
    ) -> Result<Vec<Duration>, Failure> {
        let sent = message.values();
        sent.map(|sent| Ok(clock::between(str::from_utf8(sent)?.parse()?, arrived))).collect()
    }
}

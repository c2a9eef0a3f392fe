//! One server, or the master that sentinels name.
//!
//! A task of its own connects anew whenever the connection is lost, and, with sentinels, moves to
//! the new master after a failover. The driver's own manager does neither after a time-out, nor
//! with sentinels.

use std::{
    fmt,
    sync::{
        Arc, Weak,
        atomic::{AtomicU32, AtomicU64, Ordering},
    },
    time::Duration,
};

use dlock_core::{Clock, Error, ErrorKind, current_runtime};
use redis::{Cmd, Pipeline, RedisError, RedisResult, Value, aio::MultiplexedConnection};
use tokio::sync::watch;

use super::{facts::Facts, open, receive, sentinel::Sentinels};
use crate::{
    config::{RedisConfig, Topology},
    error::{Cure, cure},
    inbox::Inbox,
};

/// After so many answers in a row that did not come in time, the connection is given up: the
/// system may take minutes to notice that a peer is cut off.
const TIMEOUTS: u32 = 2;
/// How often the sentinels are asked who the master is.
const WATCH: Duration = Duration::from_secs(1);

/// A connection that is kept up.
pub(crate) struct NodeLink(Arc<Shared>);

struct Shared {
    config: RedisConfig,
    store: String,
    inbox: Option<Arc<Inbox>>,
    door: watch::Sender<Door>,
    epochs: AtomicU64,
    timeouts: AtomicU32,
}

/// Whether commands can be sent.
#[derive(Clone)]
enum Door {
    Open(Connection),
    Shut(Error),
}

#[derive(Clone)]
struct Connection {
    redis: MultiplexedConnection,
    epoch: u64,
    address: String,
    facts: Facts,
    /// Whether messages for the inbox arrive here.
    push: bool,
}

impl NodeLink {
    /// Connects, and keeps the connection up from then on.
    pub(super) async fn open(
        config: &RedisConfig,
        inbox: Option<Arc<Inbox>>,
    ) -> Result<Self, Error> {
        let (link, first) = Self::begin(config, inbox).await;
        first.map(|()| link)
    }

    /// As [`open`](Self::open), and goes on trying when the first attempt fails: the second value.
    pub(crate) async fn open_anyway(config: &RedisConfig) -> (Self, Result<(), Error>) {
        Self::begin(config, None).await
    }

    async fn begin(config: &RedisConfig, inbox: Option<Arc<Inbox>>) -> (Self, Result<(), Error>) {
        let shared = Arc::new(Shared {
            config: config.clone(),
            store: config.store(),
            inbox,
            door: watch::Sender::new(Door::Shut(Error::new(
                ErrorKind::Unavailable,
                "not connected yet",
            ))),
            epochs: AtomicU64::new(0),
            timeouts: AtomicU32::new(0),
        });
        let mut sentinels = Sentinels::new(config);
        let first = match open::check_files(config) {
            Ok(()) => shared.connect(&mut sentinels).await,
            Err(error) => Err(error),
        };
        let first = first.map(|connection| drop(shared.door.send_replace(Door::Open(connection))));
        let keep = keep_up(Arc::downgrade(&shared), shared.door.subscribe(), sentinels);
        let started = current_runtime().map(|runtime| drop(runtime.spawn(keep)));
        (Self(shared), started.and(first))
    }

    pub(super) async fn send(&self, command: &Cmd) -> RedisResult<Value> {
        let mut connection = self.0.connection().await?;
        let answer = connection.redis.send_packed_command(command).await;
        self.0.seen(connection.epoch, answer.as_ref().err());
        answer?.extract_error()
    }

    pub(super) async fn send_all(&self, commands: &Pipeline) -> RedisResult<Vec<Value>> {
        let mut connection = self.0.connection().await?;
        let answers = connection.redis.send_packed_commands(commands, 0, commands.len()).await;
        self.0.seen(connection.epoch, answers.as_ref().err());
        answers
    }

    pub(super) fn give_up(&self) {
        if let Some(epoch) = self.epoch() {
            self.0.shut(epoch, "the server can't be used any more");
        }
    }

    pub(super) fn epoch(&self) -> Option<u64> {
        match &*self.0.door.borrow() {
            Door::Open(connection) => Some(connection.epoch),
            Door::Shut(_) => None,
        }
    }

    pub(super) fn channel(&self) -> Option<Arc<str>> {
        let inbox = self.0.inbox.as_ref()?;
        match &*self.0.door.borrow() {
            Door::Open(connection) if connection.push => Some(inbox.channel()),
            _ => None,
        }
    }

    pub(super) fn facts(&self) -> Facts {
        match &*self.0.door.borrow() {
            Door::Open(connection) => connection.facts.clone(),
            Door::Shut(_) => Facts::default(),
        }
    }
}

impl Shared {
    /// The connection; while there is none, waits for as long as for an answer.
    async fn connection(&self) -> RedisResult<Connection> {
        if let Door::Open(connection) = &*self.door.borrow() {
            return Ok(connection.clone());
        }
        let mut door = self.door.subscribe();
        let open = door.wait_for(|door| matches!(door, Door::Open(_)));
        if let Ok(Ok(door)) = tokio::time::timeout(self.config.response_timeout, open).await
            && let Door::Open(connection) = &*door
        {
            return Ok(connection.clone());
        }
        let why = match &*self.door.borrow() {
            Door::Open(connection) => return Ok(connection.clone()),
            Door::Shut(why) => why.to_string(),
        };
        let refused = std::io::Error::new(std::io::ErrorKind::NotConnected, why);
        Err(RedisError::from(refused))
    }

    /// Looks at how a command went.
    fn seen(&self, epoch: u64, error: Option<&RedisError>) {
        let Some(error) = error else {
            if self.timeouts.load(Ordering::Relaxed) != 0 {
                self.timeouts.store(0, Ordering::Relaxed);
            }
            return;
        };
        let late = error.is_timeout();
        let many = late && self.timeouts.fetch_add(1, Ordering::Relaxed) + 1 >= TIMEOUTS;
        let broken = !late && (error.is_unrecoverable_error() || error.is_io_error());
        if many || broken || cure(error) == Cure::Reconnect {
            self.shut(epoch, &error.to_string());
        }
    }

    /// Shuts the door, unless that connection is gone already.
    fn shut(&self, epoch: u64, why: &str) {
        self.door.send_if_modified(|door| {
            let same = matches!(door, Door::Open(connection) if connection.epoch == epoch);
            if same {
                tracing::debug!(store = self.store, why, "the connection is given up");
                *door = Door::Shut(
                    Error::new(ErrorKind::Unavailable, format!("the connection was lost ({why})"))
                        .with_store(&self.store),
                );
            }
            same
        });
    }

    /// Finds the server, connects, looks at what is there, and subscribes.
    async fn connect(self: &Arc<Self>, sentinels: &mut Sentinels) -> Result<Connection, Error> {
        let address = sentinels.master(&self.config).await?;
        let epoch = self.epochs.fetch_add(1, Ordering::Relaxed);
        let refused = |error| open::refused(error, &self.store);
        let named = |error: Error| error.during("connect").with_store(&self.store);
        let weak = Arc::downgrade(self);
        let push = move |info| {
            let Some(shared) = weak.upgrade() else { return };
            if receive(info, shared.inbox.as_deref(), Clock::Boot.now()) {
                shared.shut(epoch, "the other side has closed it");
            }
        };
        let opening = open::connection(&self.config, &address, &self.config.login, push);
        let mut redis = opening.await.map_err(refused)?;
        let facts = open::facts(&mut redis).await.map_err(refused)?;
        facts.check(false, &self.store).map_err(named)?;
        open::check_ready(&facts).map_err(named)?;
        let push = match &self.inbox {
            Some(inbox) => match redis.subscribe(&*inbox.channel()).await {
                Ok(()) => true,
                Err(error) if error.is_io_error() => return Err(refused(error)),
                Err(error) => {
                    tracing::warn!(
                        %error, store = self.store,
                        "no messages can be had, so waiting locks ask now and then"
                    );
                    false
                }
            },
            None => false,
        };
        Ok(Connection { redis, epoch, address, facts, push })
    }
}

/// Connects anew whenever the door is shut, until nobody wants the link any more.
async fn keep_up(shared: Weak<Shared>, mut door: watch::Receiver<Door>, mut sentinels: Sentinels) {
    let mut tries = 0u32;
    loop {
        let open = matches!(&*door.borrow_and_update(), Door::Open(_));
        if open {
            tries = 0;
            if tokio::time::timeout(WATCH, door.changed()).await.is_ok_and(|gone| gone.is_err()) {
                return;
            }
            let Some(shared) = shared.upgrade() else { return };
            watch_master(&shared, &mut sentinels).await;
            continue;
        }
        if tries > 0 {
            let pause = Duration::from_millis(5 << tries.min(8));
            let pause = pause.mul_f64(rand::random_range(0.5..1.0));
            tokio::time::sleep(pause).await;
        }
        tries += 1;
        let Some(shared) = shared.upgrade() else { return };
        match shared.connect(&mut sentinels).await {
            Ok(connection) => {
                shared.timeouts.store(0, Ordering::Relaxed);
                shared.door.send_replace(Door::Open(connection));
                if let Some(inbox) = &shared.inbox {
                    inbox.reconnected();
                }
            }
            Err(error) => {
                tracing::debug!(%error, tries, "no connection yet");
                shared.door.send_replace(Door::Shut(error));
            }
        }
    }
}

/// Shuts the door when the sentinels name another master than the one behind it.
async fn watch_master(shared: &Shared, sentinels: &mut Sentinels) {
    if !matches!(shared.config.topology, Topology::Sentinel(_)) {
        return;
    }
    let behind = match &*shared.door.borrow() {
        Door::Open(connection) => (connection.epoch, connection.address.clone()),
        Door::Shut(_) => return,
    };
    if let Ok(master) = sentinels.master(&shared.config).await
        && master != behind.1
    {
        shared.shut(behind.0, "the sentinels name another master");
    }
}

impl fmt::Debug for NodeLink {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("NodeLink").field("store", &self.0.store).finish_non_exhaustive()
    }
}

//! One server, or the master that sentinels report.
//!
//! A task ([`reconnect`]) reconnects whenever the connection is lost. With sentinels, it also moves to
//! the new master after a failover. The driver's own manager does not reconnect after a timeout,
//! and does not know sentinels.
//!
//! # Concurrency
//!
//! - The task in [`reconnect`] sets `state` to connected, and a sender whose connection is broken sets
//!   it to disconnected. It does so for its own epoch only, so a late error of an old connection can't
//!   end a new one.
//! - **`install` sets the state to connected, then loads `id`. The callback of the connection closes
//!   `id`, then sets the state to disconnected.** The lock of `state` orders the two, so a connection
//!   that is closed before it is installed does not stay in use.
//! - **The callback of a connection reads `state` until the waiters have its message.** So a message
//!   counts only while its connection is installed, also if another one is installed at the same
//!   time. The waiters never use `state`, so the order of the two locks can't turn around.
//! - `epochs` only counts, so that each connection has its own number.
//! - `late` counts timeouts in a row. Commands that end at the same time may miss one of them. Then
//!   the connection is closed one timeout later.
//! - `keeps_grants` follows the last answer of `INFO` or `CONFIG GET`. It is a hint for
//!   `guarantees()`: nothing else is ordered by it, so its accesses are relaxed.
//! - `most_replicas` only grows, and nothing else is ordered by it, so its accesses are relaxed.
//! - `may_subscribe` is set by each connect, before the connection is installed. A claim that was
//!   prepared with an older value is polled for, so its accesses are relaxed.

mod monitor;
mod reconnect;

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering},
    },
    time::Duration,
};

use dlock_core::{Clock, Error, ErrorKind, Instant, StoreClock, current_runtime};
use parking_lot::Mutex;
use redis::{Pipeline, RedisError, RedisResult, Value, aio::MultiplexedConnection};
use tokio::{sync::watch::Sender, task::AbortHandle};

use super::{
    open,
    sentinel::Sentinels,
    server_info::{ServerInfo, SkippedQueries},
    uptime::Uptime,
    window::{Kind, Role, Sending, Window},
};
use crate::{
    config::{RedisConfig, Topology},
    error::{Remedy, guarded, late, not_connected, remedy_of},
    reply,
    take::{Take, Taken},
    unanswered::{self, ConnectionId, answer_timeout},
    waiters::Waiters,
};

/// After this many timeouts in a row the client closes the connection. The operating system may
/// take minutes to notice that a peer is cut off. One renewal without an answer is enough: see
/// [`UnansweredRenewal`].
const TIMEOUTS: u32 = 2;

/// The number of times that an acquire is sent. The answer to an acquire that came too late shows
/// the server's clock, so the second one has the right deadline.
const SENDINGS: u32 = 2;

/// The uncertainty of the server's clock up to which it need not be read again.
const SURE: Duration = Duration::from_millis(10);

/// The last argument of a script that must grant nothing: see `frozen` in `lock.lua`.
const FROZEN: u64 = 1;

/// A connection that reconnects.
pub(crate) struct NodeLink {
    shared: Arc<NodeShared>,
    /// The task ends with the link, and its connections with it.
    reconnecting: Option<AbortHandle>,
}

struct NodeShared {
    config: RedisConfig,
    store: String,
    waiters: Option<Arc<Waiters>>,
    state: Sender<LinkState>,
    epochs: AtomicU64,
    /// The run of the server that was seen last.
    uptime: Mutex<Option<Uptime>>,
    /// Whether grants survive a restart of the server that answered last.
    keeps_grants: AtomicBool,
    /// The largest number of replicas that a server has reported.
    most_replicas: AtomicU32,
    /// Whether the server that answered last permits subscriptions.
    may_subscribe: AtomicBool,
}

/// Whether commands can be sent.
enum LinkState {
    Connected(Arc<Connection>),
    Disconnected(Error),
}

struct Connection {
    redis: MultiplexedConnection,
    epoch: u64,
    address: String,
    server_info: Mutex<Arc<ServerInfo>>,
    /// How long the server is known to have run.
    uptime: Option<Uptime>,
    /// The number of timeouts in a row.
    late: AtomicU32,
    window: Window,
    id: ConnectionId,
    /// The clock of the server behind it.
    clock: Mutex<StoreClock>,
}

/// One sending of a command.
struct InFlight<'a> {
    role: Role<'a>,
    sent: Instant,
    /// The deadline by the server's clock, in microseconds.
    deadline: Option<u64>,
    unanswered: Option<unanswered::PendingAcquire<'a>>,
}

impl NodeLink {
    /// Connects, and reconnects from then on. The second value is the result of the first attempt.
    /// If the first attempt fails, the link continues to try.
    pub(crate) async fn open(
        config: &RedisConfig,
        waiters: Option<Arc<Waiters>>,
    ) -> (Self, Result<(), Error>) {
        let shared = Arc::new(NodeShared::new(config, waiters));
        let mut sentinels = Sentinels::new(config);
        let first = match open::check_files(config) {
            Ok(()) => shared.connect(&mut sentinels).await,
            Err(error) => Err(error),
        };
        let first = first.map(|connection| shared.install(connection));
        let reconnecting = reconnect::run(Arc::clone(&shared), sentinels);
        let reconnecting =
            current_runtime().map(|runtime| runtime.spawn(reconnecting).abort_handle());
        let (reconnecting, started) = match reconnecting {
            Ok(reconnecting) => (Some(reconnecting), Ok(())),
            Err(error) => (None, Err(error)),
        };
        (Self { shared, reconnecting }, started.and(first))
    }

    /// Sends commands back to back. The command at this index has the role. The answers contain the
    /// errors.
    pub(super) async fn send_all(
        &self,
        commands: &Pipeline,
        at: usize,
        sending: &Sending<'_>,
    ) -> RedisResult<Vec<Value>> {
        // The guard is checked for the connection that is used, after the wait for the window:
        // another connection may lead to a server that has just started empty.
        let connection = self.shared.connection(sending).await?;
        let _permit = connection.window.enter(sending.kind).await?;
        let frozen = self.shared.check_guard(&connection, sending.role)?;
        sending.begin();
        let mut redis = connection.redis.clone();
        for _ in 0..SENDINGS {
            let in_flight = self.shared.in_flight(&connection, sending.role, None);
            let last = in_flight.deadline.or(frozen.then_some(FROZEN));
            let extended = last.map(|last| extended(commands, at, last));
            let commands = extended.as_ref().unwrap_or(commands);
            let pending = UnansweredRenewal::before(&self.shared, &connection, sending.kind);
            let answers = exchange(&mut redis, commands).await;
            if !answers.as_ref().is_err_and(RedisError::is_timeout) {
                pending.answered();
            }
            match &answers {
                Ok(answers) => {
                    self.shared.record_outcome(&connection, first_error(answers).as_ref());
                    in_flight.answered(&connection, answers.get(at).and_then(reply::clock));
                    if answers.get(at).is_some_and(reply::is_late) {
                        continue;
                    }
                }
                Err(error) => self.shared.record_outcome(&connection, Some(error)),
            }
            return answers;
        }
        Err(late())
    }

    /// Sends the plain commands that take a lock, unless the server's clock is not known well enough.
    pub(super) async fn take(
        &self,
        take: &Take<'_>,
        sending: &Sending<'_>,
    ) -> RedisResult<Option<Taken>> {
        let connection = self.shared.connection(sending).await?;
        let _permit = connection.window.enter(sending.kind).await?;
        self.shared.check_guard(&connection, sending.role)?;
        let range = connection.clock.lock().range(Clock::Boot.now());
        let Some((least, most)) = range else { return Ok(None) };
        let uncertainty = Duration::from_micros(most - least);
        if !take.can_use(uncertainty) {
            return Ok(None);
        }
        sending.begin();
        let lease = take.lease();
        let in_flight = self.shared.in_flight(
            &connection,
            sending.role,
            Some(lease.saturating_add(uncertainty)),
        );
        let sent = in_flight.sent;
        let ends = u64::try_from(lease.as_micros()).unwrap_or(u64::MAX).saturating_add(most);
        // The key exists until the end of this millisecond.
        let ends = ends / 1000;
        let commands = take.commands(ends, uncertainty > SURE);
        let answers = exchange(&mut connection.redis.clone(), &commands).await;
        match answers {
            Ok(answers) => {
                self.shared.record_outcome(&connection, first_error(&answers).as_ref());
                // The clock of `XADD` may be ahead of the server's.
                let shown = answers.get(3).and_then(reply::micros);
                in_flight.answered(&connection, shown);
                Ok(Some(Taken { sent, ends, answers }))
            }
            Err(error) => {
                self.shared.record_outcome(&connection, Some(&error));
                Err(error)
            }
        }
    }

    /// Sends one command. Returns the answer and the number of its connection, or `None` if that
    /// connection was lost meanwhile.
    pub(super) async fn send_known(&self, command: &Pipeline) -> RedisResult<(Value, Option<u64>)> {
        let before = self.epoch();
        let answers = self.send_all(command, 0, &Sending::of(Kind::Acquire)).await?;
        Ok((reply::first(answers)?, before.filter(|_| before == self.epoch())))
    }

    pub(super) fn epoch(&self) -> Option<u64> {
        self.shared.state.borrow().connection().map(|connection| connection.epoch)
    }

    pub(super) fn config(&self) -> &RedisConfig {
        &self.shared.config
    }

    /// Returns the server to which the link leads at present.
    pub(super) fn address(&self) -> Option<String> {
        self.shared.state.borrow().connection().map(|connection| connection.address.clone())
    }

    /// Returns the channel, also while there is no connection: the next one subscribes before it
    /// sends a request, and a claim without a channel would find its grant only by polling.
    pub(super) fn channel(&self) -> Option<Arc<str>> {
        let waiters = self.shared.waiters.as_ref()?;
        self.shared.may_subscribe.load(Ordering::Relaxed).then(|| waiters.channel())
    }

    pub(super) fn keeps_grants(&self) -> bool {
        self.shared.keeps_grants.load(Ordering::Relaxed)
    }

    pub(super) fn most_replicas(&self) -> u32 {
        self.shared.most_replicas.load(Ordering::Relaxed)
    }

    pub(super) fn server_info(&self) -> Arc<ServerInfo> {
        let state = self.shared.state.borrow();
        state.connection().map(|connection| connection.server_info()).unwrap_or_default()
    }
}

impl NodeShared {
    fn new(config: &RedisConfig, waiters: Option<Arc<Waiters>>) -> Self {
        let initial = Error::new(ErrorKind::Unavailable, "not connected yet");
        Self {
            config: config.clone(),
            store: config.store(),
            waiters,
            state: Sender::new(LinkState::Disconnected(initial)),
            epochs: AtomicU64::new(0),
            uptime: Mutex::default(),
            // A server that was never seen has granted nothing, so it can't lose a grant.
            keeps_grants: AtomicBool::new(
                config.restart_guard.is_some_and(|guard| !guard.is_zero()),
            ),
            most_replicas: AtomicU32::new(0),
            may_subscribe: AtomicBool::new(true),
        }
    }

    /// Returns the connection. If there is none, waits for one at most for the response timeout.
    async fn connection(&self, sending: &Sending<'_>) -> RedisResult<Arc<Connection>> {
        if let Some(connection) = self.state.borrow().connection() {
            return Ok(Arc::clone(connection));
        }
        sending.commit();
        Box::pin(self.wait_for_connection()).await
    }

    async fn wait_for_connection(&self) -> RedisResult<Arc<Connection>> {
        let mut state = self.state.subscribe();
        let connected = state.wait_for(|state| state.connection().is_some());
        // The sender of the state is in `self`, so this ends with a connection or with the timeout.
        let _ = tokio::time::timeout(self.config.response_timeout, connected).await;
        match &*self.state.borrow() {
            LinkState::Connected(connection) => Ok(Arc::clone(connection)),
            LinkState::Disconnected(why) => Err(not_connected(why)),
        }
    }

    /// Refuses to grant until the server behind this connection is known to have run for the
    /// restart guard. Before that it may have lost its data. Returns whether a command that does
    /// more than grant gets the argument [`FROZEN`].
    fn check_guard(&self, connection: &Connection, role: Role<'_>) -> RedisResult<bool> {
        let guard = self.guard();
        if guard.is_zero() || matches!(role, Role::Other) {
            return Ok(false);
        }
        let now = Clock::Boot.now();
        let left = connection.uptime.as_ref().map_or(guard, |uptime| uptime.left(guard, now));
        match role {
            _ if left.is_zero() => Ok(false),
            Role::Grants | Role::Acquires(..) => Err(guarded(left)),
            Role::Renews | Role::Releases(..) => Ok(true),
            Role::Other => Ok(false),
        }
    }

    /// Prepares to send a command over this connection. An acquire has its effect within the timeout for
    /// its answer, or within this lease.
    fn in_flight<'a>(
        &self,
        connection: &Connection,
        role: Role<'a>,
        lease: Option<Duration>,
    ) -> InFlight<'a> {
        let sent = Clock::Boot.now();
        let (unanswered, deadline) = match role {
            Role::Acquires(unanswered, requests) => {
                let timeout = answer_timeout(requests, self.config.response_timeout);
                let timeout = lease.unwrap_or(timeout);
                let deadline = connection.clock.lock().deadline(sent, timeout);
                // If the clock is not known, the server refuses, and the refusal shows the clock.
                let deadline = Some(deadline.unwrap_or_default());
                let is_take = lease.is_some();
                let pending = unanswered.sending(requests, &connection.id, sent, timeout);
                (Some(pending.of_take(is_take)), deadline)
            }
            _ => (None, None),
        };
        InFlight { role, sent, deadline, unanswered }
    }

    /// Records the outcome of a command, and ends a broken connection.
    fn record_outcome(&self, connection: &Connection, error: Option<&RedisError>) {
        let late = error.is_some_and(RedisError::is_timeout);
        if !late && connection.late.load(Ordering::Relaxed) != 0 {
            connection.late.store(0, Ordering::Relaxed);
        }
        let Some(error) = error else { return };
        let many = late && connection.late.fetch_add(1, Ordering::Relaxed) + 1 >= TIMEOUTS;
        let broken = !late && (error.is_unrecoverable_error() || error.is_io_error());
        if many || broken || remedy_of(error) == Remedy::Reconnect {
            self.disconnect(connection.epoch, &error.to_string());
        }
    }

    /// Starts to use a connection.
    fn install(&self, connection: Connection) {
        let (epoch, id) = (connection.epoch, connection.id.clone());
        self.state.send_replace(LinkState::Connected(Arc::new(connection)));
        // The callback may have run before: then it has found no connection to end.
        if id.is_closed() {
            self.disconnect(epoch, "the other side has closed it");
        }
    }

    /// Ends the connection, unless another one is in use by now.
    fn disconnect(&self, epoch: u64, why: &str) {
        self.state.send_if_modified(|state| {
            let same = state.connection().filter(|connection| connection.epoch == epoch);
            let Some(connection) = same else { return false };
            tracing::debug!(target: "dlock", store = self.store, why, "connection closed by the client");
            connection.window.close();
            *state = LinkState::Disconnected(
                Error::new(ErrorKind::Unavailable, format!(
                    "the connection was lost ({why}): check the server and the network"))
                    .with_store(&self.store),
            );
            true
        });
    }
}

impl Connection {
    fn server_info(&self) -> Arc<ServerInfo> {
        Arc::clone(&self.server_info.lock())
    }
}

impl InFlight<'_> {
    /// Records that the server has answered, so no copy of the command can still arrive.
    fn answered(self, connection: &Connection, clock: Option<u64>) {
        if let Some(unanswered) = self.unanswered {
            unanswered.answered(self.sent);
        }
        if let Role::Releases(unanswered, claim) = self.role {
            unanswered.settle(claim, &connection.id, self.sent);
        }
        if let Some(micros) = clock {
            connection.clock.lock().observe(micros, self.sent, Clock::Boot.now());
        }
    }
}

impl LinkState {
    const fn connection(&self) -> Option<&Arc<Connection>> {
        match self {
            Self::Connected(connection) => Some(connection),
            Self::Disconnected(_) => None,
        }
    }
}

/// Closes the connection if a renewal is not answered, because a lease is running: the next
/// connection may lead to another address of the server. The core drops a renewal after a third of
/// the lease, which may be sooner than the response timeout.
struct UnansweredRenewal<'a> {
    shared: &'a NodeShared,
    epoch: u64,
    sent: Option<Instant>,
}

impl<'a> UnansweredRenewal<'a> {
    /// A renewal that ends sooner says nothing about the connection.
    const SOON: Duration = Duration::from_millis(100);

    fn before(shared: &'a NodeShared, connection: &Connection, kind: Kind) -> Self {
        let sent = (kind == Kind::Renewal).then(|| Clock::Boot.now());
        Self { shared, epoch: connection.epoch, sent }
    }

    fn answered(mut self) {
        self.sent = None;
    }
}

impl Drop for UnansweredRenewal<'_> {
    fn drop(&mut self) {
        if self.sent.is_some_and(|sent| Clock::Boot.now().since(sent) >= Self::SOON) {
            self.shared.disconnect(self.epoch, "a renewal was not answered in time");
        }
    }
}

/// Sends commands. For a single command the driver reports an answer that can't be read. For
/// several it reports only that the connection is lost.
async fn exchange(
    redis: &mut MultiplexedConnection,
    commands: &Pipeline,
) -> RedisResult<Vec<Value>> {
    match commands.cmd_iter().next() {
        Some(command) if commands.len() == 1 => Ok(vec![redis.send_packed_command(command).await?]),
        _ => redis.send_packed_commands(commands, 0, commands.len()).await,
    }
}

/// Returns the commands, with one more argument of the one at this index: a deadline or [`FROZEN`].
fn extended(commands: &Pipeline, at: usize, last: u64) -> Pipeline {
    let mut all = redis::pipe();
    for (index, command) in commands.cmd_iter().enumerate() {
        all.add_command(command.clone());
        if index == at {
            all.arg(last);
        }
    }
    all
}

/// Returns the first of these answers after which the client has to reconnect.
fn first_error(answers: &[Value]) -> Option<RedisError> {
    answers.iter().find_map(|answer| match answer {
        Value::ServerError(error) => Some(RedisError::from(error.clone()))
            .filter(|error| remedy_of(error) == Remedy::Reconnect),
        _ => None,
    })
}

impl Drop for NodeLink {
    fn drop(&mut self) {
        if let Some(reconnecting) = &self.reconnecting {
            reconnecting.abort();
        }
    }
}

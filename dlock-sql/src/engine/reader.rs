//! The task that reads. It polls the rows of names with waiters, and reads for `inspect`, `list`
//! and `examine`. It also sends the notifications of grants, so that no writer has to wait for
//! them.
//!
//! It has its own connection, so it never waits for a write. Without waiters it does not poll. With
//! waiters it first asks the database whether anything was written, if the database can report
//! that.

use std::{sync::Arc, time::Duration};

use dlock_core::{
    Clock, Error, Finding, Instant, LockName, LockState, StoreClocks,
    machine::{Machine, Micros},
};
use tokio::{
    select,
    sync::{mpsc, oneshot},
};

use super::{
    EngineSettings,
    conn::{Conn, Paged},
    durability::DurabilityMonitor,
    fault::{Fault, Remedy},
    list::{self, Listed, Range},
    notification::Notification,
    outcome::ClockSample,
    pace,
    retry_budget::{RetryBudget, retry},
    row::{Mark, Wanted},
    snapshots::Snapshots,
    tasks::Sleeper,
    waiters::Waiters,
    worker::Shared,
};

/// The number of reads that may queue.
const QUEUE: usize = 64;

/// The number of notifications that may queue, and that are sent together.
pub(crate) const NOTIFICATIONS: usize = 1024;
const TOGETHER: usize = 64;

/// The sleep without waiters. The next waiter ends it.
const LONGEST_SLEEP: Duration = Duration::from_secs(3600);

/// A read for a caller.
#[derive(Debug)]
pub(crate) enum ReadRequest {
    /// The state of a lock.
    Inspect(LockName, Reply<LockState>),
    /// The first names of a range.
    List(Range, Reply<Vec<Listed>>),
    /// The findings about the database.
    Examine(Reply<Vec<Finding>>),
}

/// The channel for the answer to a caller.
pub(crate) type Reply<T> = oneshot::Sender<Result<T, Error>>;

impl ReadRequest {
    pub(crate) fn channel() -> (mpsc::Sender<Self>, mpsc::Receiver<Self>) {
        mpsc::channel(QUEUE)
    }
}

#[derive(Debug)]
pub(crate) struct Reader<C> {
    conn: C,
    reads: mpsc::Receiver<ReadRequest>,
    notifications: mpsc::Receiver<Notification>,
    waiters: Arc<Waiters>,
    snapshots: Arc<Snapshots>,
    clocks: Arc<StoreClocks>,
    durability: DurabilityMonitor,
    settings: EngineSettings,
    /// When it last polled, or when the first waiter came.
    polled: Instant,
    /// The names with waiters, as of `changes`.
    names: Vec<LockName>,
    changes: u64,
    /// The version at the last successful read.
    version: Option<i64>,
    /// The shortest time until the next poll.
    rest: Duration,
    sleeper: Sleeper,
}

impl<C: Conn> Reader<C> {
    pub(crate) fn new(
        conn: C,
        reads: mpsc::Receiver<ReadRequest>,
        notifications: mpsc::Receiver<Notification>,
        shared: &Shared,
        settings: EngineSettings,
    ) -> Self {
        Self {
            conn,
            reads,
            notifications,
            waiters: shared.waiters.clone(),
            snapshots: shared.snapshots.clone(),
            clocks: shared.clocks.clone(),
            durability: shared.durability.clone(),
            settings,
            polled: Clock::Boot.now(),
            names: Vec::new(),
            changes: 0,
            version: None,
            rest: Duration::ZERO,
            sleeper: Sleeper::default(),
        }
    }

    /// Reads until the backend is dropped. Each round does all that is due, so that a stream of
    /// notifications or reads can't delay a poll for ever.
    pub(crate) async fn run(mut self) {
        let mut notifications = Vec::with_capacity(TOGETHER);
        loop {
            let now = Clock::Boot.now();
            let delay = self.waiters.delay().map(|delay| delay.max(self.rest));
            let left = match delay {
                Some(_) if self.waiters.wants_a_poll() => Duration::ZERO,
                Some(delay) => self.polled.saturating_add(delay).since(now),
                None => {
                    self.polled = now;
                    LONGEST_SLEEP
                }
            };
            if left.is_zero() {
                self.poll().await;
            }
            if let Ok(request) = self.reads.try_recv() {
                self.serve(request).await;
            }
            select! {
                biased;
                _ = self.notifications.recv_many(&mut notifications, TOGETHER), if !self.notifications.is_closed() => {
                    self.notify(&mut notifications).await;
                }
                request = self.reads.recv() => match request {
                    Some(request) => self.serve(request).await,
                    None => break,
                },
                () = self.durability.due() => self.durability.record_check(self.conn.is_durable().await),
                () = self.waiters.arrived() => {}
                () = self.sleeper.sleep(left), if !left.is_zero() => {}
                // The poll may have changed the due times, so the loop starts again at once.
                () = std::future::ready(()), if left.is_zero() => {}
            }
        }
        // The last releases of this process may have granted locks to others: send those
        // notifications before closing.
        while self.notifications.recv_many(&mut notifications, TOGETHER).await > 0 {
            self.notify(&mut notifications).await;
        }
        self.conn.close().await;
    }

    /// Sends notifications, and once more if the connection had broken. If a waiter gets one twice,
    /// it ignores the second. If it gets none, it finds the grant by polling.
    async fn notify(&mut self, notifications: &mut Vec<Notification>) {
        if notifications.is_empty() {
            return;
        }
        let mut sent = self.conn.notify(notifications).await;
        if matches!(&sent, Err(fault) if fault.remedy != Remedy::None) {
            sent = self.conn.notify(notifications).await;
        }
        if let Err(fault) = sent {
            tracing::debug!(target: "dlock", error = %fault.error, "notifying waiters failed");
        }
        notifications.clear();
    }

    async fn poll(&mut self) {
        let started = Clock::Boot.now();
        self.rest = match self.read_rows().await {
            Ok(()) => Clock::Boot.now().since(started) * self.settings.rest,
            Err(fault) => {
                // The heartbeats of waiters are writes on another connection, and their answers
                // show a grant as well.
                tracing::debug!(target: "dlock", error = %fault.error, "polling for grants failed");
                pace::LONGEST
            }
        };
        self.polled = Clock::Boot.now();
    }

    async fn read_rows(&mut self) -> Result<(), Fault> {
        // A claim that has just joined may have been granted before the last read. So it needs a
        // read even if the version is the same.
        let joined = self.waiters.names(self.changes);
        let version = self.conn.version().await?;
        if joined.is_none() && version.is_some() && version == self.version {
            return Ok(());
        }
        if let Some((changes, names)) = joined {
            (self.changes, self.names) = (changes, names);
            // If the read fails, the next poll must not skip it.
            self.version = None;
        }
        let wanted: Vec<Wanted> =
            self.names.iter().map(|name| self.snapshots.wanted(name)).collect();
        let sent = Clock::Boot.now();
        let seen = self.conn.read(&wanted).await?;
        // Stored only after the read. The version was taken before it, so a write in between leads
        // to another read. The other order could miss that write.
        self.version = version;
        let sample = ClockSample { sent, now: seen.now };
        if !self.names.is_empty() {
            self.clocks.observe(0, sample.now, sample.sent);
        }
        for (Wanted { name, known }, row) in wanted.iter().zip(seen.rows) {
            // The waiters of a row that can't be read get the error with their next heartbeat.
            let Ok(row) = row.transpose() else { continue };
            let mark = row.as_ref().map_or(Mark::default(), |row| row.mark());
            if !self.waiters.is_new(name, mark) {
                continue;
            }
            let replay = |row| self.snapshots.replay(name, &row, known.as_deref());
            let machine = match row.map(replay).transpose() {
                Ok(replayed) => replayed.map(|(replayed, _)| replayed.machine).unwrap_or_default(),
                Err(_) => continue,
            };
            self.waiters.observe(name, mark, &machine, sample);
        }
        Ok(())
    }

    async fn serve(&mut self, request: ReadRequest) {
        // The caller may have stopped waiting.
        match request {
            ReadRequest::Inspect(name, reply) => drop(reply.send(self.inspect(name).await)),
            ReadRequest::List(range, reply) => drop(reply.send(self.list(&range).await)),
            ReadRequest::Examine(reply) => drop(reply.send(self.examine().await)),
        }
    }

    async fn inspect(&mut self, name: LockName) -> Result<LockState, Error> {
        let wanted = [Wanted { name, known: None }];
        let seen = retry!(self.retry_budget(), self.conn.read(&wanted).await)?;
        let row = seen.rows.into_iter().flatten().next().transpose()?;
        let replayed = row.map(|row| row.replay()).transpose()?;
        let machine = replayed.map(|replayed| replayed.machine).unwrap_or_default();
        Ok(state(&machine, seen.now, self.settings.tick))
    }

    async fn list(&mut self, range: &Range) -> Result<Vec<Listed>, Error> {
        let rows = retry!(self.retry_budget(), self.conn.range(range, list::PAGE).await)?;
        let listed = rows.into_iter().map(|Paged { name, now, row }| {
            // A row that can't be read counts as used: `inspect` then reports the reason.
            let replayed = row.map(|row| row.replay()).and_then(Result::ok);
            let is_used = replayed.is_none_or(|replayed| !replayed.machine.is_free(now));
            Listed { name, is_used }
        });
        Ok(listed.collect())
    }

    async fn examine(&mut self) -> Result<Vec<Finding>, Error> {
        retry!(self.retry_budget(), self.conn.examine().await)
    }

    fn retry_budget(&self) -> RetryBudget {
        RetryBudget::of(self.settings.response_timeout)
    }
}

/// Returns the state for a caller: leases as they were requested, without the tick that the engine
/// adds.
fn state(machine: &Machine, now: Micros, tick: Micros) -> LockState {
    let mut state = machine.inspect(now);
    let tick = Duration::from_micros(tick);
    for claim in state.holders.iter_mut().chain(&mut state.waiters) {
        claim.remaining = claim.remaining.saturating_sub(tick);
    }
    state
}

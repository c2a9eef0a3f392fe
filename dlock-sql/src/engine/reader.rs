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
    fault::{Cure, Fault},
    kept::Kept,
    names::{self, Listed, Range},
    note::Note,
    pace,
    patience::{Patience, retry},
    row::{Mark, Wanted},
    snapshots::Snapshots,
    tasks::Napper,
    told::Sight,
    waiters::Waiters,
    worker::Shared,
};

/// The number of reads that may queue.
const QUEUE: usize = 64;

/// The number of notifications that may queue, and that are sent together.
pub(crate) const NOTES: usize = 1024;
const TOGETHER: usize = 64;

/// The sleep without waiters. The next waiter ends it.
const LONGEST_SLEEP: Duration = Duration::from_secs(3600);

/// A read for a caller.
#[derive(Debug)]
pub(crate) enum Look {
    /// The state of a lock.
    State(LockName, Reply<LockState>),
    /// The first names of a range.
    Names(Range, Reply<Vec<Listed>>),
    /// The findings about the database.
    Findings(Reply<Vec<Finding>>),
}

/// The channel for the answer to a caller.
pub(crate) type Reply<T> = oneshot::Sender<Result<T, Error>>;

impl Look {
    pub(crate) fn channel() -> (mpsc::Sender<Self>, mpsc::Receiver<Self>) {
        mpsc::channel(QUEUE)
    }
}

#[derive(Debug)]
pub(crate) struct Reader<C> {
    conn: C,
    looks: mpsc::Receiver<Look>,
    notes: mpsc::Receiver<Note>,
    waiters: Arc<Waiters>,
    snapshots: Arc<Snapshots>,
    clocks: Arc<StoreClocks>,
    kept: Kept,
    settings: EngineSettings,
    /// When it last polled, or when the first waiter came.
    looked: Instant,
    /// The names with waiters, as of `changes`.
    names: Vec<LockName>,
    changes: u64,
    /// The version at the last successful read.
    version: Option<i64>,
    /// The shortest time until the next poll.
    rest: Duration,
    napper: Napper,
}

impl<C: Conn> Reader<C> {
    pub(crate) fn new(
        conn: C,
        looks: mpsc::Receiver<Look>,
        notes: mpsc::Receiver<Note>,
        shared: &Shared,
        settings: EngineSettings,
    ) -> Self {
        Self {
            conn,
            looks,
            notes,
            waiters: shared.waiters.clone(),
            snapshots: shared.snapshots.clone(),
            clocks: shared.clocks.clone(),
            kept: shared.kept.clone(),
            settings,
            looked: Clock::Boot.now(),
            names: Vec::new(),
            changes: 0,
            version: None,
            rest: Duration::ZERO,
            napper: Napper::default(),
        }
    }

    /// Reads until the backend is dropped. Each round does all that is due, so that a stream of
    /// notifications or reads can't delay a poll for ever.
    pub(crate) async fn run(mut self) {
        let mut notes = Vec::with_capacity(TOGETHER);
        loop {
            let now = Clock::Boot.now();
            let delay = self.waiters.delay().map(|delay| delay.max(self.rest));
            let left = match delay {
                Some(_) if self.waiters.wants_a_look() => Duration::ZERO,
                Some(delay) => self.looked.saturating_add(delay).since(now),
                None => {
                    self.looked = now;
                    LONGEST_SLEEP
                }
            };
            if left.is_zero() {
                self.poll().await;
            }
            if let Ok(look) = self.looks.try_recv() {
                self.show(look).await;
            }
            select! {
                biased;
                _ = self.notes.recv_many(&mut notes, TOGETHER), if !self.notes.is_closed() => {
                    self.tell(&mut notes).await;
                }
                look = self.looks.recv() => match look {
                    Some(look) => self.show(look).await,
                    None => break,
                },
                () = self.kept.is_due() => self.kept.looked(self.conn.keeps().await),
                () = self.waiters.arrived() => {}
                () = self.napper.nap(left), if !left.is_zero() => {}
                // The poll may have changed the due times, so the loop starts again at once.
                () = std::future::ready(()), if left.is_zero() => {}
            }
        }
        // The last releases of this process may have granted locks to others: send those
        // notifications before closing.
        while self.notes.recv_many(&mut notes, TOGETHER).await > 0 {
            self.tell(&mut notes).await;
        }
        self.conn.close().await;
    }

    /// Sends notifications, and once more if the connection had broken. If a waiter gets one twice,
    /// it ignores the second. If it gets none, it finds the grant by polling.
    async fn tell(&mut self, notes: &mut Vec<Note>) {
        if notes.is_empty() {
            return;
        }
        let mut told = self.conn.tell(notes).await;
        if matches!(&told, Err(fault) if fault.cure != Cure::None) {
            told = self.conn.tell(notes).await;
        }
        if let Err(fault) = told {
            tracing::debug!(target: "dlock", error = %fault.error, "notifying waiters failed");
        }
        notes.clear();
    }

    async fn poll(&mut self) {
        let started = Clock::Boot.now();
        self.rest = match self.look_at_rows().await {
            Ok(()) => Clock::Boot.now().since(started) * self.settings.rest,
            Err(fault) => {
                // The heartbeats of waiters are writes on another connection, and their answers
                // show a grant as well.
                tracing::debug!(target: "dlock", error = %fault.error, "polling for grants failed");
                pace::LONGEST
            }
        };
        self.looked = Clock::Boot.now();
    }

    async fn look_at_rows(&mut self) -> Result<(), Fault> {
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
        let sight = Sight { sent, now: seen.now };
        if !self.names.is_empty() {
            self.clocks.observe(0, sight.now, sight.sent);
        }
        for (Wanted { name, known }, row) in wanted.iter().zip(seen.rows) {
            // The waiters of a row that can't be read get the error with their next heartbeat.
            let Ok(row) = row.transpose() else { continue };
            let mark = row.as_ref().map_or(Mark::default(), |row| row.mark());
            if !self.waiters.is_news(name, mark) {
                continue;
            }
            let replay = |row| self.snapshots.replay(name, &row, known.as_deref());
            let machine = match row.map(replay).transpose() {
                Ok(replayed) => replayed.map(|(replayed, _)| replayed.machine).unwrap_or_default(),
                Err(_) => continue,
            };
            self.waiters.observe(name, mark, &machine, sight);
        }
        Ok(())
    }

    async fn show(&mut self, look: Look) {
        // The caller may have stopped waiting.
        match look {
            Look::State(name, reply) => drop(reply.send(self.state(name).await)),
            Look::Names(range, reply) => drop(reply.send(self.names(&range).await)),
            Look::Findings(reply) => drop(reply.send(self.findings().await)),
        }
    }

    async fn state(&mut self, name: LockName) -> Result<LockState, Error> {
        let wanted = [Wanted { name, known: None }];
        let seen = retry!(self.patience(), self.conn.read(&wanted).await)?;
        let row = seen.rows.into_iter().flatten().next().transpose()?;
        let replayed = row.map(|row| row.replay()).transpose()?;
        let machine = replayed.map(|replayed| replayed.machine).unwrap_or_default();
        Ok(state(&machine, seen.now, self.settings.tick))
    }

    async fn names(&mut self, range: &Range) -> Result<Vec<Listed>, Error> {
        let rows = retry!(self.patience(), self.conn.range(range, names::PAGE).await)?;
        let listed = rows.into_iter().map(|Paged { name, now, row }| {
            // A row that can't be read counts as used: `inspect` then reports the reason.
            let replayed = row.map(|row| row.replay()).and_then(Result::ok);
            let is_used = replayed.is_none_or(|replayed| !replayed.machine.is_free(now));
            Listed { name, is_used }
        });
        Ok(listed.collect())
    }

    async fn findings(&mut self) -> Result<Vec<Finding>, Error> {
        retry!(self.patience(), self.conn.examine().await)
    }

    fn patience(&self) -> Patience {
        Patience::of(self.settings.patience)
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

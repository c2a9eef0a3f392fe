//! The task that reads: it looks at the rows that somebody here waits for, and for onlookers. It
//! also sends the notes of grants, so that no writer has to wait for that.
//!
//! It has a connection of its own, so it never waits behind a write. While nobody waits it does
//! not look at all; while somebody does, it first asks the database whether anything was written.

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

/// How many onlookers may queue.
const QUEUE: usize = 64;

/// How many notes may queue, and how many are sent together.
pub(crate) const NOTES: usize = 1024;
const TOGETHER: usize = 64;

/// While nobody waits, the next waiter ends the sleep.
const LONGEST_SLEEP: Duration = Duration::from_secs(3600);

/// Somebody wants to see something.
#[derive(Debug)]
pub(crate) enum Look {
    /// A lock.
    State(LockName, Reply<LockState>),
    /// The first names of a range.
    Names(Range, Reply<Vec<Listed>>),
    /// How the database is set up.
    Findings(Reply<Vec<Finding>>),
}

/// Where the answer to a caller goes.
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
    /// When it last looked, or began to have somebody to look for.
    looked: Instant,
    /// The names that are waited for, as of `changes`.
    names: Vec<LockName>,
    changes: u64,
    version: Option<i64>,
    /// At least so long until the next look.
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

    /// Reads until the backend is dropped. Nothing that is due waits for what keeps coming.
    pub(crate) async fn run(mut self) {
        let mut notes = Vec::with_capacity(TOGETHER);
        if self.settings.home != 0 {
            // The first note should not have to wait for a connection.
            let _ = self.conn.read(&[]).await;
        }
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
                // The look may have changed what is due.
                () = std::future::ready(()), if left.is_zero() => {}
            }
        }
        // Who is granted something by the last releases of this process waits for that news.
        while self.notes.recv_many(&mut notes, TOGETHER).await > 0 {
            self.tell(&mut notes).await;
        }
        self.conn.close().await;
    }

    /// Sends notes, again if the connection had broken since the last ones: who gets one twice does
    /// not mind, and who does not get his looks for himself.
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
                // The waiters renew their places by writing, and so learn of a grant all the same.
                tracing::debug!(target: "dlock", error = %fault.error, "polling for grants failed");
                pace::LONGEST
            }
        };
        self.looked = Clock::Boot.now();
    }

    async fn look_at_rows(&mut self) -> Result<(), Fault> {
        // Who has joined may have been granted before the version that was read last.
        let joined = self.waiters.names(self.changes);
        let version = self.conn.version().await?;
        if joined.is_none() && version.is_some() && version == self.version {
            return Ok(());
        }
        if let Some((changes, names)) = joined {
            (self.changes, self.names) = (changes, names);
            // Should the read fail, the next one must not be left out.
            self.version = None;
        }
        let wanted: Vec<Wanted> =
            self.names.iter().map(|name| self.snapshots.wanted(name)).collect();
        let sent = Clock::Boot.now();
        let seen = self.conn.read(&wanted).await?;
        // Only now: had the read failed, it must be done again.
        self.version = version;
        let sight = Sight { sent, now: seen.now };
        if !self.names.is_empty() {
            self.clocks.observe(0, sight.now, sight.sent);
        }
        for (Wanted { name, known }, row) in wanted.iter().zip(seen.rows) {
            // The waiters of one that can't be read find it out when they renew their places.
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
        // The onlooker may have gone.
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
            // A look at one that can't be read says why.
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

/// What an onlooker sees: leases as they were asked for, without the tick that the store adds.
fn state(machine: &Machine, now: Micros, tick: Micros) -> LockState {
    let mut state = machine.inspect(now);
    let tick = Duration::from_micros(tick);
    for claim in state.holders.iter_mut().chain(&mut state.waiters) {
        claim.remaining = claim.remaining.saturating_sub(tick);
    }
    state
}

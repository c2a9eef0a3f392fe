//! A task that writes: it owns a connection, and turns the jobs that wait into statements.
//!
//! While a statement runs, jobs gather; those on distinct names go together into the next one.
//! So the busier it is, the more locks a statement serves, and a quiet lock pays for nothing.

use std::{collections::VecDeque, sync::Arc};

use dlock_core::{
    Clock, Error, ErrorKind, Instant, LockName, Queue,
    machine::{Granted, Op, Outcome, text::op_text},
};
use tokio::{select, sync::mpsc};

use super::{
    Settings, batch,
    cache::Cache,
    conn::Conn,
    job::Job,
    note::Note,
    patience::Patience,
    row::{Row, Write},
    sweep::Sweep,
    told::{Sight, Told},
    waiters::Waiters,
    watch::Watch,
};

/// How many names are remembered.
const NAMES: usize = 8192;

/// How many jobs are looked through for those that can go together.
const IN_SIGHT: usize = 256;

#[derive(Debug)]
pub(crate) struct Worker<C> {
    conn: C,
    jobs: mpsc::Receiver<Job>,
    waiting: VecDeque<Job>,
    cache: Cache,
    waiters: Arc<Waiters>,
    watch: Arc<Watch>,
    notes: mpsc::Sender<Note>,
    settings: Settings,
}

/// What a statement returned, and when it was sent.
struct Applied {
    rows: Vec<Row>,
    sent: Instant,
    in_doubt: bool,
}

impl<C: Conn> Worker<C> {
    pub(crate) fn new(
        conn: C,
        jobs: mpsc::Receiver<Job>,
        waiters: Arc<Waiters>,
        watch: Arc<Watch>,
        notes: mpsc::Sender<Note>,
        settings: Settings,
    ) -> Self {
        let cache = Cache::new(NAMES);
        Self { conn, jobs, waiting: VecDeque::new(), cache, waiters, watch, notes, settings }
    }

    /// Works until the last caller's end of the queue is dropped and all jobs are done, and gives
    /// the connection back. Only one of an engine's workers `sweeps`.
    pub(crate) async fn run(mut self, sweeps: bool) -> C {
        let mut sweep = Sweep::new(self.settings.retention);
        loop {
            let batch = self.next_batch();
            if !batch.is_empty() {
                self.serve(batch).await;
                if sweeps && sweep.is_due() {
                    self.tidy(&mut sweep).await;
                }
                continue;
            }
            select! {
                () = sweep.due(), if sweeps => self.tidy(&mut sweep).await,
                job = self.jobs.recv() => match job {
                    Some(job) => self.waiting.push_back(job),
                    None => break,
                },
            }
        }
        self.conn
    }

    async fn tidy(&mut self, sweep: &mut Sweep) {
        for name in sweep.step(&mut self.conn).await {
            self.cache.forget(&name);
        }
    }

    /// The jobs that have come, as many as can go next.
    fn next_batch(&mut self) -> Vec<Job> {
        while self.waiting.len() < IN_SIGHT
            && let Ok(job) = self.jobs.try_recv()
        {
            self.waiting.push_back(job);
        }
        batch::take(&mut self.waiting)
    }

    async fn serve(&mut self, mut batch: Vec<Job>) {
        self.refuse_busy(&mut batch).await;
        if batch.is_empty() {
            return;
        }
        // By name, so that several writers can't deadlock in a database that locks rows.
        let mut order: Vec<(usize, usize)> = (0..batch.len())
            .flat_map(|job| (0..batch[job].asks.len()).map(move |ask| (job, ask)))
            .collect();
        order.sort_by(|a, b| batch[a.0].asks[a.1].name.cmp(&batch[b.0].asks[b.1].name));

        let now = Clock::Boot.now();
        let writes: Vec<Write> = order
            .iter()
            .map(|&(job, ask)| {
                let ask = &batch[job].asks[ask];
                let fold = self.cache.fold(&ask.name);
                Write { name: ask.name.clone(), op: op_text(&ask.op), fold }
            })
            .collect();
        // The time of the last to come: who has waited for long gets a few tries more.
        let asked = batch.iter().map(|job| job.asked).max().unwrap_or(now);
        let until = asked.saturating_add(self.settings.patience);
        match self.apply(&writes, until).await {
            Ok(applied) => {
                for (&(job, ask), row) in order.iter().zip(&applied.rows) {
                    let ask = &mut batch[job].asks[ask];
                    ask.told = Some(self.learn(&ask.name, &ask.op, row, &applied));
                }
                batch.into_iter().for_each(Job::finish);
            }
            Err(error) => {
                for job in batch {
                    // Whoever gives a claim up waits for it no more, written or not.
                    for ask in &job.asks {
                        if let Op::Release { claim, .. } = ask.op {
                            self.waiters.withdraw(&ask.name, claim);
                        }
                    }
                    job.fail(error.clone());
                }
            }
        }
    }

    async fn apply(&mut self, writes: &[Write], until: Instant) -> Result<Applied, Error> {
        let mut patience = Patience::until(until);
        loop {
            let sent = Clock::Boot.now();
            match self.conn.apply(writes).await {
                Ok(rows) => return Ok(Applied { rows, sent, in_doubt: patience.in_doubt() }),
                Err(fault) => patience.after(fault).await?,
            }
        }
    }

    /// Takes out what a row that ends with `op` tells, to the one who asked and to those who wait.
    fn learn(
        &mut self,
        name: &LockName,
        op: &Op,
        row: &Row,
        applied: &Applied,
    ) -> Result<Told, Error> {
        let replayed = row.replay()?;
        let sight = Sight { sent: applied.sent, now: replayed.now };
        let outcome = replayed.outcome.ok_or_else(|| {
            Error::new(ErrorKind::Protocol, "the store returned a row without the operation")
        })?;
        self.cache.learn(name, row, &replayed);
        let claim = op.claim();
        if claim.is_some() && !applied.in_doubt {
            // No other sending has written the very same text, so this is the time of this one.
            self.watch.observe(sight);
        }
        match (claim, outcome) {
            (Some(claim), Outcome::Queued { .. }) => self.waiters.register(name, claim, sight),
            (Some(claim), _) => self.waiters.withdraw(name, claim),
            (None, _) => {}
        }
        let others = |granted: &&Granted| granted.home != 0 && Some(granted.claim) != claim;
        for &granted in replayed.grants.iter().filter(others) {
            let note = Note::new(name, granted, &replayed.machine);
            if granted.home == self.settings.home {
                // The answer that it waits may still be on its way, on another connection.
                self.waiters.told(&note);
            } else {
                // With too many to tell of, some are left to find it out by themselves.
                let _ = self.notes.try_send(note);
            }
        }
        self.waiters.observe(name, row.mark(), &replayed.machine, sight);
        let last = replayed.machine.last_token();
        Ok(Told { outcome, sight, last, in_doubt: applied.in_doubt })
    }

    /// Refuses the tries for locks that were held when last seen and, by a read, still are, so
    /// that a busy try writes nothing.
    async fn refuse_busy(&mut self, batch: &mut Vec<Job>) {
        let doubtful = |cache: &Cache, job: &Job| match &*job.asks {
            [ask] => is_try(&ask.op) && cache.is_held(&ask.name),
            _ => false,
        };
        let (tries, others): (Vec<Job>, Vec<Job>) =
            batch.drain(..).partition(|job| doubtful(&self.cache, job));
        *batch = others;
        if tries.is_empty() {
            return;
        }
        let names: Vec<LockName> = tries.iter().map(|job| job.asks[0].name.clone()).collect();
        let sent = Clock::Boot.now();
        // What a read can't answer, the write will.
        let Ok(seen) = self.conn.read(&names).await else { return batch.extend(tries) };
        for (mut job, row) in tries.into_iter().zip(seen.rows) {
            let ask = &mut job.asks[0];
            let mut machine = match row.map(|row| row.replay()) {
                Some(Ok(replayed)) => replayed.machine,
                _ => {
                    batch.push(job);
                    continue;
                }
            };
            let outcome = machine.apply(&ask.op, seen.now, &mut Vec::new());
            if matches!(outcome, Outcome::Busy | Outcome::Conflict { .. }) {
                let sight = Sight { sent, now: seen.now };
                let last = machine.last_token();
                ask.told = Some(Ok(Told { outcome, sight, last, in_doubt: false }));
                job.finish();
            } else {
                batch.push(job);
            }
        }
    }
}

fn is_try(op: &Op) -> bool {
    matches!(op, Op::Acquire { queue: Queue::FailIfBusy, .. })
}

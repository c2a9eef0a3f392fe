//! A task that writes. It owns a connection, and turns waiting jobs into statements.
//!
//! While a statement runs, jobs gather. They go into the next statement together, and those on one
//! name keep their order. So a busy worker serves more jobs with each statement, and an uncontended
//! lock does not wait for others.
//!
//! One pass: take a batch ([`next_batch`](Worker::next_batch)), write it
//! ([`serve`](Worker::serve)), replay the rows that the statement returned
//! ([`learn`](Worker::learn)), answer the callers, and pass grants of other claims to their
//! waiters. The row is the truth: a worker that dies after the statement loses only answers and
//! notifications, and the waiters find their grants by polling.

mod busy;
mod ops;
mod serve;

use std::{borrow::Cow, collections::VecDeque, future::poll_fn, sync::Arc, task::Poll};

use dlock_core::{
    Certainty, Clock, Error, ErrorKind, Instant, LockName, StoreClocks,
    machine::{Granted, Micros, Op, Outcome, text::ops_text},
};
use tokio::{select, sync::mpsc};

use self::ops::{asked_for, has_deadline, is_wait, join};
use super::{
    EngineSettings,
    aside::Aside,
    batch,
    cache::{Cache, SeenRow},
    conn::Conn,
    doubts::Doubts,
    fault::Fault,
    job::{Job, PendingOp},
    kept::Kept,
    lanes::{Ends, Message},
    note::Note,
    part::{self, Unit},
    row::{Row, Write},
    snapshots::Snapshots,
    sweep::Sweep,
    told::{Sight, Told},
    waiters::Waiters,
};

/// The largest number of jobs among which a batch is chosen.
const IN_SIGHT: usize = 256;

#[derive(Debug)]
pub(crate) struct Worker<C> {
    conn: C,
    jobs: Ends<Job>,
    /// The jobs that have arrived: renewals and releases, and the others.
    urgent: VecDeque<Job>,
    waiting: VecDeque<Job>,
    /// When the last statement succeeded.
    heard: Instant,
    aside: Aside,
    cache: Cache,
    shared: Shared,
    settings: EngineSettings,
    /// The number of timeouts in a row. Each doubles the time for the next answer.
    slow: u32,
}

/// The state that the tasks of an engine share.
#[derive(Clone, Debug)]
pub(crate) struct Shared {
    pub(crate) waiters: Arc<Waiters>,
    pub(crate) snapshots: Arc<Snapshots>,
    pub(crate) clocks: Arc<StoreClocks>,
    pub(crate) doubts: Arc<Doubts>,
    pub(crate) notes: mpsc::Sender<Note>,
    pub(crate) kept: Kept,
}

impl Shared {
    pub(crate) fn new(
        waiters: Arc<Waiters>,
        clocks: Arc<StoreClocks>,
        notes: mpsc::Sender<Note>,
        kept: Kept,
    ) -> Self {
        Self { waiters, snapshots: Arc::default(), clocks, doubts: Arc::default(), notes, kept }
    }
}

/// The result of a statement, and when it was sent.
struct Applied {
    rows: Vec<Result<Row, Error>>,
    sent: Instant,
    deadline: Option<Micros>,
    in_doubt: bool,
}

/// Lets other ready tasks run. Unlike tokio's `yield_now`, it does not make the runtime check
/// sockets and timers first.
async fn after_the_ready() {
    let mut waited = false;
    poll_fn(|cx| {
        if waited {
            return Poll::Ready(());
        }
        waited = true;
        cx.waker().wake_by_ref();
        Poll::Pending
    })
    .await;
}

impl<C: Conn> Worker<C> {
    pub(crate) fn new(conn: C, jobs: Ends<Job>, shared: Shared, settings: EngineSettings) -> Self {
        let (aside, cache, heard) = (Aside::new(), Cache::new(), Instant::from_nanos(0));
        let (urgent, waiting) = (VecDeque::new(), VecDeque::new());
        Self { conn, jobs, urgent, waiting, heard, aside, cache, shared, settings, slow: 0 }
    }

    /// Works until the last sender of the queue is dropped and all jobs are done. Returns the
    /// connection. Only one of an engine's workers `sweeps`.
    pub(crate) async fn run(mut self, sweeps: bool) -> C {
        let mut sweep = Sweep::new(self.settings.retention);
        let (mut is_asked, mut used) = (true, None);
        loop {
            let due = self.aside.due_in();
            if due.is_some_and(|due| due.is_zero()) {
                self.look_aside().await;
            }
            let batch = self.next_batch();
            if !batch.is_empty() {
                if sweeps && used.is_none() {
                    used = batch[0].asks.first().map(|ask| ask.name.clone());
                }
                self.serve(batch).await;
                self.shared.kept.used();
                if sweeps && sweep.is_due() {
                    self.tidy(&mut sweep, used.as_ref()).await;
                }
                continue;
            }
            if !is_asked && self.aside.is_empty() {
                break;
            }
            let due = self.aside.due_in();
            select! {
                () = sweep.due(), if sweeps => self.tidy(&mut sweep, used.as_ref()).await,
                () = tokio::time::sleep(due.unwrap_or_default()), if due.is_some() => {}
                job = self.jobs.recv(), if is_asked => match job {
                    Some(job) => {
                        self.admit(job);
                        // Other ready tasks may add jobs to the same statement: after a release,
                        // for example, the next task of this process.
                        after_the_ready().await;
                    }
                    None => is_asked = false,
                },
            }
        }
        self.conn
    }

    async fn tidy(&mut self, sweep: &mut Sweep, used: Option<&LockName>) {
        for name in sweep.step(&mut self.conn, used).await {
            self.cache.forget(&name);
        }
    }

    /// Returns the jobs for the next statement.
    fn next_batch(&mut self) -> Vec<Job> {
        while let Some(job) = self.jobs.try_urgent() {
            self.admit(job);
        }
        while self.waiting.len() < IN_SIGHT
            && let Some(job) = self.jobs.try_other()
        {
            self.admit(job);
        }
        let most = batch::fitting(self.conn.most_bytes());
        batch::take([&mut self.urgent, &mut self.waiting], most)
    }

    /// Accepts a job. While the database answered others, the job waited for this worker and not
    /// for the database. So that time does not count against its retry budget.
    fn admit(&mut self, mut job: Job) {
        job.asked = job.asked.max(self.heard);
        match job.is_urgent() {
            true => self.urgent.push_back(job),
            false => self.waiting.push_back(job),
        }
    }

    /// Writes all of them, and records the answer of each. Returns true if one of the locks is free
    /// for a waiter. With `hurries` the claims only join their queue, and a crash may lose that.
    async fn write(
        &mut self,
        batch: &mut [Job],
        part: &[Unit],
        hurries: bool,
        in_doubt: bool,
    ) -> Result<bool, Fault> {
        // In the order of names, so that several writers can't deadlock in a database that locks
        // rows.
        let mut order: Vec<(usize, usize)> = part::places(part).collect();
        order.sort_by(|a, b| batch[a.0].asks[a.1].name.cmp(&batch[b.0].asks[b.1].name));
        let same = |a: &(usize, usize), b: &(usize, usize)| {
            batch[a.0].asks[a.1].name == batch[b.0].asks[b.1].name
        };
        let of_names: Vec<&[(usize, usize)]> = order.chunk_by(same).collect();

        let asks = || part::places(part).map(|(job, ask)| &batch[job].asks[ask]);
        let patience = part::patience(asks(), self.settings.patience);
        // Each sending has its own deadline. Before the clock is known it is 0: then the statement
        // does nothing, and its answer shows the clock.
        let deadline =
            C::CAN_BE_LATE.then(|| self.shared.clocks.deadline(0, patience).unwrap_or(0));
        let writes: Vec<Write> = of_names
            .iter()
            .map(|places| {
                let name = batch[places[0].0].asks[places[0].1].name.clone();
                let ops = places.iter().map(|&(job, ask)| &batch[job].asks[ask].op);
                let ops: Vec<Cow<'_, Op>> = ops.map(|op| self.as_sent(op, hurries)).collect();
                let by = deadline.filter(|_| ops.iter().any(|op| has_deadline(op)));
                let ops = ops.iter().map(AsRef::as_ref);
                let op = ops_text(by, ops);
                let fold = self.cache.fold(&name);
                let known = self.shared.snapshots.known(&name);
                Write { name, op, fold, known, hurries }
            })
            .collect();
        let sent = Clock::Boot.now();
        // Without an answer the statement may still arrive, up to its deadline. Releases of these
        // claims then bar them in the row, so that the late statement can't bring them back.
        let rows = self.conn.apply(&writes).await.inspect_err(|fault| {
            if let Some(deadline) = deadline
                && fault.error.certainty() == Certainty::Unknown
            {
                let claims = asks().filter_map(|ask| asked_for(&ask.op));
                self.shared.doubts.unanswered(claims, deadline, self.settings.patience);
            }
        })?;
        let applied = Applied { rows, sent, deadline, in_doubt };
        let (mut owes, mut late) = (false, false);
        for ((places, write), row) in of_names.iter().zip(&writes).zip(&applied.rows) {
            let ops = places.iter().map(|&(job, ask)| &batch[job].asks[ask].op);
            let learned = self.learn(write, ops, row, &applied);
            owes |= learned.as_ref().is_ok_and(|(_, owes)| *owes);
            for (at, &(job, ask)) in places.iter().enumerate() {
                let told = learned.as_ref().map(|(told, _)| told[at]).map_err(Error::clone);
                let is_late = told.as_ref().is_ok_and(|told| told.outcome == Outcome::Late);
                batch[job].asks[ask].told = (!is_late).then_some(told);
                late |= is_late;
            }
        }
        self.bar_refused(batch, part);
        // The answer has shown the clock, so the next sending has the right deadline.
        if late { Err(Fault::too_late()) } else { Ok(owes) }
    }

    /// Returns an operation in the form in which it is sent now.
    fn as_sent<'a>(&self, op: &'a Op, hurries: bool) -> Cow<'a, Op> {
        match *op {
            Op::Release { claim, used, .. } => {
                Cow::Owned(Op::Release { claim, used, bar: self.shared.doubts.bar(claim) })
            }
            _ if hurries => Cow::Owned(join(op)),
            _ => Cow::Borrowed(op),
        }
    }

    /// Returns whether all of these wait for one lock that was held a moment ago. Then none of them
    /// has to wait for the disk: a crash may lose places in a queue, but no grant.
    fn only_joins(&self, batch: &[Job], part: &[Unit], now: Instant) -> bool {
        let mut asks = part::places(part).map(|(job, ask)| &batch[job].asks[ask]);
        let Some(first) = asks.next() else { return false };
        let joins = |ask: &PendingOp| ask.name == first.name && is_wait(&ask.op);
        joins(first) && asks.all(joins) && self.cache.was_just_held(&first.name, now)
    }

    /// Replays a row whose log ends with `ops`. Returns the answer to each operation, and whether
    /// the lock is free for a waiter. Grants of other claims go to their waiters.
    fn learn<'a>(
        &mut self,
        write: &Write,
        ops: impl ExactSizeIterator<Item = &'a Op> + Clone,
        row: &Result<Row, Error>,
        applied: &Applied,
    ) -> Result<(Vec<Told>, bool), Error> {
        let row = row.as_ref().map_err(Error::clone)?;
        let Shared { waiters, snapshots, clocks, doubts, notes, .. } = &self.shared;
        let name = &write.name;
        let (replayed, snap) = snapshots.replay(name, row, write.known.as_deref())?;
        let sight = Sight { sent: applied.sent, now: replayed.now };
        if replayed.outcomes.len() != ops.len() {
            return Err(Error::new(
                ErrorKind::Protocol,
                "the store returned a row without the operation: check that no other program \
                 writes to dlock's tables",
            ));
        }
        let seen = SeenRow { row, replayed: &replayed, snap, at: applied.sent };
        self.cache.learn(name, ops.clone(), write.op.len(), seen);
        let is_first = !applied.in_doubt && ops.clone().any(|op| op.claim().is_some());
        if is_first || applied.deadline.is_some() && ops.clone().any(has_deadline) {
            // Only this sending has written this text, so the time behind it is the time of this
            // statement. After a retry it may be the time of the earlier sending.
            clocks.observe(0, sight.now, sight.sent);
        }
        for (op, outcome) in ops.clone().zip(&replayed.outcomes) {
            if let Op::Release { claim, .. } = *op {
                doubts.settled(claim);
            }
            match (op.claim(), outcome) {
                (_, Outcome::Late) => {}
                (Some(claim), Outcome::Queued { .. }) => waiters.register(name, claim, sight),
                (Some(claim), _) => waiters.withdraw(name, claim),
                (None, _) => {}
            }
        }
        let is_answered = |claim| {
            let mut told = ops.clone().zip(&replayed.outcomes);
            told.any(|(op, told)| {
                let open = matches!(told, Outcome::Queued { .. } | Outcome::Late);
                op.claim() == Some(claim) && !open
            })
        };
        let others = |granted: &&Granted| granted.home != 0 && !is_answered(granted.claim);
        for &granted in replayed.grants.iter().filter(others) {
            let note = Note::new(name, granted, &replayed.machine);
            if granted.home == self.settings.home {
                // The grant may arrive before the answer that the claim is queued, which may come
                // on another connection. `told` keeps it until then.
                waiters.told(&note);
            } else {
                // If the queue of notifications is full, this one is dropped. The waiter finds the
                // grant by polling.
                let _ = notes.try_send(note);
            }
        }
        waiters.observe(name, row.mark(), &replayed.machine, sight);
        let last = replayed.machine.last_token();
        let told = |&outcome| Told { outcome, sight, last, in_doubt: applied.in_doubt };
        let owes = replayed.machine.owes_a_grant();
        Ok((replayed.outcomes.iter().map(told).collect(), owes))
    }
}

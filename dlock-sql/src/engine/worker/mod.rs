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
mod serve;

use std::{
    borrow::Cow,
    collections::VecDeque,
    future::poll_fn,
    sync::{Arc, OnceLock},
    task::Poll,
};

use dlock_core::{
    Certainty, Clock, Error, ErrorKind, Instant, LockName, StoreClocks,
    machine::{Granted, Micros, Op, Outcome, text::ops_text},
};
use tokio::{select, sync::mpsc};

use super::{
    EngineSettings, batch,
    cache::{Cache, SeenRow},
    conn::Conn,
    durability::DurabilityMonitor,
    fault::Fault,
    job::{Job, PendingOp, has_deadline, is_wait, join, new_claim},
    lanes::{Ends, Message},
    locked_rows::LockedRows,
    notification::Notification,
    outcome::{ClockSample, OpOutcome},
    part::{self, Unit},
    row::{Row, Write},
    snapshots::Snapshots,
    sweep::Sweep,
    unanswered::Unanswered,
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
    last_success: Instant,
    locked_rows: LockedRows,
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
    pub(crate) unanswered: Arc<Unanswered>,
    pub(crate) notifications: mpsc::Sender<Notification>,
    pub(crate) durability: DurabilityMonitor,
    /// The number of the worker that sweeps: the first that has written, or whose first page was
    /// due. A process may use one name only, whose worker may be any.
    sweeper: Arc<OnceLock<usize>>,
}

impl Shared {
    pub(crate) fn new(
        waiters: Arc<Waiters>,
        clocks: Arc<StoreClocks>,
        notifications: mpsc::Sender<Notification>,
        durability: DurabilityMonitor,
    ) -> Self {
        Self {
            waiters,
            snapshots: Arc::default(),
            clocks,
            unanswered: Arc::default(),
            notifications,
            durability,
            sweeper: Arc::default(),
        }
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
        let (locked_rows, cache, last_success) =
            (LockedRows::new(), Cache::new(), Instant::from_nanos(0));
        let (urgent, waiting) = (VecDeque::new(), VecDeque::new());
        Self {
            conn,
            jobs,
            urgent,
            waiting,
            last_success,
            locked_rows,
            cache,
            shared,
            settings,
            slow: 0,
        }
    }

    /// Works until the last sender of the queue is dropped and all jobs are done. Returns the
    /// connection. One of the workers with a `number` sweeps.
    pub(crate) async fn run(mut self, number: Option<usize>) -> C {
        let mut sweep = Sweep::new(self.settings.retention);
        let (mut is_open, mut used) = (true, None);
        loop {
            let due = self.locked_rows.due_in();
            if due.is_some_and(|due| due.is_zero()) {
                self.check_locked_rows().await;
            }
            let batch = self.next_batch();
            if !batch.is_empty() {
                if number.is_some() && used.is_none() {
                    used = batch[0].ops.first().map(|pending| pending.name.clone());
                }
                self.serve(batch).await;
                self.shared.durability.used();
                if self.sweeps(number) && sweep.is_due() {
                    self.tidy(&mut sweep, used.as_ref()).await;
                }
                continue;
            }
            if !is_open && self.locked_rows.is_empty() {
                break;
            }
            let due = self.locked_rows.due_in();
            select! {
                () = sweep.due(), if self.may_sweep(number) => if self.sweeps(number) {
                    self.tidy(&mut sweep, used.as_ref()).await;
                },
                () = tokio::time::sleep(due.unwrap_or_default()), if due.is_some() => {}
                job = self.jobs.recv(), if is_open => match job {
                    Some(job) => {
                        self.admit(job);
                        // Other ready tasks may add jobs to the same statement: after a release,
                        // for example, the next task of this process.
                        after_the_ready().await;
                    }
                    None => is_open = false,
                },
            }
        }
        self.conn
    }

    /// Returns whether no other worker sweeps.
    fn may_sweep(&self, number: Option<usize>) -> bool {
        let sweeper = self.shared.sweeper.get().copied();
        number.is_some() && (sweeper.is_none() || sweeper == number)
    }

    /// Makes this worker the one that sweeps, if there is none yet. Returns whether it is the one.
    fn sweeps(&self, number: Option<usize>) -> bool {
        number.is_some_and(|own| *self.shared.sweeper.get_or_init(|| own) == own)
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
        loop {
            let batch = batch::take([&mut self.urgent, &mut self.waiting], most);
            // The callers of a whole batch may have given up just now.
            if !batch.is_empty() || self.urgent.is_empty() && self.waiting.is_empty() {
                return batch;
            }
        }
    }

    /// Accepts a job. While the database answered others, the job waited for this worker and not
    /// for the database. So that time does not count against its retry budget.
    fn admit(&mut self, mut job: Job) {
        job.since = job.since.max(self.last_success);
        match job.is_urgent() {
            true => self.urgent.push_back(job),
            false => self.waiting.push_back(job),
        }
    }

    /// Writes all of them, and records the answer of each. Returns true if one of the locks is free
    /// for a waiter. With `skips_sync` the claims only join their queue, and a crash may lose that.
    async fn write(
        &mut self,
        batch: &mut [Job],
        part: &[Unit],
        skips_sync: bool,
        in_doubt: bool,
    ) -> Result<bool, Fault> {
        // In the order of names, so that several writers can't deadlock in a database that locks
        // rows.
        let mut order: Vec<(usize, usize)> = part::positions(part).collect();
        order.sort_by(|a, b| batch[a.0].ops[a.1].name.cmp(&batch[b.0].ops[b.1].name));
        let same = |a: &(usize, usize), b: &(usize, usize)| {
            batch[a.0].ops[a.1].name == batch[b.0].ops[b.1].name
        };
        let of_names: Vec<&[(usize, usize)]> = order.chunk_by(same).collect();

        let pending_ops = || part::positions(part).map(|(job, op)| &batch[job].ops[op]);
        let useful = part::useful_time(pending_ops(), self.settings.response_timeout);
        // Each sending has its own deadline. Before the clock is known it is 0: then the statement
        // does nothing, and its answer shows the clock.
        let deadline = C::CAN_BE_LATE.then(|| self.shared.clocks.deadline(0, useful).unwrap_or(0));
        let writes: Vec<Write> = of_names
            .iter()
            .map(|positions| {
                let name = batch[positions[0].0].ops[positions[0].1].name.clone();
                let ops = positions.iter().map(|&(job, op)| &batch[job].ops[op].op);
                let ops: Vec<Cow<'_, Op>> = ops.map(|op| self.as_sent(op, skips_sync)).collect();
                let by = deadline.filter(|_| ops.iter().any(|op| has_deadline(op)));
                let ops = ops.iter().map(AsRef::as_ref);
                let op = ops_text(by, ops);
                let fold = self.cache.fold(&name);
                let known = self.shared.snapshots.known(&name);
                Write { name, op, fold, known, skips_sync }
            })
            .collect();
        let sent = Clock::Boot.now();
        // Without an answer the statement may still arrive, up to its deadline. Releases of these
        // claims then bar them in the row, so that the late statement can't bring them back.
        let rows = self.conn.apply(&writes).await.inspect_err(|fault| {
            if let Some(deadline) = deadline
                && fault.error.certainty() == Certainty::Unknown
            {
                let claims = pending_ops().filter_map(|pending| new_claim(&pending.op));
                self.shared.unanswered.add(claims, deadline, self.settings.response_timeout);
            }
        })?;
        let applied = Applied { rows, sent, deadline, in_doubt };
        let (mut is_grant_due, mut late) = (false, false);
        for ((positions, write), row) in of_names.iter().zip(&writes).zip(&applied.rows) {
            let ops = positions.iter().map(|&(job, op)| &batch[job].ops[op].op);
            let learned = self.learn(write, ops, row, &applied);
            is_grant_due |= learned.as_ref().is_ok_and(|(_, is_grant_due)| *is_grant_due);
            for (at, &(job, op)) in positions.iter().enumerate() {
                let result =
                    learned.as_ref().map(|(outcomes, _)| outcomes[at]).map_err(Error::clone);
                let is_late = result.as_ref().is_ok_and(|answer| answer.outcome == Outcome::Late);
                batch[job].ops[op].result = (!is_late).then_some(result);
                late |= is_late;
            }
        }
        self.bar_refused(batch, part);
        // The answer has shown the clock, so the next sending has the right deadline.
        if late { Err(Fault::too_late()) } else { Ok(is_grant_due) }
    }

    /// Returns an operation in the form in which it is sent now.
    fn as_sent<'a>(&self, op: &'a Op, skips_sync: bool) -> Cow<'a, Op> {
        match *op {
            Op::Release { claim, used, .. } => Cow::Owned(Op::Release {
                claim,
                used,
                bar: self.shared.unanswered.barred_until(claim),
            }),
            _ if skips_sync => Cow::Owned(join(op)),
            _ => Cow::Borrowed(op),
        }
    }

    /// Returns whether all of these wait for one lock that was held a moment ago. Then none of them
    /// has to wait for the disk: a crash may lose places in the queue, but no grant.
    fn only_joins(&self, batch: &[Job], part: &[Unit], now: Instant) -> bool {
        let mut ops = part::positions(part).map(|(job, op)| &batch[job].ops[op]);
        let Some(first) = ops.next() else { return false };
        let joins = |pending: &PendingOp| pending.name == first.name && is_wait(&pending.op);
        joins(first) && ops.all(joins) && self.cache.was_just_held(&first.name, now)
    }

    /// Replays a row whose log ends with `ops`. Returns the answer to each operation, and whether
    /// the lock is free for a waiter. Grants of other claims go to their waiters.
    fn learn<'a>(
        &mut self,
        write: &Write,
        ops: impl ExactSizeIterator<Item = &'a Op> + Clone,
        row: &Result<Row, Error>,
        applied: &Applied,
    ) -> Result<(Vec<OpOutcome>, bool), Error> {
        let row = row.as_ref().map_err(Error::clone)?;
        let Shared { waiters, snapshots, clocks, unanswered, notifications, .. } = &self.shared;
        let name = &write.name;
        let (replayed, snap) = snapshots.replay(name, row, write.known.as_deref())?;
        let sample = ClockSample { sent: applied.sent, now: replayed.now };
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
            clocks.observe(0, sample.now, sample.sent);
        }
        for (op, outcome) in ops.clone().zip(&replayed.outcomes) {
            if let Op::Release { claim, .. } = *op {
                unanswered.remove(claim);
            }
            match (op.claim(), outcome) {
                (_, Outcome::Late) => {}
                (Some(claim), Outcome::Queued { .. }) => waiters.register(name, claim, sample),
                (Some(claim), _) => waiters.remove(name, claim),
                (None, _) => {}
            }
        }
        let is_answered = |claim| {
            let mut outcomes = ops.clone().zip(&replayed.outcomes);
            outcomes.any(|(op, outcome)| {
                let open = matches!(outcome, Outcome::Queued { .. } | Outcome::Late);
                op.claim() == Some(claim) && !open
            })
        };
        let others = |granted: &&Granted| granted.home != 0 && !is_answered(granted.claim);
        for &granted in replayed.grants.iter().filter(others) {
            let notification = Notification::new(name, granted, &replayed.machine);
            if granted.home == self.settings.home {
                // The grant may arrive before the answer that the claim is queued, which may come
                // on another connection. `notify` keeps it until then.
                waiters.notify(&notification);
            } else {
                // If the queue of notifications is full, this one is dropped. The waiter finds the
                // grant by polling.
                let _ = notifications.try_send(notification);
            }
        }
        waiters.observe(name, row.mark(), &replayed.machine, sample);
        let last = replayed.machine.last_token();
        let of = |&outcome| OpOutcome { outcome, sample, last, in_doubt: applied.in_doubt };
        let is_grant_due = replayed.machine.owes_a_grant();
        Ok((replayed.outcomes.iter().map(of).collect(), is_grant_due))
    }
}

//! The jobs that callers send to the workers: operations that must reach the database together.
//!
//! A caller has only the receiving end of a oneshot, so it may stop waiting at any time. The worker
//! then skips the job if it has not begun, except for a release. The core stops waiting for an
//! acquire only until the worker has begun it ([`Job::begin`]), and needs no release then.

use std::{
    hash::{BuildHasher, BuildHasherDefault, DefaultHasher},
    sync::Arc,
    time::Duration,
};

use dlock_core::{
    Certainty, ClaimId, Clock, ConfigIssue, Error, ErrorKind, Instant, LockName, Mode, Queue,
    SendFlag, machine::Op,
};
use tokio::{
    select,
    sync::{mpsc, oneshot},
};

use super::{
    lanes::{Ends, Lanes, Message, lanes},
    outcome::OpOutcome,
};

/// An operation, and its answer once there is one.
#[derive(Debug)]
pub(crate) struct PendingOp {
    pub(crate) name: LockName,
    pub(crate) op: Op,
    /// For a renewal, the time for which the caller waits for the answer.
    pub(crate) answer_within: Option<Duration>,
    pub(crate) result: Option<Result<OpOutcome, Error>>,
}

impl PendingOp {
    pub(crate) fn new(name: LockName, op: Op) -> Self {
        Self { name, op, answer_within: None, result: None }
    }
}

/// The answer to each of a job's operations, in order.
pub(crate) type Answers = Vec<Result<OpOutcome, Error>>;

/// Operations on distinct names.
#[derive(Debug)]
pub(crate) struct Job {
    pub(crate) ops: Vec<PendingOp>,
    /// Whether they take effect together or not at all.
    pub(crate) together: bool,
    /// The later of two times: when it was sent, and the last answer of the database before its
    /// turn.
    pub(crate) since: Instant,
    /// Whether an earlier sending may have taken effect.
    pub(crate) in_doubt: bool,
    /// For an acquire that its caller may give up before it begins.
    flag: Option<SendFlag>,
    /// `None` after the answer.
    reply: Option<oneshot::Sender<Answers>>,
}

impl Job {
    pub(crate) fn new(ops: Vec<PendingOp>, together: bool) -> (Self, oneshot::Receiver<Answers>) {
        let (reply, answer) = oneshot::channel();
        // Its retry budget starts here. The worker may move that start: see `admit`.
        let since = Clock::Boot.now();
        (Self { ops, together, since, in_doubt: false, flag: None, reply: Some(reply) }, answer)
    }

    /// Returns true if the worker may apply it, and records that. Returns false if its caller has
    /// just given it up.
    pub(crate) fn begin(&self) -> bool {
        self.flag.as_ref().is_none_or(SendFlag::begin)
    }

    /// Returns whether no caller needs it any more. A release is always needed.
    pub(crate) fn is_moot(&self) -> bool {
        self.reply.as_ref().is_none_or(oneshot::Sender::is_closed)
            && !self.ops.iter().any(|pending| matches!(pending.op, Op::Release { .. }))
    }

    /// Returns whether all of its operations have their answers.
    pub(crate) fn is_done(&self) -> bool {
        self.ops.iter().all(|pending| pending.result.is_some())
    }

    /// Moves its contents out, and leaves an empty job without operations or a caller.
    pub(crate) fn take(&mut self) -> Self {
        Self {
            ops: std::mem::take(&mut self.ops),
            flag: self.flag.take(),
            reply: self.reply.take(),
            ..*self
        }
    }

    /// Sends the answers, once.
    pub(crate) fn finish(&mut self) {
        let Some(reply) = self.reply.take() else { return };
        let result = |pending: PendingOp| {
            pending.result.unwrap_or_else(|| Err(unanswered(Certainty::Unknown)))
        };
        // The caller may have stopped waiting.
        let _ = reply.send(std::mem::take(&mut self.ops).into_iter().map(result).collect());
    }

    /// Answers that the whole job failed.
    pub(crate) fn fail(&mut self, error: &Error) {
        for pending in &mut self.ops {
            // Overwrites earlier answers: the operations of one job succeed or fail together.
            pending.result = Some(Err(error.clone()));
        }
        self.finish();
    }
}

impl Message for Job {
    fn is_urgent(&self) -> bool {
        // Only renewals of held claims are jobs that are not `together`.
        !self.together || self.ops.iter().all(|pending| matches!(pending.op, Op::Release { .. }))
    }
}

/// The callers' ends of the workers' queues.
#[derive(Clone, Debug)]
pub(crate) struct Jobs {
    writers: Arc<[Lanes<Job>]>,
    /// The queue of the worker for renewals, if there is one.
    renewer: Option<Lanes<Job>>,
}

impl Jobs {
    /// Creates the queues and their receiving ends. The end of the worker for renewals is the last.
    pub(crate) fn channels(writers: usize, renewer: bool) -> (Self, Vec<Ends<Job>>) {
        let (senders, mut receivers): (Vec<_>, Vec<_>) = (0..writers).map(|_| lanes()).unzip();
        let renewer = renewer.then(|| {
            let (sender, receiver) = lanes();
            receivers.push(receiver);
            sender
        });
        (Self { writers: senders.into(), renewer }, receivers)
    }

    /// Applies these operations together. If the future is dropped, they may be applied or not.
    pub(crate) async fn send(&self, ops: Vec<PendingOp>) -> Result<Vec<OpOutcome>, Error> {
        let queue = self.queue_of(&ops);
        self.send_to(queue, ops, true, None).await?.into_iter().collect()
    }

    /// Applies these acquires together. If the future is dropped before they have begun, they are
    /// not applied.
    pub(crate) async fn acquire(
        &self,
        ops: Vec<PendingOp>,
        flag: SendFlag,
    ) -> Result<Vec<OpOutcome>, Error> {
        let queue = self.queue_of(&ops);
        self.send_to(queue, ops, true, Some(flag)).await?.into_iter().collect()
    }

    /// Applies these renewals separately: the failure of one does not affect the others.
    ///
    /// # Errors
    /// An error if the worker has ended.
    pub(crate) async fn renew(&self, ops: Vec<PendingOp>) -> Result<Answers, Error> {
        let queue = self.renewer.as_ref().unwrap_or_else(|| self.queue_of(&ops));
        self.send_to(queue, ops, false, None).await
    }

    async fn send_to(
        &self,
        queue: &Lanes<Job>,
        ops: Vec<PendingOp>,
        together: bool,
        flag: Option<SendFlag>,
    ) -> Result<Answers, Error> {
        if ops.is_empty() {
            return Ok(Vec::new());
        }
        let (mut job, answer) = Job::new(ops, together);
        job.flag = flag;
        let lane = queue.of(&job);
        lane.send(job).await.map_err(|_| gone())?;
        answer_of(answer, lane).await.ok_or_else(|| unanswered(Certainty::Unknown))
    }

    fn queue_of(&self, ops: &[PendingOp]) -> &Lanes<Job> {
        &self.writers[ops.first().map_or(0, |pending| self.writer_of(&pending.name))]
    }

    /// Returns the index of the worker for a name. The hash has no random state, so that a name
    /// always has the same worker: with two, an operation could overtake another on the same name.
    fn writer_of(&self, name: &LockName) -> usize {
        let hash = BuildHasherDefault::<DefaultHasher>::default().hash_one(name);
        let many = u64::try_from(self.writers.len()).unwrap_or(1).max(1);
        usize::try_from(hash % many).unwrap_or(0)
    }

    /// Applies one operation.
    pub(crate) async fn send_one(&self, name: LockName, op: Op) -> Result<OpOutcome, Error> {
        first(&self.send(vec![PendingOp::new(name, op)]).await?)
    }
}

/// Returns the outcome of a single operation.
pub(crate) fn first(outcomes: &[OpOutcome]) -> Result<OpOutcome, Error> {
    outcomes.first().copied().ok_or_else(|| unanswered(Certainty::Unknown))
}

/// Waits for the answer of the task at the other end of `queue`. Returns `None` if that task has
/// ended.
///
/// A message that is sent at the moment when the queue's receiver is dropped stays in the queue,
/// and its end of the oneshot stays alive until the last sender is dropped. So a wait for only the
/// answer could last for ever.
pub(crate) async fn answer_of<T, M>(
    mut answer: oneshot::Receiver<T>,
    queue: &mpsc::Sender<M>,
) -> Option<T> {
    select! {
        biased;
        answered = &mut answer => answered.ok(),
        // Once more, since the answer may have come between the two.
        () = queue.closed() => answer.try_recv().ok(),
    }
}

/// Returns the error for the case that the task that would answer has ended.
pub(crate) fn gone() -> Error {
    Error::config(
        ConfigIssue::Runtime,
        "the tokio runtime of this backend has ended: open the backend on the runtime that uses \
         it, and keep that alive",
    )
}

fn unanswered(certainty: Certainty) -> Error {
    Error::new(ErrorKind::Unavailable, "the worker ended before it answered: try again")
        .with_certainty(certainty)
}

/// Returns the same claim as a join, which only joins the queue and grants nothing.
pub(crate) fn join(op: &Op) -> Op {
    match op.clone() {
        Op::Acquire { claim, mode, lease, block, home, note, .. } => {
            Op::Join { claim, mode, lease, block, home, note }
        }
        // Only claims that wait skip the sync, so this is never another operation.
        op => op,
    }
}

/// Returns whether an operation has a deadline. A release has none: it takes nothing, so it may
/// arrive at any time.
pub(crate) const fn has_deadline(op: &Op) -> bool {
    !matches!(op, Op::Release { .. })
}

/// Returns the claim that an operation would add to the row.
pub(crate) const fn new_claim(op: &Op) -> Option<ClaimId> {
    match *op {
        Op::Acquire { claim, .. } | Op::Join { claim, .. } => Some(claim),
        _ => None,
    }
}

/// Returns whether an operation waits for an exclusive claim. A reader may be granted while the
/// lock is held, so it is not one.
pub(crate) fn is_wait(op: &Op) -> bool {
    matches!(op, Op::Acquire { mode: Mode::Exclusive, queue: Queue::Enqueue, .. })
}

pub(crate) fn is_try(op: &Op) -> bool {
    matches!(op, Op::Acquire { queue: Queue::FailIfBusy, .. })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_message_without_a_receiver_is_not_awaited() {
        let (queue, receiver) = mpsc::channel::<oneshot::Sender<u8>>(1);
        let permit = queue.clone().reserve_owned().await.unwrap();
        let (reply, answer) = oneshot::channel();
        // Reserved before the receiver is dropped, and sent after: no task will receive it.
        drop(receiver);
        permit.send(reply);
        assert_eq!(answer_of(answer, &queue).await, None);
    }

    #[tokio::test]
    async fn an_answer_sent_before_the_task_ended_counts() {
        let (queue, receiver) = mpsc::channel::<()>(1);
        let (reply, answer) = oneshot::channel();
        reply.send(7).unwrap();
        drop(receiver);
        assert_eq!(answer_of(answer, &queue).await, Some(7));
    }
}

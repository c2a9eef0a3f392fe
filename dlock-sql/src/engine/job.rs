//! What callers hand to the workers: operations that must reach the database together.
//!
//! A caller holds nothing but the other end of a oneshot, so it may go away at any time.

use std::{
    hash::{BuildHasher, BuildHasherDefault, DefaultHasher},
    sync::Arc,
};

use dlock_core::{Certainty, Clock, ConfigIssue, Error, ErrorKind, Instant, LockName, machine::Op};
use tokio::{
    select,
    sync::{mpsc, oneshot},
};

use super::told::Told;

/// How many jobs may wait for a worker before callers wait with them.
const QUEUE: usize = 1024;

/// An operation and, once the database has spoken, its answer.
#[derive(Debug)]
pub(crate) struct Ask {
    pub(crate) name: LockName,
    pub(crate) op: Op,
    pub(crate) told: Option<Result<Told, Error>>,
}

impl Ask {
    pub(crate) fn new(name: LockName, op: Op) -> Self {
        Self { name, op, told: None }
    }
}

/// Operations on distinct names that take effect together or not at all.
#[derive(Debug)]
pub(crate) struct Job {
    pub(crate) asks: Vec<Ask>,
    /// When it was handed over.
    pub(crate) asked: Instant,
    reply: oneshot::Sender<Result<Vec<Told>, Error>>,
}

impl Job {
    pub(crate) fn new(asks: Vec<Ask>) -> (Self, oneshot::Receiver<Result<Vec<Told>, Error>>) {
        let (reply, answer) = oneshot::channel();
        (Self { asks, asked: Clock::Boot.now(), reply }, answer)
    }

    /// Whether nobody needs it done any more. A release is always needed.
    pub(crate) fn is_moot(&self) -> bool {
        self.reply.is_closed() && !self.asks.iter().any(|ask| matches!(ask.op, Op::Release { .. }))
    }

    /// Answers with what each of the asks was told.
    pub(crate) fn finish(self) {
        let answer = self
            .asks
            .into_iter()
            .map(|ask| ask.told.unwrap_or_else(|| Err(unanswered(Certainty::Unknown))))
            .collect();
        // The caller may have gone; that is its right.
        let _ = self.reply.send(answer);
    }

    /// Answers that it failed as a whole.
    pub(crate) fn fail(self, error: Error) {
        let _ = self.reply.send(Err(error));
    }
}

/// The callers' ends of the workers' queues.
#[derive(Clone, Debug)]
pub(crate) struct Jobs {
    writers: Arc<[mpsc::Sender<Job>]>,
    /// The one for renewals, if there is one for them alone.
    keeper: Option<mpsc::Sender<Job>>,
}

impl Jobs {
    /// Queues for so many workers, and their ends of them; that of the keeper is the last.
    pub(crate) fn channels(writers: usize, keeper: bool) -> (Self, Vec<mpsc::Receiver<Job>>) {
        let (senders, mut receivers): (Vec<_>, Vec<_>) =
            (0..writers).map(|_| mpsc::channel(QUEUE)).unzip();
        let keeper = keeper.then(|| {
            let (sender, receiver) = mpsc::channel(QUEUE);
            receivers.push(receiver);
            sender
        });
        (Self { writers: senders.into(), keeper }, receivers)
    }

    /// Has these operations done together. Dropped, they may be done or not.
    pub(crate) async fn ask(&self, asks: Vec<Ask>) -> Result<Vec<Told>, Error> {
        let home = asks.first().map_or(0, |ask| self.home(&ask.name));
        self.ask_at(&self.writers[home], asks).await
    }

    /// Has these renewals done together.
    pub(crate) async fn keep(&self, asks: Vec<Ask>) -> Result<Vec<Told>, Error> {
        match &self.keeper {
            Some(keeper) => self.ask_at(keeper, asks).await,
            None => self.ask(asks).await,
        }
    }

    async fn ask_at(&self, queue: &mpsc::Sender<Job>, asks: Vec<Ask>) -> Result<Vec<Told>, Error> {
        let (job, answer) = Job::new(asks);
        queue.send(job).await.map_err(|_| gone())?;
        answer_of(answer, queue).await.unwrap_or_else(|| Err(unanswered(Certainty::Unknown)))
    }

    /// Which of the workers has the jobs of a name.
    fn home(&self, name: &LockName) -> usize {
        let hash = BuildHasherDefault::<DefaultHasher>::default().hash_one(name);
        let many = u64::try_from(self.writers.len()).unwrap_or(1).max(1);
        usize::try_from(hash % many).unwrap_or(0)
    }

    /// Has one operation done.
    pub(crate) async fn ask_one(&self, name: LockName, op: Op) -> Result<Told, Error> {
        let told = self.ask(vec![Ask::new(name, op)]).await?;
        told.first().copied().ok_or_else(|| unanswered(Certainty::Unknown))
    }
}

/// What the task at the other end of `queue` answers; `None` when it has ended.
///
/// A message that is sent at the moment when the queue's receiver is dropped stays in the queue,
/// with its end of the oneshot alive, until the last sender goes: so the answer is not waited for
/// alone.
pub(crate) async fn answer_of<T, M>(
    mut answer: oneshot::Receiver<T>,
    queue: &mpsc::Sender<M>,
) -> Option<T> {
    select! {
        biased;
        answered = &mut answer => answered.ok(),
        () = queue.closed() => answer.try_recv().ok(),
    }
}

/// The task that would have answered does not run any more.
pub(crate) fn gone() -> Error {
    Error::config(
        ConfigIssue::Runtime,
        "the tokio runtime that this backend was opened on is gone: open it on the runtime that \
         uses it, and keep that alive",
    )
}

fn unanswered(certainty: Certainty) -> Error {
    Error::new(ErrorKind::Unavailable, "the worker ended before it answered: ask again")
        .with_certainty(certainty)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_message_that_outlives_its_receiver_is_not_waited_for() {
        let (queue, receiver) = mpsc::channel::<oneshot::Sender<u8>>(1);
        let permit = queue.clone().reserve_owned().await.unwrap();
        let (reply, answer) = oneshot::channel();
        // Reserved before the receiver goes, sent after: nobody will take it out.
        drop(receiver);
        permit.send(reply);
        assert_eq!(answer_of(answer, &queue).await, None);
    }

    #[tokio::test]
    async fn an_answer_of_a_task_that_has_ended_since_counts() {
        let (queue, receiver) = mpsc::channel::<()>(1);
        let (reply, answer) = oneshot::channel();
        reply.send(7).unwrap();
        drop(receiver);
        assert_eq!(answer_of(answer, &queue).await, Some(7));
    }
}

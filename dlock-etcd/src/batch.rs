//! Operations of many locks in one transaction.
//!
//! Each write costs the servers a request, an entry of their log and a part of a commit, which is
//! most of the cost of a lock. So a process that uses many locks at once sends what it has to write
//! together: as one transaction without conditions, whose operations are deletions, and transactions
//! with conditions of their own. etcd executes each as if it had come alone.
//!
//! There is no timer. An operation is sent at once, unless some are under way already. Those that
//! arrive meanwhile wait, and the caller that gets the next lane sends them all.
//!
//! All changes of one transaction have one revision. So no two creations of one lock go together: two
//! claims with the same create revision would both be first in its queue. Operations have a *group*,
//! and those of one group do not go together: the prefix of the lock's keys, or the key for a write
//! of a key that exists.
//!
//! # Concurrency
//!
//! Each caller puts its operation into `queue`, then waits for its answer or for a lane. A caller
//! with a lane takes the front of the queue, which need not contain its own. So each operation is
//! sent, for its caller at least will do it. A lane is free only if no operation waits for one. A
//! caller that finds the queue empty only waits for its answer. A caller that is dropped takes its
//! operation with it if that was not sent; if it was sending, those that it had taken may have been
//! applied.

use dlock_core::Certainty;
use tokio::sync::oneshot::{self, error::RecvError};

use crate::{
    batch_queue::{BatchAnswer, Queued, Turn},
    client::{Failure, FailureKind, Header, Op, ResponseOp, TxnRequest},
    session::{Session, is_passing},
};

impl Session {
    /// Like [`voted`](Self::voted), for a small operation. It may be sent together with those of
    /// other groups.
    pub(crate) async fn voted_in_batch<R: Op>(
        &self,
        group: &[u8],
        request: R,
    ) -> Result<(Header, R::Response), Failure> {
        if let Ok(_lane) = self.batch_queue.lanes.try_acquire() {
            return self.voted(request).await;
        }
        let (answer, answered) = oneshot::channel();
        self.batch_queue.add(Queued { group: group.to_vec(), op: request.clone().into(), answer });
        match Box::pin(self.answered(answered)).await {
            Ok(Some(answer)) => {
                let (header, response) = answer?;
                let why = "an answer lacks a part";
                let lacks = || Failure::new(FailureKind::Protocol, Certainty::Unknown, why);
                Ok((header, R::answer(response).ok_or_else(lacks)?))
            }
            Ok(None) => self.voted(request).await,
            // The caller that sent it was dropped.
            Err(_) => {
                let why = "the request was given up";
                Err(Failure::new(FailureKind::Disconnected, Certainty::Unknown, why))
            }
        }
    }

    /// Waits for the answer to an operation. Sends the waiting operations if there is a lane before.
    async fn answered(
        &self,
        mut answered: oneshot::Receiver<BatchAnswer>,
    ) -> Result<BatchAnswer, RecvError> {
        loop {
            match self.batch_queue.turn(&mut answered).await {
                Turn::Answered(answer) => return answer,
                Turn::Send(batch, _lane) => self.send(batch).await,
            }
        }
    }

    async fn send(&self, batch: Vec<Queued>) {
        let (ops, answers): (Vec<_>, Vec<_>) =
            batch.into_iter().map(|waiting| (waiting.op, waiting.answer)).unzip();
        match self.voted(TxnRequest { success: ops, ..Default::default() }).await {
            Ok((header, answer)) => {
                // An answer without a part has an empty one here.
                let missing = std::iter::repeat_with(ResponseOp::default);
                let responses = answer.responses.into_iter().chain(missing);
                for (answer, response) in answers.into_iter().zip(responses) {
                    let _ = answer.send(Some(Ok((header, response))));
                }
            }
            Err(failure) => {
                let alone = failure.certainty() == Certainty::NotApplied && !is_passing(&failure);
                for answer in answers {
                    let _ = answer.send((!alone).then(|| Err(failure.clone())));
                }
            }
        }
    }
}

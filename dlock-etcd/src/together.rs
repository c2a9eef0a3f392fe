//! Transactions of many locks in one.
//!
//! Each write costs the servers a request, an entry of their log and a part of a commit, which is
//! most of the cost of a lock. So a process that uses many locks at once sends what it has to write
//! together: as one transaction without conditions, whose operations are transactions with conditions
//! of their own. etcd executes each as if it had come alone.
//!
//! There is no timer. A transaction is sent at once, unless some are under way already. Those that
//! come meanwhile gather, and whichever caller gets the next lane sends them all.
//!
//! All changes of one transaction have one revision. So no two transactions of one lock go together:
//! two claims with the same create revision would both be first in its queue.
//!
//! # Concurrency
//!
//! Each caller puts its transaction into `queue`, then waits for its answer or for a lane. A caller
//! with a lane takes the front of the queue, which need not contain its own. So each transaction is
//! sent, for its caller at least will do it. A caller that is dropped takes its transaction with it
//! if that was not sent; if it was sending, those that it had taken may have been applied.

use dlock_core::Certainty;
use tokio::sync::oneshot;

use crate::{
    calls::is_passing,
    client::{Failure, FailureKind, Header, TxnRequest, TxnResponse},
    gather::Gathered,
    session::Session,
};

impl Session {
    /// Like [`voted`](Self::voted), for a small transaction of the lock with this prefix. It may be
    /// sent together with those of other locks.
    pub(crate) async fn voted_together(
        &self,
        lock: &str,
        txn: TxnRequest,
    ) -> Result<(Header, TxnResponse), Failure> {
        let (answer, mut told) = oneshot::channel();
        let waiting = Gathered { lock: lock.to_owned(), txn: txn.clone(), answer };
        self.gather.add(waiting);
        let answer = loop {
            tokio::select! {
                biased;
                answer = &mut told => break answer,
                // The semaphore is never closed.
                _lane = self.gather.lanes.acquire() => {
                    let together = self.gather.take();
                    if !together.is_empty() {
                        self.send(together).await;
                    }
                }
            }
        };
        match answer {
            Ok(Some(answer)) => answer,
            Ok(None) => self.voted(txn).await,
            // The caller that sent it was dropped.
            Err(_) => {
                let why = "the request was given up";
                Err(Failure::new(FailureKind::Disconnected, Certainty::Unknown, why))
            }
        }
    }

    async fn send(&self, mut together: Vec<Gathered>) {
        let alone = if together.len() == 1 { together.pop() } else { None };
        if let Some(alone) = alone {
            let _ = alone.answer.send(Some(self.voted(alone.txn).await));
            return;
        }
        let (txns, answers): (Vec<_>, Vec<_>) =
            together.into_iter().map(|waiting| (waiting.txn, waiting.answer)).unzip();
        let success = txns.into_iter().map(Into::into).collect();
        let sent = self.voted(TxnRequest { success, ..Default::default() }).await;
        let (header, responses) = match sent {
            Ok((header, answer)) => (header, answer.responses),
            Err(failure) => {
                let alone = failure.certainty() == Certainty::NotApplied && !is_passing(&failure);
                for answer in answers {
                    let _ = answer.send((!alone).then(|| Err(failure.clone())));
                }
                return;
            }
        };
        let mut responses = responses.into_iter().map(|response| response.txn);
        for answer in answers {
            let _ = answer.send(Some(match responses.next().flatten() {
                Some(response) => Ok((header, response)),
                None => {
                    let why = "an answer lacks a part";
                    Err(Failure::new(FailureKind::Protocol, Certainty::Unknown, why))
                }
            }));
        }
    }
}

//! The task that polls for all waiting claims of a client. A poll keeps the places in the queues
//! alive, and finds grants whose messages were lost.
//!
//! If a poll or its answer is lost, the listeners get the error, and the core sends the claim
//! again. The place in the queue lasts for a lease, and a poll comes at least every third of it.

use std::sync::{Arc, Weak};

use dlock_core::AcquireRequest;
use futures_util::{StreamExt, stream::FuturesUnordered};

use crate::{
    error::{no_token, unreadable_record},
    reply::{ClaimStatus, lease_argument},
    scripts::Phase,
    store::Store,
    waiters::{QueuedGrant, Waiters, expired},
};

/// The number of claims in one poll.
pub(crate) const BATCH: usize = 100;

/// Polls until the store is dropped.
pub(crate) async fn poll_waiters(store: Weak<Store>, waiters: Arc<Waiters>) {
    let mut polls = FuturesUnordered::new();
    loop {
        tokio::select! {
            due = waiters.due() => {
                let Some(store) = store.upgrade() else { return };
                for batch in store.batches(due, |request| &request.name, BATCH) {
                    let (store, waiters) = (Arc::clone(&store), Arc::clone(&waiters));
                    polls.push(async move { poll(&store, &waiters, &batch).await });
                }
            }
            Some(()) = polls.next(), if !polls.is_empty() => {}
        }
    }
}

async fn poll(store: &Store, waiters: &Waiters, batch: &[AcquireRequest]) {
    let claims: Vec<_> =
        batch.iter().map(|r| (r.claim, &r.name, r.mode, lease_argument(r.lease, false))).collect();
    match store.renew(&claims, Phase::Waits).await {
        Ok((sent, statuses)) => {
            for (request, status) in batch.iter().zip(statuses) {
                match status {
                    ClaimStatus::Held(token) => {
                        waiters.finish(request.claim, Ok(QueuedGrant { token, since: sent }));
                    }
                    ClaimStatus::Waits(position) => {
                        waiters.queued(request.claim, sent, position);
                    }
                    ClaimStatus::NoToken => waiters.finish(request.claim, Err(no_token())),
                    ClaimStatus::Unreadable(format) => {
                        waiters.finish(request.claim, Err(unreadable_record(format)));
                    }
                    _ => waiters.finish(request.claim, Err(expired())),
                }
            }
        }
        // The core retries for as long as the caller waits.
        Err(error) => batch.iter().for_each(|r| waiters.finish(r.claim, Err(error.clone()))),
    }
}

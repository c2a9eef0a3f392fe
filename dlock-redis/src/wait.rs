//! Waiting for a grant. A client with messages has one task, which polls for all its waiting claims:
//! a poll keeps their positions in the queues, and finds grants whose messages were lost. The plain
//! form and a quorum have no messages, so there each waiter polls.
//!
//! If a poll or its answer is lost, the listeners get the error, and the core sends the claim again.
//! The position in the queue lasts for a lease, and a poll comes at least every third of it.

use std::sync::{Arc, Weak};

use dlock_core::{AcquireRequest, Clock, Error, Grant};
use futures_util::{StreamExt, stream::FuturesUnordered};

use crate::{
    error::{no_token, unreadable_record},
    renew::BATCH,
    reply::ClaimStatus,
    scripts::{Phase, Renewing},
    store::Store,
    waiters::{QueuedGrant, Waiters, expired},
};

impl Store {
    /// Waits for the grant of a claim that is in the queue.
    pub(crate) async fn granted(&self, request: &AcquireRequest) -> Result<Grant, Error> {
        let mut grant = self.waiters.listen(request).await?;
        if let Some(durable) = &self.durable {
            // Another client wrote the grant. `WAIT` covers only the writes of its own connection,
            // so this client writes as well, and waits for the replication of its own write.
            loop {
                if let Some(grant) = durable.confirm(&self.session, request).await? {
                    return Ok(grant.into_grant(request));
                }
                self.waiters.listen(request).await?;
            }
        }
        if Clock::Boot.now().since(grant.since) > request.lease / 2 {
            // The message is old because this process was stopped, or its time can't be trusted.
            // The next poll shows whether the grant is still there, and restarts its lease. This
            // happens once only: if every answer takes this long, the core decides.
            grant = self.waiters.listen(request).await?;
        }
        Ok(grant.into_grant(request))
    }
}

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
    let taken = |request: &AcquireRequest| store.contention.taken(request.claim);
    let claims: Vec<_> =
        batch.iter().map(|request| Renewing::waiting(request, taken(request))).collect();
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

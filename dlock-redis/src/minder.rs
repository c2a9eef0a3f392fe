//! The task that polls for all waiting claims of a client. A poll keeps the places in the queues
//! alive, and finds grants whose messages were lost.
//!
//! If a poll or its answer is lost, the listeners get the error, and the core sends the claim
//! again. The place in the queue lasts for a lease, and a poll comes at least every third of it.

use std::sync::{Arc, Weak};

use dlock_core::AcquireRequest;
use futures_util::{StreamExt, stream::FuturesUnordered};

use crate::{
    error::{no_token, unread},
    inbox::{Inbox, Turn, gone},
    reply::{Standing, term},
    scripts::Known,
    store::Store,
};

/// The number of claims in one poll.
pub(crate) const BATCH: usize = 100;

/// Polls until the store is dropped.
pub(crate) async fn mind(store: Weak<Store>, inbox: Arc<Inbox>) {
    let mut asking = FuturesUnordered::new();
    loop {
        tokio::select! {
            due = inbox.due() => {
                let Some(store) = store.upgrade() else { return };
                for batch in store.batches(due, |request| &request.name, BATCH) {
                    let (store, inbox) = (Arc::clone(&store), Arc::clone(&inbox));
                    asking.push(async move { ask(&store, &inbox, &batch).await });
                }
            }
            Some(()) = asking.next(), if !asking.is_empty() => {}
        }
    }
}

async fn ask(store: &Store, inbox: &Inbox, batch: &[AcquireRequest]) {
    let claims: Vec<_> =
        batch.iter().map(|r| (r.claim, &r.name, r.mode, term(r.lease, false))).collect();
    match store.keep(&claims, Known::ToWait).await {
        Ok((sent, standings)) => {
            for (request, standing) in batch.iter().zip(standings) {
                match standing {
                    Standing::Held(token) => {
                        inbox.tell(request.claim, Ok(Turn { token, since: sent }));
                    }
                    Standing::Waits(place) => {
                        inbox.placed(request.claim, sent, place);
                    }
                    Standing::Spent => inbox.tell(request.claim, Err(no_token())),
                    Standing::Unread(format) => {
                        inbox.tell(request.claim, Err(unread(format)));
                    }
                    _ => inbox.tell(request.claim, Err(gone())),
                }
            }
        }
        // The core retries for as long as the caller waits.
        Err(error) => batch.iter().for_each(|r| inbox.tell(r.claim, Err(error.clone()))),
    }
}

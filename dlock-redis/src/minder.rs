//! Asking for the claims that wait: it keeps their places alive, and finds grants whose message
//! got lost.

use std::sync::{Arc, Weak};

use dlock_core::{AcquireRequest, Format};
use futures_util::{StreamExt, stream::FuturesUnordered};

use crate::{
    error::no_token,
    inbox::{Inbox, Turn, gone},
    reply::Standing,
    scripts::Known,
    store::Store,
};

/// How many claims are asked about with one command.
pub(crate) const BATCH: usize = 100;

/// Asks for as long as the store is there.
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
    let claims: Vec<_> = batch.iter().map(|r| (r.claim, &r.name, r.mode, r.lease)).collect();
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
                        inbox.tell(request.claim, Err(Format::unknown(format)));
                    }
                    _ => inbox.tell(request.claim, Err(gone())),
                }
            }
        }
        // The core asks again, for as long as the caller has patience.
        Err(error) => batch.iter().for_each(|r| inbox.tell(r.claim, Err(error.clone()))),
    }
}

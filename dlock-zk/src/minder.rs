//! The task behind a session, and the one after it.
//!
//! It sends heartbeats while there is something to keep, ends what nobody renews, watches the
//! nodes of what is held, and opens the next session when one has ended. Claims end with their
//! session: holders are told, waiters ask anew in the next one.

use std::{
    pin::Pin,
    sync::{Arc, Weak},
    time::Duration,
};

use dlock_core::Clock;
use futures_util::{StreamExt, stream::FuturesUnordered};
use zookeeper_client::StateWatcher;

use crate::{
    own::watch,
    place::Place,
    session::{Session, background},
    store::Store,
};

/// The time between two looks at the books.
const TICK: Duration = Duration::from_millis(250);
const SHORTEST_TICK: Duration = Duration::from_millis(20);

/// Minds one session after the other, for as long as the store is used.
pub(crate) async fn run(store: Weak<Store>) {
    loop {
        let Some(session) = store.upgrade().map(|store| store.session()) else { return };
        let (weak, states) = (Arc::downgrade(&session), session.client.state_watcher());
        drop(session);
        mind(&weak, states).await;
        // One that nobody holds any more has closed itself.
        let Some(ended) = weak.upgrade() else { return };
        ended.end();
        drop(ended);
        open_next(&store).await;
    }
}

/// Opens the next session, however long it takes.
async fn open_next(store: &Weak<Store>) {
    let mut pause = Duration::from_millis(50);
    loop {
        let Some(opening) = store.upgrade().map(|store| store.open_next()) else { return };
        match opening.await {
            Ok(session) => {
                let Some(store) = store.upgrade() else { return };
                tracing::info!(store = store.name(), "a new ZooKeeper session after one has ended");
                store.replace(session);
                return;
            }
            Err(error) => {
                tracing::warn!(%error, "no ZooKeeper session, will be tried again");
                let Some(store) = store.upgrade() else { return };
                store.note(error);
            }
        }
        tokio::time::sleep(pause).await;
        pause = (pause * 2).min(Duration::from_secs(2));
    }
}

/// Something under way.
type Job = Pin<Box<dyn Future<Output = Done> + Send>>;

enum Done {
    Watch,
    Heartbeat,
}

/// Until the session has ended, or nobody holds it any more.
async fn mind(weak: &Weak<Session>, mut states: StateWatcher) {
    let mut jobs = FuturesUnordered::<Job>::new();
    let (mut beating, mut tick) = (false, TICK);
    while !states.peek_state().is_terminated() {
        tokio::select! {
            state = states.changed() => tracing::debug!(?state, "ZooKeeper session"),
            () = tokio::time::sleep(tick) => {
                let Some(session) = weak.upgrade() else { return };
                let now = Clock::Boot.now();
                let (lapsed, next) = session.lapsed(now);
                end(&session, lapsed);
                for place in session.take_fresh() {
                    if place.start_watch() {
                        let watching = watch(weak.clone(), place);
                        jobs.push(Box::pin(async move { watching.await; Done::Watch }));
                    }
                }
                let Some(next) = next else {
                    // Nothing to keep alive, so a heartbeat can wait as well.
                    let rest = session.rest();
                    drop(session);
                    if let Some(rest) = rest {
                        tokio::select! {
                            () = rest.until_stirred() => {}
                            _ = states.changed() => {}
                        }
                    }
                    continue;
                };
                if !beating && now.since(session.beat()) >= session.timeout / 6 {
                    beating = true;
                    jobs.push(Box::pin(heartbeat(session)));
                }
                tick = next.clamp(SHORTEST_TICK, TICK);
            }
            Some(done) = jobs.next(), if !jobs.is_empty() => {
                beating &= !matches!(done, Done::Heartbeat);
            }
        }
    }
}

async fn heartbeat(session: Arc<Session>) -> Done {
    if let Err(error) = session.heartbeat().await {
        tracing::debug!(%error, "a heartbeat to ZooKeeper was not answered");
        // In flight when the connection went; the next one waits for the new connection.
        tokio::time::sleep(session.timeout / 20).await;
    }
    Done::Heartbeat
}

/// Ends claims that nobody has renewed.
fn end(session: &Arc<Session>, lapsed: Vec<Arc<Place>>) {
    for place in lapsed {
        tracing::debug!(lock.name = %place.name, claim = %place.claim, "a lease has ended");
        session.lose(&place);
        let session = Arc::clone(session);
        background(async move {
            // When this fails for good the session is over, and the node with it.
            let _ = session.leave_place(&place).await;
        });
    }
}

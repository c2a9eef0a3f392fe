//! The task behind a session and its successors.
//!
//! It sends heartbeats, ends claims that are not renewed, watches the keys of held claims, moves to
//! another member when one is late, and opens the next session when one has ended. Claims end with
//! their session: holders get the event of a loss, and waiters send a new claim in the next session.

use std::{
    sync::{Arc, Weak, atomic::Ordering},
    time::Duration,
};

use dlock_core::{Clock, session::Pause};
use futures_util::FutureExt;

use crate::{
    client::LeaseRevokeRequest, link::Link, own_watch::watch_until_lost, session::Session,
    store::Store,
};

/// The time between two checks of the leases.
const TICK: Duration = Duration::from_millis(100);

/// Serves one session after the other, for as long as the store is used.
pub(crate) async fn run(store: Weak<Store>) {
    let _ended = Ended(Weak::clone(&store));
    loop {
        let Some(session) = store.upgrade().map(|store| store.sessions.current()) else { return };
        let (weak, lease) = (Arc::downgrade(&session), Arc::clone(&session.lease));
        let mut links = session.link.subscribe();
        drop(session);
        tokio::select! {
            () = end_leases(&weak) => {}
            () = send_heartbeats(&weak, &store) => {}
        }
        // A lease that may be over is revoked, so that the next holders need not wait for its end.
        let revoke = LeaseRevokeRequest { id: lease.load(Ordering::SeqCst) };
        let Some(ended) = weak.upgrade() else {
            // The store was dropped.
            let link = links.borrow_and_update().clone();
            if let Some(link) = link {
                let deadline = tokio::time::Instant::now() + Duration::from_secs(5);
                let _ = link.client.call(revoke, deadline).await;
            }
            return;
        };
        ended.end();
        drop(ended);
        open_next(&store, revoke).await;
    }
}

/// Ends the session if the runtime drops the task, since the session is not kept alive any more.
struct Ended(Weak<Store>);

impl Drop for Ended {
    fn drop(&mut self) {
        if let Some(store) = self.0.upgrade() {
            store.sessions.current().end();
        }
    }
}

/// Opens the next session, however long it takes, and revokes the lease of the last one.
async fn open_next(store: &Weak<Store>, revoke: LeaseRevokeRequest) {
    let Some(mut pause) = dials(store) else { return };
    loop {
        let Some(opening) = store.upgrade().map(|store| store.open_next()) else { return };
        let opened = opening.await;
        let Some(store) = store.upgrade() else { return };
        match opened {
            Ok(session) => {
                tracing::info!(target: "dlock", store = store.name, "new etcd session");
                let revoking = Arc::clone(&session);
                session.background(async move {
                    // It may have ended by itself, so that the answer is an error.
                    let _ = revoking.ask(revoke).await;
                });
                store.sessions.replace(session);
                return;
            }
            Err(error) => {
                tracing::warn!(target: "dlock", %error, "etcd session failed, will be retried");
                store.sessions.note(error);
            }
        }
        drop(store);
        pause.wait().await;
    }
}

/// Returns the pauses between dials. They are short enough to save a session, and no shorter, since a
/// server that is down may have many clients.
fn dials(store: &Weak<Store>) -> Option<Pause> {
    let longest = store.upgrade()?.config.session_timeout / 12;
    Some(Pause::between(Duration::from_millis(20), longest))
}

/// Ends claims that are not renewed, and begins to watch held ones, until the session has ended.
async fn end_leases(weak: &Weak<Session>) {
    loop {
        {
            let Some(session) = weak.upgrade() else { return };
            if !session.is_alive() {
                return;
            }
            let now = Clock::Boot.now();
            for claim in session.lapse(now).0 {
                tracing::debug!(target: "dlock", claim = %claim.claim(), lock.name = %claim.name(), "lease expired");
                let ending = Arc::clone(&session);
                session.background(async move {
                    // If this fails, the session has ended, and the key with it.
                    let _ = ending.clear(&claim).await;
                });
            }
            for claim in session.take_matured(now) {
                if claim.start_watch() {
                    let watch = claim.take_watch();
                    session.background(watch_until_lost(weak.clone(), claim, watch));
                }
            }
        }
        tokio::time::sleep(TICK).await;
    }
}

/// Sends heartbeats, and moves to another member if one is late or the connection breaks.
async fn send_heartbeats(weak: &Weak<Session>, store: &Weak<Store>) {
    // The pauses between dials since the last heartbeat that counted.
    let mut dialled = None;
    loop {
        let Some(session) = weak.upgrade() else { return };
        if session.is_over() {
            return;
        }
        let link = session.link.borrow().clone();
        let interval = session.heartbeat_interval();
        // Without claims, less often: the next grant may need a heartbeat first.
        let mut pause = interval * if session.has_claims() { 1 } else { 2 };
        if session.is_member_suspect.swap(false, Ordering::SeqCst) {
            pause = interval / 10;
        }
        let due = pause.saturating_sub(Clock::Boot.now().since(session.beat()));
        let well = match link {
            None => false,
            Some(link) if due.is_zero() => {
                let beat = tokio::time::timeout(interval, session.heartbeat()).await;
                if let Ok(Err(failure)) = &beat {
                    tracing::debug!(target: "dlock", %failure, member = %link.status.version, "heartbeat failed");
                }
                let well = matches!(beat, Ok(Ok(())));
                if well {
                    dialled = None;
                }
                well
            }
            Some(link) => {
                drop(session);
                tokio::select! {
                    () = link.client.closed() => false,
                    () = tokio::time::sleep(due.min(TICK)) => true,
                }
            }
        };
        if !well {
            change_member(weak, store, &mut dialled).await;
        }
    }
}

/// Connects to another member, however long it takes, until the session is over. It dials at once if
/// none was `dialled` since the last heartbeat that counted: a member may serve each new connection
/// and refuse each heartbeat.
async fn change_member(weak: &Weak<Session>, store: &Weak<Store>, dialled: &mut Option<Pause>) {
    loop {
        match dialled {
            Some(pause) => pause.wait().await,
            None => *dialled = dials(store),
        }
        let (Some(session), Some(store)) = (weak.upgrade(), store.upgrade()) else { return };
        if !session.is_alive() {
            return;
        }
        // A connection that only seems to be late stays, until another member answers.
        let link = session.link.borrow().clone();
        if link.is_some_and(|link| link.client.closed().now_or_never().is_some()) {
            session.set_link(None);
        }
        match Link::open(&store.config, Some(session.cluster), session.heartbeat_interval()).await {
            Ok(link) => {
                tracing::debug!(target: "dlock", store = store.name, "connected to another member");
                session.set_link(Some(Arc::new(link)));
                return;
            }
            Err(error) => {
                tracing::debug!(target: "dlock", %error, "no member answers, will be retried");
                store.sessions.note(error);
            }
        }
    }
}

//! The task behind a session.
//!
//! It sends heartbeats, ends claims that are not renewed, watches the keys of held claims, and moves
//! to another member when one is late.

use std::{
    sync::{Arc, Weak, atomic::Ordering},
    time::Duration,
};

use dlock_core::{Backoff, Clock, Error, StoreEventSender, session::StoreSession};
use futures_util::FutureExt;
use tokio::runtime::Handle;

use crate::{
    claim::OwnClaim, client::LeaseRevokeRequest, config::EtcdConfig, connect::Link,
    own_watch::watch_until_lost, session::Session,
};

/// The time between two checks of the leases.
const TICK: Duration = Duration::from_millis(100);

impl StoreSession for Session {
    type Claim = OwnClaim;
    type Config = EtcdConfig;
    /// Leases that may not be over, the last one first.
    type Remainder = Vec<i64>;

    async fn open(
        config: &EtcdConfig,
        events: StoreEventSender,
        runtime: Handle,
        remainder: Option<&Vec<i64>>,
    ) -> Result<Arc<Self>, Error> {
        let opened = Self::connect(config, events, runtime).await;
        let Some(leases) = remainder.cloned() else { return opened };
        let session = opened.inspect_err(|error| {
            tracing::warn!(target: "dlock", %error, "etcd session failed, will be retried");
        })?;
        tracing::info!(target: "dlock", store = config.store(), "new etcd session");
        session.revoke(leases);
        Ok(session)
    }

    async fn serve(self: Arc<Self>) -> Vec<i64> {
        let (weak, lease) = (Arc::downgrade(&self), Arc::clone(&self.lease));
        let earlier = Arc::clone(&self.earlier_leases);
        let mut links = self.link.subscribe();
        drop(self);
        tokio::select! {
            () = end_leases(&weak) => {}
            () = send_heartbeats(&weak) => {}
        }
        let mut leases = vec![lease.load(Ordering::SeqCst)];
        leases.extend(earlier.lock().iter().rev());
        let link = links.borrow_and_update().clone();
        if weak.strong_count() == 0
            && let Some(link) = link
        {
            // The store was dropped, and there is no next session.
            let deadline = tokio::time::Instant::now() + Duration::from_secs(5);
            for id in &leases {
                let _ = link.client.call(LeaseRevokeRequest { id: *id }, deadline).await;
            }
        }
        leases
    }

    fn check_beat(&self) {
        self.is_alive();
    }
}

/// Returns the pauses between dials. They are short enough to save a session, and no shorter, since a
/// server that is down may have many clients.
fn dials(session: &Session) -> Backoff {
    Backoff::between(Duration::from_millis(20), session.config.session_timeout / 12)
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
async fn send_heartbeats(weak: &Weak<Session>) {
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
            change_member(weak, &mut dialled).await;
        }
    }
}

/// Connects to another member, however long it takes, until the session is over. It dials at once if
/// none was `dialled` since the last heartbeat that counted: a member may serve each new connection
/// and refuse each heartbeat.
async fn change_member(weak: &Weak<Session>, dialled: &mut Option<Backoff>) {
    loop {
        if let Some(pause) = dialled {
            pause.wait().await;
        }
        let Some(session) = weak.upgrade() else { return };
        dialled.get_or_insert_with(|| dials(&session));
        if !session.is_alive() {
            return;
        }
        // A connection that only seems to be late stays, until another member answers.
        let link = session.link.borrow().clone();
        if link.is_some_and(|link| link.client.closed().now_or_never().is_some()) {
            session.set_link(None);
        }
        let interval = session.heartbeat_interval();
        match Link::open(&session.config, Some(session.cluster), interval).await {
            Ok(link) => {
                tracing::debug!(target: "dlock", store = session.config.store(), "connected to another member");
                session.set_link(Some(Arc::new(link)));
                return;
            }
            Err(error) => {
                tracing::debug!(target: "dlock", %error, "no member answers, will be retried");
                session.set_error(error);
            }
        }
    }
}

//! The task that connects to a server, and reconnects.
//!
//! The order of a connect: query the sentinels, connect, read the server information, check it,
//! subscribe, install the connection, poll all waiting claims. The subscription comes before the
//! connection can be used, so that no acquire is sent whose message would be lost. The poll comes last,
//! since messages that were sent during the outage are lost.
//!
//! After a failover, the connection to the old master lives as long as a request on it waits. The old
//! master may still grant, and its clock may differ. So a message counts only over the connection in
//! use, and what the waiters know from an earlier one is forgotten before the next one is installed.

use std::{
    sync::{
        Arc,
        atomic::{AtomicU32, Ordering},
    },
    time::Duration,
};

use dlock_core::{Backoff, Clock, Error};
use parking_lot::Mutex;
use redis::PushInfo;
use tokio::time::{Instant, timeout};

use super::{
    super::open::receive, Connection, ConnectionId, LinkState, NodeShared, Sentinels, Topology,
    Window, open,
};

/// The interval at which the sentinels are asked for the master. Also the least time that a
/// connection has to last before the next attempt comes without a pause.
const WATCH: Duration = Duration::from_secs(1);
/// The pauses between further attempts.
const SHORTEST: Duration = Duration::from_millis(10);
const LONGEST: Duration = Duration::from_millis(1280);

impl NodeShared {
    /// Finds the server, connects, checks it, and subscribes.
    pub(super) async fn connect(
        self: &Arc<Self>,
        sentinels: &mut Sentinels,
    ) -> Result<Connection, Error> {
        let address = sentinels.master(&self.config).await?;
        // Relaxed: only the uniqueness of the number matters.
        let epoch = self.epochs.fetch_add(1, Ordering::Relaxed);
        let refused = |error| open::refused(error, &self.store);
        let named = |error: Error| error.during("connect").with_store(&self.store);
        let id = ConnectionId::default();
        let (weak, closed) = (Arc::downgrade(self), id.clone());
        let push = move |info| {
            if let Some(shared) = weak.upgrade() {
                shared.receive(epoch, &closed, info);
            }
        };
        let opening = open::connection(&self.config, &address, &self.config.login, push);
        let mut redis = opening.await.map_err(refused)?;
        let mark = self.mark_key();
        let server_info = open::server_info(&mut redis, mark.as_deref(), self.skipped())
            .await
            .map_err(refused)?;
        let uptime = self.uptime_of(&server_info);
        server_info.check(self.config.topology == Topology::Cluster, &self.store).map_err(named)?;
        open::check_ready(&server_info).map_err(named)?;
        server_info.check_guard(self.guard()).map_err(named)?;
        self.keeps_grants.store(server_info.keeps_grants(self.guard()), Ordering::Relaxed);
        self.most_replicas.fetch_max(server_info.replicas, Ordering::Relaxed);
        if let Some(waiters) = &self.waiters {
            let subscribed = match redis.subscribe(&*waiters.channel()).await {
                Ok(()) => true,
                Err(error) if error.is_io_error() => return Err(refused(error)),
                Err(error) => {
                    tracing::warn!(
                        target: "dlock",
                        %error, store = self.store,
                        "pub/sub not permitted, falling back to polling: allow +subscribe and \
                         &dlock:*"
                    );
                    false
                }
            };
            self.may_subscribe.store(subscribed, Ordering::Relaxed);
        }
        let clock = Mutex::new(server_info.clock());
        let (server_info, late) = (Mutex::new(Arc::new(server_info)), AtomicU32::new(0));
        let window = Window::new();
        Ok(Connection { redis, epoch, address, server_info, uptime, late, window, id, clock })
    }

    /// Passes a message of this connection to the waiters, if the connection is in use, and ends the
    /// connection if it is lost.
    fn receive(&self, epoch: u64, id: &ConnectionId, info: PushInfo) {
        let is_lost = {
            // Locked until the waiters have the message: see `node`.
            let state = self.state.borrow();
            let is_installed = state.connection().is_some_and(|used| used.epoch == epoch);
            let waiters = self.waiters.as_deref().filter(|_| is_installed);
            receive(info, waiters, Clock::Boot.now())
        };
        if is_lost {
            // In this order: see `node`.
            id.close();
            self.disconnect(epoch, "the other side has closed it");
        }
    }
}

/// Reconnects whenever the connection is lost.
pub(super) async fn run(shared: Arc<NodeShared>, mut sentinels: Sentinels) {
    let mut backoff: Option<Backoff> = None;
    loop {
        let since = Instant::now();
        tokio::select! {
            () = until_disconnected(&shared, &mut sentinels) => {}
            () = shared.monitor() => {}
        }
        match &mut backoff {
            Some(backoff) if since.elapsed() < WATCH => backoff.wait().await,
            _ => backoff = Some(Backoff::between(SHORTEST, LONGEST)),
        }
        match shared.connect(&mut sentinels).await {
            Ok(connection) => {
                if let Some(waiters) = &shared.waiters {
                    waiters.forget_answers(|_| true);
                }
                shared.install(connection);
                if let Some(waiters) = &shared.waiters {
                    waiters.reconnected();
                }
            }
            Err(error) => {
                tracing::debug!(target: "dlock", %error, "connection failed, will be retried");
                shared.state.send_replace(LinkState::Disconnected(error));
            }
        }
    }
}

/// Waits until the connection is lost. Disconnects if the sentinels report another master than
/// the connected one.
async fn until_disconnected(shared: &NodeShared, sentinels: &mut Sentinels) {
    let mut state = shared.state.subscribe();
    let mut disconnected = std::pin::pin!(state.wait_for(|state| state.connection().is_none()));
    if !matches!(shared.config.topology, Topology::Sentinel(_)) {
        // The sender of the state is in `shared`, so the wait can't fail.
        let _ = disconnected.await;
        return;
    }
    while timeout(WATCH, &mut disconnected).await.is_err() {
        let Some(behind) = shared.state.borrow().connection().cloned() else { return };
        if let Ok(master) = sentinels.master(&shared.config).await
            && master != behind.address
        {
            shared.disconnect(behind.epoch, "the sentinels name another master");
        }
    }
}

#[cfg(test)]
mod tests {
    use dlock_core::{AcquireRequest, LockName, Mode};
    use redis::{PushKind, Value};

    use super::*;
    use crate::{config::RedisConfig, reply::QueuePosition, waiters::Waiters};

    #[test]
    fn a_message_over_a_replaced_connection_is_ignored() {
        let config = RedisConfig::from_url("redis://localhost").unwrap();
        let waiters = Arc::new(Waiters::new());
        let shared = NodeShared::new(&config, Some(Arc::clone(&waiters)));
        let name = LockName::new("a").unwrap();
        let request = AcquireRequest::new(name, Mode::Exclusive, Duration::from_secs(60));
        let position = QueuePosition { first: true, next_end: Duration::MAX, at: 1_000 };
        waiters.expect(&request);
        waiters.queued(request.claim, Clock::Boot.now(), position);
        let text = |text: &str| Value::BulkString(text.as_bytes().to_vec());
        let data = vec![text("channel"), text(&format!("{} 7 1000", request.claim))];
        let message = PushInfo { kind: PushKind::Message, data };
        // No connection is installed, so none has this number.
        shared.receive(0, &ConnectionId::default(), message.clone());
        assert_eq!(waiters.take(request.claim), None);
        // The same message counts over the connection in use.
        receive(message, shared.waiters.as_deref(), Clock::Boot.now());
        assert!(waiters.take(request.claim).is_some());
    }
}

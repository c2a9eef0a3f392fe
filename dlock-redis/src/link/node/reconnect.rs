//! The task that connects to a server, and reconnects.
//!
//! The order of a connect: query the sentinels, connect, read the server information, check it,
//! subscribe, install the connection, poll all waiting claims. The subscription comes before the
//! connection can be used, so that no acquire is sent whose message would be lost. The poll comes last,
//! since messages that were sent during the outage are lost.

use std::{
    sync::{
        Arc,
        atomic::{AtomicU32, Ordering},
    },
    time::Duration,
};

use dlock_core::{Backoff, Clock, Error};
use parking_lot::Mutex;
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
            let Some(shared) = weak.upgrade() else { return };
            if receive(info, shared.waiters.as_deref(), Clock::Boot.now()) {
                // In this order: see `node`.
                closed.close();
                shared.disconnect(epoch, "the other side has closed it");
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
        let push = match &self.waiters {
            Some(waiters) => match redis.subscribe(&*waiters.channel()).await {
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
            },
            None => false,
        };
        let clock = Mutex::new(server_info.clock());
        let (server_info, late) = (Mutex::new(Arc::new(server_info)), AtomicU32::new(0));
        let window = Window::new();
        Ok(Connection { redis, epoch, address, server_info, uptime, push, late, window, id, clock })
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

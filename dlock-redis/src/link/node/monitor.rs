//! Three jobs while a connection is open: writing marks that show how long the server has run,
//! reading the settings again on which guarantees depend, and counting replicas that connect later.
//!
//! If the process dies between two marks, the last mark stays. The next client then waits for the
//! rest of the restart guard, which is longer than necessary and never shorter.

use std::{
    sync::{Arc, atomic::Ordering},
    time::Duration,
};

use dlock_core::Clock;
use redis::Value;

use super::{Connection, NodeShared, ServerInfo, SkippedQueries, Topology, Uptime, open};
use crate::{config::Durability, keys};

/// The interval at which the settings are read again on which a guarantee depends, and the number of
/// replicas on which a majority depends.
const REREAD: Duration = Duration::from_secs(10);
/// The shortest pause between two attempts to write the last mark.
const AGAIN: Duration = Duration::from_secs(10);
/// The number of marks that a client writes until the guard is over, at most one a second.
const MARKS: u32 = 8;

impl NodeShared {
    /// Returns the key of the mark that states how long the server has run. The plain form has
    /// none, since its keys belong to other programs.
    pub(super) fn mark_key(&self) -> Option<String> {
        let is_guarded = !self.guard().is_zero() && !self.config.plain;
        is_guarded.then(|| keys::auxiliary("guard", &self.config.prefix))
    }

    pub(super) fn guard(&self) -> Duration {
        self.config.restart_guard.unwrap_or_default()
    }

    /// Returns the known run of the server with this information.
    pub(super) fn uptime_of(&self, server_info: &ServerInfo) -> Option<Uptime> {
        let mut uptime = self.uptime.lock();
        // A replica discards its data at a new synchronisation, without a restart.
        *uptime = Uptime::of(server_info, uptime.take()).filter(|_| !server_info.replica);
        uptime.clone()
    }

    /// Never ends. The caller drops it when the connection is lost.
    pub(super) async fn monitor(&self) {
        let open = self.state.borrow().connection().cloned();
        if let Some(connection) = open {
            tokio::join!(
                self.write_marks(&connection),
                self.reread(&connection),
                self.count_replicas(&connection)
            );
        }
        std::future::pending().await
    }

    /// Writes marks until the server has run for the restart guard, unless a mark already shows
    /// that it has.
    ///
    /// A client writes more than one mark, because other clients may never run as long as the
    /// guard: each continues where the previous one stopped.
    async fn write_marks(&self, connection: &Connection) {
        let (guard, server_info) = (self.guard(), connection.server_info());
        let (Some(key), Some(uptime)) = (self.mark_key(), &connection.uptime) else { return };
        if server_info.proven_uptime >= guard {
            return;
        }
        let step = (guard / MARKS).max(Duration::from_secs(1));
        loop {
            let left = uptime.left(guard, Clock::Boot.now());
            Clock::Boot.sleep_until(Clock::Boot.now().saturating_add(left.min(step))).await;
            let now = Clock::Boot.now();
            let is_over = uptime.left(guard, now).is_zero();
            let mut set = redis::cmd("SET");
            set.arg(&key).arg(uptime.mark(now));
            let answer = connection.redis.clone().send_packed_command(&set).await;
            // For the driver, a refusal by the server is an answer.
            match answer.and_then(Value::extract_error) {
                Ok(_) if is_over => return,
                Ok(_) => {}
                Err(error) => {
                    tracing::debug!(target: "dlock", %error, store = self.store, "writing the server mark failed");
                }
            }
            if is_over {
                tokio::time::sleep(guard.max(AGAIN)).await;
            }
        }
    }

    /// Returns the questions that a connect leaves out: settings on which no guarantee depends.
    pub(super) fn skipped(&self) -> SkippedQueries {
        SkippedQueries { info: false, settings: !self.promises() || !self.guard().is_zero() }
    }

    /// Returns whether a guarantee depends on the data of one server.
    fn promises(&self) -> bool {
        matches!(self.config.topology, Topology::Single | Topology::Socket)
    }

    /// Counts the replicas again for `dlock.durability=majority`. During a failover they connect to
    /// the new master one after another. In a cluster the map of the slots shows them.
    async fn count_replicas(&self, connection: &Connection) {
        let in_cluster = self.config.topology == Topology::Cluster;
        if self.config.durability != Durability::Majority || in_cluster {
            return;
        }
        let info_alone = SkippedQueries { info: false, settings: true };
        loop {
            tokio::time::sleep(REREAD).await;
            let read = open::server_info(&mut connection.redis.clone(), None, info_alone).await;
            let Ok(read) = read else { continue };
            if read.check_replicas().is_err() {
                return;
            }
            self.most_replicas.fetch_max(read.replicas, Ordering::Relaxed);
        }
    }

    /// Reads the settings again on which guarantees depend. Leaves out the questions that were
    /// refused once.
    async fn reread(&self, connection: &Connection) {
        if !self.promises() {
            return;
        }
        let guard = self.guard();
        while let Some(skipped) = connection.server_info().next_queries(guard) {
            tokio::time::sleep(REREAD).await;
            let read = open::server_info(&mut connection.redis.clone(), None, skipped).await;
            let Ok(read) = read else { continue };
            let before = connection.server_info();
            let server_info = read.after(&before);
            let keeps = server_info.keeps_grants(guard);
            match (before.keeps_grants(guard), keeps) {
                (true, false) => tracing::warn!(
                    target: "dlock",
                    store = self.store,
                    "server settings changed: a restart or memory pressure may now lose held locks"
                ),
                (false, true) => tracing::info!(
                    target: "dlock",
                    store = self.store,
                    "server settings changed: held locks now survive a restart"
                ),
                _ => {}
            }
            // Relaxed: only `guarantees()` reads it, and nothing else is ordered by it.
            self.keeps_grants.store(keeps, Ordering::Relaxed);
            *connection.server_info.lock() = Arc::new(server_info);
        }
    }
}

//! Two jobs while a connection is open: writing marks that show how long the server has run, and
//! reading the settings again on which guarantees depend.
//!
//! If the process dies between two marks, the last mark stays. The next client then waits for the
//! rest of the restart guard, which is longer than necessary and never shorter.

use std::{
    sync::{Arc, atomic::Ordering},
    time::Duration,
};

use dlock_core::Clock;
use redis::Value;

use super::{Connection, Facts, NodeShared, Sight, Silent, Topology, open};
use crate::keys;

/// The interval at which the settings are read again on which a guarantee depends.
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
        is_guarded.then(|| keys::aside("guard", &self.config.prefix))
    }

    pub(super) fn guard(&self) -> Duration {
        self.config.restart_guard.unwrap_or_default()
    }

    /// Returns the known run of the server with these facts.
    pub(super) fn sight_of(&self, facts: &Facts) -> Option<Sight> {
        let mut sight = self.sight.lock();
        // A replica discards its data at a new synchronisation, without a restart.
        *sight = Sight::of(facts, sight.take()).filter(|_| !facts.replica);
        sight.clone()
    }

    /// Never ends. The caller drops it when the door shuts.
    pub(super) async fn look_after(&self) {
        let open = self.door.borrow().open().cloned();
        if let Some(connection) = open {
            tokio::join!(self.vouch(&connection), self.reread(&connection));
        }
        std::future::pending().await
    }

    /// Writes marks until the server has run for the restart guard, unless a mark already shows
    /// that it has.
    ///
    /// A client writes more than one mark, because other clients may never run as long as the
    /// guard: each continues where the previous one stopped.
    async fn vouch(&self, connection: &Connection) {
        let (guard, facts) = (self.guard(), connection.facts());
        let (Some(key), Some(sight)) = (self.mark_key(), &connection.sight) else { return };
        if facts.vouched >= guard {
            return;
        }
        let step = (guard / MARKS).max(Duration::from_secs(1));
        loop {
            let left = sight.left(guard, Clock::Boot.now());
            Clock::Boot.sleep_until(Clock::Boot.now().saturating_add(left.min(step))).await;
            let now = Clock::Boot.now();
            let is_over = sight.left(guard, now).is_zero();
            let mut set = redis::cmd("SET");
            set.arg(&key).arg(sight.mark(now));
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
    pub(super) fn silent(&self) -> Silent {
        Silent { info: false, settings: !self.promises() || !self.guard().is_zero() }
    }

    /// Returns whether a guarantee depends on the data of one server.
    fn promises(&self) -> bool {
        matches!(self.config.topology, Topology::Single | Topology::Socket)
    }

    /// Reads the settings again on which guarantees depend. Leaves out the questions that were
    /// refused once.
    async fn reread(&self, connection: &Connection) {
        if !self.promises() {
            return;
        }
        let guard = self.guard();
        while let Some(silent) = connection.facts().worth_asking(guard) {
            tokio::time::sleep(REREAD).await;
            let read = open::facts(&mut connection.redis.clone(), None, silent).await;
            let Ok(read) = read else { continue };
            let before = connection.facts();
            let facts = read.after(&before);
            let keeps = facts.keeps_grants(guard);
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
            *connection.facts.lock() = Arc::new(facts);
        }
    }
}

//! What is done for a server while it is connected to: how long it has run is passed on, and what it
//! promises is looked at again.

use std::{
    sync::{Arc, atomic::Ordering},
    time::Duration,
};

use dlock_core::Clock;
use redis::Value;

use super::{Connection, Facts, NodeShared, Sight, Silent, Topology, open};
use crate::keys;

/// How often settings are read again that a promise depends on.
const REREAD: Duration = Duration::from_secs(10);
/// The shortest pause between two tries to leave the last mark.
const AGAIN: Duration = Duration::from_secs(10);
/// How many marks a client leaves until the guard is over, but no more than one a second.
const MARKS: u32 = 8;

impl NodeShared {
    /// The key of the mark that tells how long the server has run. The plain form has none: its keys
    /// are other programs'.
    pub(super) fn mark_key(&self) -> Option<String> {
        let is_guarded = !self.guard().is_zero() && !self.config.plain;
        is_guarded.then(|| keys::aside("guard", &self.config.prefix))
    }

    pub(super) fn guard(&self) -> Duration {
        self.config.restart_guard.unwrap_or_default()
    }

    /// For how long the server that said this is known to have run.
    pub(super) fn sight_of(&self, facts: &Facts) -> Option<Sight> {
        let mut sight = self.sight.lock();
        // A replica throws away what it has, without a restart.
        *sight = Sight::of(facts, sight.take()).filter(|_| !facts.replica);
        sight.clone()
    }

    /// Never ends; to be dropped when the door shuts.
    pub(super) async fn look_after(&self) {
        let open = self.door.borrow().open().cloned();
        if let Some(connection) = open {
            tokio::join!(self.vouch(&connection), self.reread(&connection));
        }
        std::future::pending().await
    }

    /// Leaves marks until the server has run for as long as the guard, unless there is such a one.
    ///
    /// Not only one at the end: otherwise clients that never stay for so long would all begin anew.
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
            // A refusal is an answer to the driver.
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

    /// What the server is not asked for when connecting: settings that no promise depends on.
    pub(super) fn silent(&self) -> Silent {
        Silent { info: false, settings: !self.promises() || !self.guard().is_zero() }
    }

    /// Whether anything is promised that depends on what one server keeps.
    fn promises(&self) -> bool {
        matches!(self.config.topology, Topology::Single | Topology::Socket)
    }

    /// Reads again what a promise depends on, for the worse and for the better. What was refused
    /// once is not asked for again.
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
            self.keeps_grants.store(keeps, Ordering::Relaxed);
            *connection.facts.lock() = Arc::new(facts);
        }
    }
}

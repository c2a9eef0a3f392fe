//! The end of a hold. No other module ends one.
//!
//! A release, an expiry and a revocation may happen at the same time. [`Hold::end`] decides which
//! of them ends the hold. That task alone counts the end, removes the hold from the renewal queue,
//! and hands the leader role of its queue to the next task. So the next task of this process need
//! not wait until the guard of a lost lock is dropped. `schedules/end.rs` tests it.

use super::Engine;
use crate::{
    Ended, GuardState,
    hold::{Hold, local_queue::LeaderRole},
};

/// Ends a hold that its holder releases. Returns true if it had not ended before: then the caller
/// removes it from the renewal queue, and has the leader role of its queue.
pub(super) fn released(engine: &Engine, hold: &Hold) -> bool {
    finish(engine, hold, Ended::Released)
}

/// Ends a hold that the store keeps from now on without a holder: see [`HoldRef::part`].
///
/// [`HoldRef::part`]: super::hold_ref::HoldRef::part
pub(super) fn parted(engine: &Engine, hold: &Hold) {
    if finish(engine, hold, Ended::Released) {
        hold.set_outcome(true);
        leave(engine, hold);
    }
}

/// Ends a hold as lost, and logs the loss. Nothing happens if it had ended before.
pub(super) fn lose(engine: &Engine, hold: &Hold, how: Ended) {
    if !finish(engine, hold, how) {
        return;
    }
    report_loss(engine, hold, how);
    leave(engine, hold);
}

/// Counts and logs a loss.
pub(super) fn report_loss(engine: &Engine, hold: &Hold, how: Ended) {
    #[cfg(feature = "metrics")]
    engine.meter.lost(how);
    let (backend, name) = (engine.backend.store(), hold.name());
    if how == Ended::StoreReset {
        tracing::warn!(target: "dlock", { backend, lock.name = %name }, "store lost its data");
    }
    tracing::warn!(
        target: "dlock",
        { lock.name = %name, backend, token = hold.used(), reason = %how },
        "lock lost"
    );
}

/// Returns the current state. The first task that sees that the deadline has passed ends the hold.
pub(super) fn state(engine: &Engine, hold: &Hold) -> GuardState {
    // The renewal task may be late, so a guard does not rely on it: the guard checks the clock and
    // detects the loss.
    if hold.is_over(|| engine.clock.now()) {
        lose(engine, hold, Ended::Expired);
    }
    hold.state()
}

fn finish(engine: &Engine, hold: &Hold, how: Ended) -> bool {
    let ended = hold.end(how);
    #[cfg(feature = "metrics")]
    if ended {
        engine.meter.ended(hold.mode(), engine.clock.now().since(hold.granted_at()));
    }
    #[cfg(not(feature = "metrics"))]
    let _ = engine;
    ended
}

fn leave(engine: &Engine, hold: &Hold) {
    engine.holds.remove(hold);
    if let Some(queue) = hold.queue() {
        drop(LeaderRole::of(queue));
    }
}

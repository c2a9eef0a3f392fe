//! The end of a hold. Nothing else ends one.
//!
//! Whoever ends a hold, and only that one, counts it, takes it out of the books, and passes on the
//! lead of its queue, so that the next task of this process need not wait until the guard is dropped.
//! [`Hold::end`] says who that is.

use super::Engine;
use crate::{
    Ended, GuardState,
    hold::{Hold, local_queue::Lead},
};

/// Ends a hold whose holder gives it back. Whether it still ran: then the caller takes it out of the
/// books, and has the lead of its queue.
pub(super) fn released(engine: &Engine, hold: &Hold) -> bool {
    finish(engine, hold, Ended::Released)
}

/// Ends a hold that the store keeps from now on, until it was to.
pub(super) fn parted(engine: &Engine, hold: &Hold) {
    if finish(engine, hold, Ended::Released) {
        leave(engine, hold);
    }
}

/// Ends a hold as lost, once, and tells of it.
pub(super) fn lose(engine: &Engine, hold: &Hold, how: Ended) {
    if !finish(engine, hold, how) {
        return;
    }
    tell_loss(engine, hold, how);
    leave(engine, hold);
}

/// Counts a loss and tells the log, once for each hold.
pub(super) fn tell_loss(engine: &Engine, hold: &Hold, how: Ended) {
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

/// The state as of now: past its deadline a hold is lost, whoever notices first.
pub(super) fn state(engine: &Engine, hold: &Hold) -> GuardState {
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
        drop(Lead::of(queue));
    }
}

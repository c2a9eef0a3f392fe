//! Steps of the store's clock, kept for leases whose answers are still in flight.
//!
//! A grant or a renewal may be answered before a step and processed after it. The lease that it
//! states is then too long. The books therefore compare each answer with the last steps, under
//! their lock. `dlock-core/tests/core/events.rs` tests this.

use std::time::Duration;

use crate::Instant;

/// A step of the clock of a part of the store.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Step {
    pub(crate) shard: u32,
    pub(crate) forward: bool,
    pub(crate) by: Duration,
    pub(crate) seen: Instant,
}

/// The last steps forward.
#[derive(Default)]
pub(super) struct Steps(Vec<Step>);

impl Steps {
    /// The largest number of recorded steps. Older steps are forgotten.
    const MOST: usize = 64;

    pub(super) fn add(&mut self, step: Step) {
        if self.0.len() >= Self::MOST {
            self.0.remove(0);
        }
        self.0.push(step);
    }

    /// Returns the time by which the steps shorten a lease of this shard that began at `began`.
    pub(super) fn cut(&self, began: Instant, shard: impl Fn() -> u32) -> Duration {
        // A request that was sent after the step was seen used the new clock, so it is not
        // shortened.
        let met = self.0.iter().filter(|step| began < step.seen && step.shard == shard());
        met.fold(Duration::ZERO, |all, step| all.saturating_add(step.by))
    }
}

//! Steps of the store's clock that leases may have met which are still on their way here.

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
    /// So many are enough: a lease that is on its way for longer has ended.
    const MOST: usize = 64;

    pub(super) fn add(&mut self, step: Step) {
        if self.0.len() >= Self::MOST {
            self.0.remove(0);
        }
        self.0.push(step);
    }

    /// By how much sooner a lease ends, by the holder's clock, that began then in this shard.
    pub(super) fn cut(&self, began: Instant, shard: impl Fn() -> u32) -> Duration {
        let met = self.0.iter().filter(|step| began < step.seen && step.shard == shard());
        met.fold(Duration::ZERO, |all, step| all.saturating_add(step.by))
    }
}

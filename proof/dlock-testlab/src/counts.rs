//! Counters of a proxy, which prove that a fault had an effect.

use std::sync::atomic::{AtomicU64, Ordering};

use super::rules::Flow;

#[derive(Debug, Default)]
pub(super) struct Counts {
    pub(super) connections: AtomicU64,
    pub(super) requests: AtomicU64,
    pub(super) replies: AtomicU64,
    pub(super) round_trips: AtomicU64,
    pub(super) answers: AtomicU64,
    pub(super) pushes: AtomicU64,
    pub(super) cuts: AtomicU64,
    pub(super) silenced: AtomicU64,
    pub(super) held: AtomicU64,
    pub(super) delayed: AtomicU64,
    pub(super) dropped: AtomicU64,
    pub(super) lost_pushes: AtomicU64,
}

impl Counts {
    /// Counts the bytes that this flow affected.
    pub(super) fn meet(&self, flow: Flow, bytes: usize) {
        let count = match flow {
            Flow::Pass => return,
            Flow::Delay(_) => &self.delayed,
            Flow::Hold => &self.held,
            Flow::Drop => &self.dropped,
        };
        add(count, bytes);
    }
}

pub(super) fn add(count: &AtomicU64, more: usize) {
    count.fetch_add(u64::try_from(more).unwrap_or(u64::MAX), Ordering::Relaxed);
}

//! What a proxy has done, as a proof that a fault met somebody.

use std::sync::atomic::{AtomicU64, Ordering};

use super::{Flow, Proxy};

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
    /// So many bytes have met this.
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

/// What it has done since its start. Connections that a closed door refused are not counted: the
/// system refuses them, and tells nobody.
impl Proxy {
    /// How often a client has spoken on a connection first, or after the server had: the round
    /// trips, when the client waits for each answer. Requests that it sends together are one.
    pub fn round_trips(&self) -> u64 {
        self.counts.round_trips.load(Ordering::Relaxed)
    }

    /// How many answers have come whole from the server. It takes a
    /// [protocol](Self::start_for): a command of Redis and a request of ZooKeeper have one answer
    /// each, a statement of PostgreSQL has several.
    pub fn answers(&self) -> u64 {
        self.counts.answers.load(Ordering::Relaxed)
    }

    /// How many messages have come whole that nobody asked for, lost or not. It takes a
    /// [protocol](Self::start_for).
    pub fn pushes(&self) -> u64 {
        self.counts.pushes.load(Ordering::Relaxed)
    }

    /// How many connections it has reset or closed when it was [told to](Self::cut).
    pub fn cuts(&self) -> u64 {
        self.counts.cuts.load(Ordering::Relaxed)
    }

    /// How many connections a [silent door](super::Door::Silent) has accepted.
    pub fn silenced(&self) -> u64 {
        self.counts.silenced.load(Ordering::Relaxed)
    }

    /// How many bytes have come that had to wait because of [`Flow::Hold`], whether they have
    /// passed since or not. More may wait behind them, where the proxy does not see them yet.
    pub fn held_bytes(&self) -> u64 {
        self.counts.held.load(Ordering::Relaxed)
    }

    /// How many bytes have passed later because of [`Flow::Delay`], or are about to.
    pub fn delayed_bytes(&self) -> u64 {
        self.counts.delayed.load(Ordering::Relaxed)
    }

    /// How many bytes are gone because of [`Flow::Drop`].
    pub fn dropped_bytes(&self) -> u64 {
        self.counts.dropped.load(Ordering::Relaxed)
    }

    /// How many messages of the server are gone that [nobody asked for](Self::lose_pushes).
    pub fn lost_pushes(&self) -> u64 {
        self.counts.lost_pushes.load(Ordering::Relaxed)
    }
}

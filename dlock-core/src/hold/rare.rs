//! Fields that few holds need: watchers, non-default terms, the time until which the store keeps
//! the claim without a holder, and the confirmation of hand-offs.
//!
//! The box is allocated once, in [`Hold::new`](super::Hold::new) or by the first task that needs
//! it. Two tasks may race for that: `OnceLock` lets one of them win, and both use its box.

use std::time::Duration;

use crate::{
    Renew,
    sync::{Notify, atomic::AtomicU64},
};

/// The rare fields. A hold with default terms and no watcher has none.
pub(super) struct Rare {
    pub(super) terms: Terms,
    pub(super) ended: Notify,
    /// The time until which the store keeps it without a holder, in nanoseconds. 0 while it has a
    /// holder. `SeqCst`, since its writer then loads `Ledger::stopped`: see `Held::part`.
    pub(super) parting: AtomicU64,
    /// Tokens of guards that have handed it off. A renewal has to confirm all guards before `asked`;
    /// the renewal in flight confirms those before `asking`, and the last answer those before
    /// `answered`.
    pub(super) asked: AtomicU64,
    pub(super) asking: AtomicU64,
    pub(super) answered: AtomicU64,
    /// The store's answer to the release: `UNTOLD`, `HELD_TO_THE_END` or `LOST_BEFORE`.
    pub(super) outcome: AtomicU64,
    /// Notified of each confirmation, of the end, and of `outcome`.
    pub(super) confirmed: Notify,
}

pub(super) const UNTOLD: u64 = 0;
pub(super) const HELD_TO_THE_END: u64 = 1;
pub(super) const LOST_BEFORE: u64 = 2;

impl Rare {
    /// Non-default terms are set when the hold is created. A box that is allocated later has the
    /// defaults.
    pub(super) fn new(terms: Terms) -> Self {
        Self {
            terms,
            ended: Notify::new(),
            parting: AtomicU64::new(0),
            asked: AtomicU64::new(0),
            asking: AtomicU64::new(0),
            answered: AtomicU64::new(0),
            outcome: AtomicU64::new(UNTOLD),
            confirmed: Notify::new(),
        }
    }
}

/// Options that most locks leave at their defaults.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) struct Terms {
    /// The lock-delay.
    pub(super) delay: Duration,
    /// The time after the grant for which it is renewed. Zero: never.
    pub(super) renewed_for: Duration,
}

impl Terms {
    pub(super) const fn new(delay: Duration, renew: Renew) -> Self {
        let renewed_for = match renew {
            Renew::Auto => Duration::MAX,
            Renew::For(limit) => limit,
            Renew::Never => Duration::ZERO,
        };
        Self { delay, renewed_for }
    }
}

impl Default for Terms {
    fn default() -> Self {
        Self::new(Duration::ZERO, Renew::Auto)
    }
}

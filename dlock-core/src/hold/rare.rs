//! Fields that few holds need: watchers, unusual terms, a time until which the store keeps the
//! claim without a holder.
//!
//! The box is made once, in [`Hold::new`](super::Hold::new) or by the first task that needs it. Two
//! tasks may race for that: `OnceLock` lets one of them win, and both use its box.

use std::time::Duration;

use crate::{
    Renew,
    sync::{Notify, atomic::AtomicU64},
};

/// A hold with the usual terms that nobody watches has none.
pub(super) struct Rare {
    pub(super) terms: Terms,
    pub(super) ended: Notify,
    /// Until when the store keeps it without a holder, in nanoseconds. 0 while there is a holder.
    /// `SeqCst`, since its writer then loads `Ledger::stopped`: see `Held::part`.
    pub(super) parting: AtomicU64,
}

impl Rare {
    /// Unusual terms are set when the hold is made. A box that is made later has the usual ones.
    pub(super) fn new(terms: Terms) -> Self {
        Self { terms, ended: Notify::new(), parting: AtomicU64::new(0) }
    }
}

/// Options that most locks leave as they are.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) struct Terms {
    /// The lock-delay.
    pub(super) delay: Duration,
    /// How long after the grant it is renewed. Zero: never.
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

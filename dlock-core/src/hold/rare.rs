//! Fields that few holds need: watchers, non-default terms, and the time until which the store
//! keeps the claim without a holder.
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
}

impl Rare {
    /// Non-default terms are set when the hold is created. A box that is allocated later has the
    /// defaults.
    pub(super) fn new(terms: Terms) -> Self {
        Self { terms, ended: Notify::new(), parting: AtomicU64::new(0) }
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

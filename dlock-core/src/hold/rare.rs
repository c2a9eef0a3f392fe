//! What few holds need: watchers, terms of their own, a time until which the store keeps them alone.

use std::time::Duration;

use crate::{
    Renew,
    sync::{Notify, atomic::AtomicU64},
};

/// One that is only kept has none.
pub(super) struct Rare {
    pub(super) terms: Terms,
    pub(super) ended: Notify,
    /// Until when the store is to keep it without a holder, in nanoseconds; 0 while it has one.
    pub(super) parting: AtomicU64,
}

impl Rare {
    /// The terms count when it is made, which is at once for those that are not the usual.
    pub(super) fn new(terms: Terms) -> Self {
        Self { terms, ended: Notify::new(), parting: AtomicU64::new(0) }
    }
}

/// Options that most locks leave as they are.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) struct Terms {
    /// By how much longer than its holder believes the store keeps it: the lock-delay.
    pub(super) delay: Duration,
    /// For how long after the grant it is renewed; zero is not at all.
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

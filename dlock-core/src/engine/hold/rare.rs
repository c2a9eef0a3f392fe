//! What few holds need: to be watched or parted with, and terms of their own.

use std::{sync::Arc, time::Duration};

use super::Hold;
use crate::{
    Claim, FencingToken,
    guard::Ended,
    sync::{
        Notify,
        atomic::{AtomicU64, Ordering},
    },
};

/// What a hold has that somebody watches or parts with, or whose terms are not the usual; one that
/// is only kept has none.
pub(super) struct Rare {
    terms: Terms,
    ended: Notify,
    /// Until when the store is to keep it without a holder, in nanoseconds; 0 while it has one.
    pub(super) parting: AtomicU64,
}

/// What most locks have no wishes about.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) struct Terms {
    /// By how much longer than its holder believes the store keeps it: the lock-delay.
    pub(super) delay: Duration,
    /// For how long after the grant it is renewed; zero is not at all.
    pub(super) renewed_for: Duration,
}

impl Default for Terms {
    fn default() -> Self {
        Self { delay: Duration::ZERO, renewed_for: Duration::MAX }
    }
}

impl Hold {
    pub(super) fn rare(&self) -> &Rare {
        self.rare_with(Terms::default())
    }

    /// The terms count when it is made, which is at once for those that are not the usual.
    pub(super) fn rare_with(&self, terms: Terms) -> &Rare {
        self.rare.get_or_init(|| {
            Box::new(Rare { terms, ended: Notify::new(), parting: AtomicU64::new(0) })
        })
    }

    pub(super) fn terms(&self) -> Terms {
        self.rare.get().map_or_else(Terms::default, |rare| rare.terms)
    }

    /// The claim, with how many of its tokens were handed out.
    pub(crate) fn claim(&self) -> Claim {
        let used = 1 + self.used() - self.first;
        self.claim_with(u32::try_from(used).unwrap_or(self.tokens))
    }

    pub(super) fn claim_with(&self, used: u32) -> Claim {
        Claim { name: self.name.clone(), id: self.id, used }
    }

    /// Waits for the end of the guard with this token, by the holder's own clock if need be.
    pub(crate) fn until_ended(
        self: Arc<Self>,
        token: FencingToken,
    ) -> impl Future<Output = Ended> + Send + 'static {
        // Made before anybody looks for it.
        self.rare();
        self.watched.store(true, Ordering::SeqCst);
        self.watch(token)
    }

    async fn watch(self: Arc<Self>, token: FencingToken) -> Ended {
        loop {
            let mut told = std::pin::pin!(self.rare().ended.notified());
            told.as_mut().enable();
            // In this order: no token is used once it has ended, but it may be passed on and end
            // as somebody else's between two looks.
            let ended = self.ended();
            if self.used() > token.get() {
                // The guard has passed it on.
                return Ended::Released;
            }
            if let Some(ended) = ended {
                return ended;
            }
            let (clock, until) = (self.engine.clock, self.valid_until());
            if clock.now() >= until {
                self.lose(Ended::Expired);
                continue;
            }
            tokio::select! {
                () = &mut told => {}
                () = clock.sleep_until(until) => {}
            }
        }
    }

    /// Tells them that it has ended, or was passed on.
    pub(crate) fn tell_watchers(&self) {
        if self.watched.load(Ordering::SeqCst)
            && let Some(rare) = self.rare.get()
        {
            rare.ended.notify_waiters();
        }
    }
}

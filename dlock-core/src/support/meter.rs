//! The counters of an engine: the acquisitions in progress, for [`Health`](crate::Health), and with
//! the feature `metrics` all of [`metrics`](crate::metrics). Without the feature the other methods
//! do nothing.
//!
//! `waiting` is relaxed: it is shown to people, and nothing else depends on it. Each increment has
//! one decrement, in the drop of [`Waiting`], so it also ends at 0 if futures are dropped.

#[cfg(feature = "metrics")]
use std::time::Duration;

use super::labels::{Kind, QueuedIn};
#[cfg(feature = "metrics")]
use super::metrics::Series;
use crate::{
    Clock,
    sync::atomic::{AtomicUsize, Ordering},
};
#[cfg(feature = "metrics")]
use crate::{Ended, Error, Mode};

/// The counters of an engine.
pub(crate) struct Meter {
    waiting: AtomicUsize,
    #[cfg(feature = "metrics")]
    series: Series,
}

/// Counts an acquisition as in progress until it is dropped.
pub(crate) struct Waiting<'a>(&'a Meter);

impl Meter {
    pub(crate) fn new(store: &str, clock: Clock) -> Self {
        #[cfg(not(feature = "metrics"))]
        let _ = (store, clock);
        Self {
            waiting: AtomicUsize::new(0),
            #[cfg(feature = "metrics")]
            series: Series::new(store, clock),
        }
    }

    /// Returns the number of acquisitions in progress.
    pub(crate) fn waiting(&self) -> usize {
        self.waiting.load(Ordering::Relaxed)
    }

    /// Counts an acquisition that is not granted at once.
    pub(crate) fn wait(&self) -> Waiting<'_> {
        self.waiting.fetch_add(1, Ordering::Relaxed);
        #[cfg(feature = "metrics")]
        self.series.waiting(1.0);
        Waiting(self)
    }

    /// Counts an acquisition that has joined a queue.
    pub(crate) fn queued(&self, line: QueuedIn) {
        #[cfg(not(feature = "metrics"))]
        let _ = line;
        #[cfg(feature = "metrics")]
        self.series.contended(line);
    }

    /// Measures an acquisition, also one whose future is dropped.
    #[cfg(feature = "metrics")]
    pub(crate) async fn acquiring<T: Send>(
        &self,
        kind: Kind,
        take: impl Future<Output = Result<Option<T>, Error>> + Send,
    ) -> Result<Option<T>, Error> {
        let started = self.series.start(kind);
        let taken = take.await;
        started.finish(&taken);
        taken
    }

    #[cfg(not(feature = "metrics"))]
    pub(crate) fn acquiring<F: Future>(&self, kind: Kind, take: F) -> F {
        let _ = kind;
        take
    }
}

#[cfg(feature = "metrics")]
impl Meter {
    /// Counts a new hold.
    pub(crate) fn held(&self) {
        self.series.held(1.0);
    }

    /// Counts the end of a hold.
    pub(crate) fn ended(&self, mode: Mode, after: Duration) {
        self.series.held(-1.0);
        self.series.hold(mode, after);
    }

    /// Counts a lost hold.
    pub(crate) fn lost(&self, how: Ended) {
        self.series.lost(how);
    }

    /// Counts renewals by their outcome.
    pub(crate) fn renewed(&self, kept: usize, lost: usize, failed: usize) {
        self.series.renewed(kept, lost, failed);
    }
}

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        self.0.waiting.fetch_sub(1, Ordering::Relaxed);
        #[cfg(feature = "metrics")]
        self.0.series.waiting(-1.0);
    }
}

//! An outage of the store, as the tasks that queue for one lock in this process see it.
//!
//! The local leader retries for one lease. If each leader counted from its own start, the last task
//! would fail after one lease for each task. So the next leader continues the count of the last
//! one. When the lease is over, all tasks that waited until then fail with its error.

use crate::{Error, Instant};

/// The record of one name. It is empty while the store answers, and changes only under the mutex of
/// its queue.
#[derive(Default)]
pub(super) struct Outage {
    since: Option<Instant>,
    /// The last error.
    last: Option<Error>,
    /// The error of the last leader that gave up after a whole lease, and the ticket of the task
    /// that was last in the queue at that time.
    given_up: Option<(u64, Error)>,
}

impl Outage {
    /// Creates the record after a leader has retried for a whole lease. All tasks up to this ticket
    /// have waited with it. Tasks that join later have a whole lease.
    pub(super) fn over(last_ticket: u64, error: &Error) -> Self {
        let given_up = Some((last_ticket, error.clone()));
        Self { since: None, last: Some(error.clone()), given_up }
    }

    /// Records a failure of the store, and returns when the outage began.
    pub(super) fn failed(&mut self, now: Instant, error: &Error) -> Instant {
        self.last = Some(error.clone());
        *self.since.get_or_insert(now)
    }

    pub(super) fn last(&self) -> Option<Error> {
        self.last.clone()
    }

    /// Returns the error of the leader that gave up while the task with this ticket waited.
    pub(super) fn given_up(&self, ticket: u64) -> Option<Error> {
        let (last, error) = self.given_up.as_ref()?;
        (ticket <= *last).then(|| error.clone())
    }
}

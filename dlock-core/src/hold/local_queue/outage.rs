//! A store that is away, as the tasks of a process know it that queue for one lock.
//!
//! One of them at a time asks the store, for as long as one lease. If each began to count anew, the
//! last would be told after as many leases as there are tasks. So the next to ask goes on counting
//! where the one before has stopped, and when the lease is over, all are told that have waited until
//! then.

use crate::{Error, Instant};

/// The record of one name; it is empty while the store answers.
#[derive(Default)]
pub(super) struct Outage {
    since: Option<Instant>,
    /// The last error.
    last: Option<Error>,
    /// With which error the last task gave up that had asked for a whole lease, and the ticket of the
    /// last that waited then.
    given_up: Option<(u64, Error)>,
}

impl Outage {
    /// A task has asked for a whole lease, and all that wait up to this ticket have waited with it.
    /// Those that come later have a lease of their own.
    pub(super) fn over(last_ticket: u64, error: &Error) -> Self {
        let given_up = Some((last_ticket, error.clone()));
        Self { since: None, last: Some(error.clone()), given_up }
    }

    /// The store has failed: since when it does.
    pub(super) fn failed(&mut self, now: Instant, error: &Error) -> Instant {
        self.last = Some(error.clone());
        *self.since.get_or_insert(now)
    }

    pub(super) fn last(&self) -> Option<Error> {
        self.last.clone()
    }

    /// The error of the task that gave up while this one waited.
    pub(super) fn given_up(&self, ticket: u64) -> Option<Error> {
        let (last, error) = self.given_up.as_ref()?;
        (ticket <= *last).then(|| error.clone())
    }
}

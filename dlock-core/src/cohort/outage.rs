//! A store that is away, as the tasks of a process know it that queue for one mutex.
//!
//! One of them at a time asks the store, for as long as one lease. If each began to count anew, the
//! last would be told after as many leases as there are tasks. So the next to ask goes on counting
//! where the one before has stopped, and when the lease is over, all are told that have waited until
//! then.

use std::task::Waker;

use super::{Cohort, Members, Turn, Waiters};
use crate::{Error, Instant, sync::atomic::Ordering};

/// The record of one name; it is empty while the store answers.
#[derive(Default)]
pub(super) struct Outage {
    since: Option<Instant>,
    /// The last error.
    last: Option<Error>,
    /// With which error the last gave up who asked for a whole lease, and the ticket of the last who
    /// waited then.
    given_up: Option<(u64, Error)>,
}

impl Waiters {
    /// What this one was given.
    pub(super) fn take(&mut self, ticket: u64, waker: &Waker) -> Option<Turn> {
        match (self.line.take(ticket, waker)?, &self.outage.given_up) {
            (Turn::Lead, Some((last, error))) if ticket <= *last => {
                Some(Turn::GivenUp(error.clone()))
            }
            (turn, _) => Some(turn),
        }
    }
}

impl Cohort {
    /// The store has failed who asks, by now: since when it fails.
    pub(crate) fn store_is_away(&self, now: Instant, error: &Error) -> Instant {
        let mut members = self.members.lock();
        self.troubled.store(true, Ordering::Relaxed);
        let outage = &mut members.line.get_or_insert_default().outage;
        outage.last = Some(error.clone());
        *outage.since.get_or_insert(now)
    }

    /// The store is asked, or has answered.
    pub(crate) fn is_asked(&self, asked: bool) {
        self.asked.store(asked, Ordering::Relaxed);
    }

    /// How it has failed last, if it has not answered since.
    pub(super) fn last_failure(&self) -> Option<Error> {
        self.members.lock().line.as_ref()?.outage.last.clone()
    }

    /// Who asks has done so for a whole lease: so have all that wait for it.
    pub(crate) fn give_up(&self, error: &Error) {
        let mut members = self.members.lock();
        let waiters = members.line.get_or_insert_default();
        // Who comes later has a lease of its own.
        let given_up = Some((waiters.line.last_ticket(), error.clone()));
        waiters.outage = Outage { since: None, last: Some(error.clone()), given_up };
        self.troubled.store(true, Ordering::Relaxed);
    }

    /// The store has answered.
    pub(crate) fn store_is_back(&self) {
        if self.troubled.load(Ordering::Relaxed) {
            self.forget_outage(&mut self.members.lock());
        }
    }

    pub(super) fn forget_outage(&self, members: &mut Members) {
        if self.troubled.load(Ordering::Relaxed) {
            self.troubled.store(false, Ordering::Relaxed);
            if let Some(waiters) = &mut members.line {
                waiters.outage = Outage::default();
            }
        }
    }
}

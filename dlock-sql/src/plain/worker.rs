//! The task that owns the connection. It serves the requests one after another, renewals and
//! releases first.
//!
//! A request without an answer is remembered until its deadline has certainly passed. If its claim
//! is released before, the claim is released again at that time. A new request of the claim cancels
//! that; otherwise the second release would end the new grant.

use std::time::Duration;

use dlock_core::{
    AcquireRequest, Acquired, Certainty, ClaimId, ClaimState, Clock, Error, Exclusion, Finding,
    Guarantees, Instant, LockName, LockState, Mode, Released, Renewal, Scope,
};
use hashbrown::HashMap;
use tokio::{runtime::Handle, select};

use super::{
    PlainConn, Scheme, Statements,
    backend::{Form, MutexRequest, MutexStore, MutexTask},
    scheme::PlainTable,
};
use crate::engine::{DurabilityMonitor, Ends, Listed, PAGE, Range, RetryBudget, retry};

/// The largest number of remembered claims. Beyond that, a lock that a late request has taken is
/// held until its lease ends.
const MOST: usize = 4096;

/// Starts a backend over plain rows. `durability` records whether the database keeps the writes
/// that it has answered.
pub(crate) fn start<C: PlainConn>(
    runtime: &Handle,
    database: &str,
    durability: DurabilityMonitor,
    conn: C,
    scheme: Scheme,
    texts: Statements,
    response_timeout: Duration,
) -> MutexStore {
    let best = Guarantees::WEAKEST.with_exclusion(Exclusion::Restart).with_scope(Scope::Network);
    let seen = durability.clone();
    let promises = Box::new(move || scheme.guarantees(seen.promised(best)));
    let name = "the plain form (dlock.plain)";
    let form = Form { name, suffix: "plain", together: 1, promises };
    MutexStore::start(runtime, database, form, response_timeout, |requests| {
        let table = PlainTable::new(conn, texts, response_timeout);
        PlainWorker { table, scheme, deferred: DeferredReleases::default(), durability }
            .run(requests)
    })
}

#[derive(Debug)]
struct PlainWorker<C> {
    table: PlainTable<C>,
    scheme: Scheme,
    deferred: DeferredReleases,
    durability: DurabilityMonitor,
}

impl<C: PlainConn> PlainWorker<C> {
    /// Works until the last caller is dropped.
    async fn run(mut self, mut requests: Ends<MutexRequest>) {
        if let Ok(name) = LockName::new("dlock") {
            // The answer shows the clock. If the read fails, the first statement is refused because
            // of its deadline, and its answer shows the clock.
            let _ = self.table.read(&name).await;
        }
        let mut is_open = true;
        while is_open || self.deferred.due().is_some() {
            let due = self.deferred.due();
            select! {
                request = requests.recv(), if is_open => match request {
                    Some(request) => {
                        self.serve(request).await;
                        self.durability.used();
                    }
                    None => is_open = false,
                },
                () = self.durability.due() => self.durability.record_check(self.table.conn.is_durable().await),
                () = Clock::Boot.sleep_until(due.unwrap_or(Instant::from_nanos(0))), if due.is_some() => {
                    self.release_deferred(&requests).await;
                }
            }
        }
        self.table.conn.close().await;
    }

    /// Releases a claim once more, now that no request of it can arrive any more.
    async fn release_deferred(&mut self, requests: &Ends<MutexRequest>) {
        let Some((name, claim)) = self.deferred.take() else { return };
        match self.scheme.release(&mut self.table, &name, claim).await {
            Ok(true) => tracing::debug!(
                target: "dlock",
                name = %name,
                "late request of an earlier connection undone"
            ),
            Ok(false) => {}
            // The application has dropped the backend. The lease frees the lock.
            Err(_) if requests.is_closed() => {}
            Err(_) => self.deferred.again(name, claim, self.table.response_timeout),
        }
    }

    fn retry_budget(&self) -> RetryBudget {
        RetryBudget::of_all_names(self.table.response_timeout)
    }
}

impl<C: PlainConn> MutexTask for PlainWorker<C> {
    async fn acquire(&mut self, request: &AcquireRequest) -> Result<Acquired, Error> {
        let mut budget = self.retry_budget();
        self.deferred.requested(request.claim);
        loop {
            let sent = self.table.sending(request.lease);
            match self.scheme.acquire(&mut self.table, request, sent).await {
                Ok(acquired) => {
                    if acquired == Acquired::Busy {
                        // A try is over now. A waiter sends the claim again, which undoes this.
                        self.deferred.released(&request.name, request.claim);
                    }
                    return Ok(acquired);
                }
                Err(fault) => {
                    if fault.error.certainty() == Certainty::Unknown {
                        self.deferred.unanswered(request.claim, sent.over);
                    }
                    // Of several statements, an earlier one may have been applied.
                    let fault = fault.with_certainty(Certainty::Unknown);
                    budget.after(fault).await?;
                }
            }
        }
    }

    async fn renew(&mut self, renewals: &[Renewal]) -> Result<Vec<bool>, Error> {
        let mut kept = Vec::with_capacity(renewals.len());
        for renewal in renewals {
            // After its time the caller of a renewal could not name the cause of the failure.
            let longest = self.table.response_timeout.min(renewal.answer_within * 3 / 4);
            kept.push(retry!(RetryBudget::of_all_names(longest), {
                let sent = self.table.sending(renewal.answer_within);
                self.scheme.renew(&mut self.table, renewal, sent).await
            })?);
        }
        Ok(kept)
    }

    async fn release(&mut self, name: &LockName, claim: ClaimId) -> Result<Released, Error> {
        let mut budget = self.retry_budget();
        let released = loop {
            match self.scheme.release(&mut self.table, name, claim).await {
                Ok(true) => break Ok(Released::Released),
                // An earlier attempt, whose answer was lost, has released it.
                Ok(false) if budget.in_doubt() => break Ok(Released::Released),
                Ok(false) => break Ok(Released::AlreadyLost),
                Err(fault) => {
                    if let Err(error) = budget.after(fault).await {
                        break Err(error);
                    }
                }
            }
        };
        self.deferred.released(name, claim);
        released
    }

    async fn inspect(&mut self, name: &LockName) -> Result<LockState, Error> {
        let seen = retry!(self.retry_budget(), self.table.read(name).await)?;
        let Some(seen) = seen.row.filter(|seen| seen.is_held && seen.left > 0) else {
            return Ok(LockState::default());
        };
        // The holder may be another program, with a name that is not a claim.
        let claim = seen.holder.parse().unwrap_or(ClaimId::UNKNOWN);
        let remaining = Duration::from_micros(u64::try_from(seen.left).unwrap_or(0));
        let holder = ClaimState::new(claim, Mode::Exclusive, None, remaining);
        Ok(LockState::new(vec![holder], Vec::new(), None))
    }

    async fn list(&mut self, range: &Range) -> Result<Vec<Listed>, Error> {
        let statement = self.table.texts.range;
        retry!(self.retry_budget(), self.table.conn.range(statement, range, PAGE).await)
    }

    async fn examine(&mut self) -> Result<Vec<Finding>, Error> {
        retry!(self.retry_budget(), self.table.conn.examine().await)
    }
}

/// The claims with a request that may still arrive. Only the task uses them, so they need no lock.
#[derive(Debug, Default)]
struct DeferredReleases {
    /// The time when the request has no effect any more.
    unanswered: HashMap<ClaimId, Instant>,
    /// The claims to release again, with the time for each.
    released: HashMap<ClaimId, (LockName, Instant)>,
}

impl DeferredReleases {
    /// Records that a request of the claim was not answered. Its deadline has passed at `over`.
    fn unanswered(&mut self, claim: ClaimId, over: Instant) {
        let now = Clock::Boot.now();
        self.unanswered.retain(|_, over| now < *over);
        if self.unanswered.len() < MOST {
            self.unanswered.insert(claim, over);
        }
    }

    /// Records that the claim has ended, and is not held.
    fn released(&mut self, name: &LockName, claim: ClaimId) {
        if let Some(over) = self.unanswered.get(&claim) {
            self.released.insert(claim, (name.clone(), *over));
        }
    }

    /// Records that the claim is requested, perhaps again.
    fn requested(&mut self, claim: ClaimId) {
        self.released.remove(&claim);
    }

    /// Schedules another retry of the second release, which has failed.
    fn again(&mut self, name: LockName, claim: ClaimId, pause: Duration) {
        self.released.insert(claim, (name, Clock::Boot.now().saturating_add(pause)));
    }

    /// Returns the time when the first of the second releases is due.
    fn due(&self) -> Option<Instant> {
        self.released.values().map(|(_, due)| *due).min()
    }

    /// Removes and returns a claim whose second release is due.
    fn take(&mut self) -> Option<(LockName, ClaimId)> {
        let now = Clock::Boot.now();
        let claim = self.released.iter().find(|(_, (_, due))| *due <= now).map(|(id, _)| *id)?;
        self.unanswered.remove(&claim);
        self.released.remove(&claim).map(|(name, _)| (name, claim))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_claim_is_released_again_unless_requested_again() {
        let (mut deferred, name) = (DeferredReleases::default(), LockName::new("a").unwrap());
        let claim = ClaimId::from_bits;
        deferred.released(&name, claim(1));
        assert_eq!(deferred.due(), None, "all of it was answered");
        let over = Clock::Boot.now().saturating_add(Duration::from_millis(5));
        for n in [1, 2, 3] {
            deferred.unanswered(claim(n), over);
        }
        for n in [1, 2] {
            deferred.released(&name, claim(n));
        }
        deferred.requested(claim(2));
        assert_eq!(deferred.due(), Some(over));
        while Clock::Boot.now() < over {}
        assert_eq!(deferred.take(), Some((name.clone(), claim(1))));
        assert_eq!((deferred.take(), deferred.due()), (None, None));
        deferred.again(name, claim(1), Duration::ZERO);
        assert!(deferred.take().is_some());
    }
}

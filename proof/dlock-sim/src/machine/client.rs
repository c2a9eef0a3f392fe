//! The client: the contract of the core over single messages.

use std::{
    collections::BTreeMap,
    fmt,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use async_trait::async_trait;
use dlock_core::{
    AcquireRequest, Acquired, Answer, Backend, Certainty, Claim, ClaimId, Clock, Error, ErrorKind,
    Exclusion, Fairness, Fencing, FencingToken, Grant, Guarantees, Instant, LockName, LockState,
    Mode, Notes, OrphanRelease, Permits, Released, Renewal, Renewed, Scope, StoreClocks,
    StoreEvents, WakeUp,
    machine::{Granted, Op, Outcome, conflict, spent},
    sim::has_mistake,
};
use tokio::{
    sync::{Notify, oneshot},
    time::timeout,
};

use super::messages::{Applied, Request, Response, Validity, home_of, mail};
use crate::{
    faults::{Micros, micros},
    world,
};

/// How often a request is sent before its client gives up.
const SENDINGS: u32 = 3;
/// A waiter sends a heartbeat after this part of its lease.
const HEARTBEAT: u32 = 3;

/// The time before a request was first sent, and its answer.
type Answered = (Instant, Response);

/// The backend of one process.
pub(crate) struct MachineBackend(Arc<Client>);

struct Client {
    process: usize,
    response_timeout: Duration,
    clocks: StoreClocks,
    known: Mutex<Known>,
}

#[derive(Debug, Default)]
struct Known {
    /// The latest epoch that an answer has shown.
    epoch: u64,
    /// The claims with an acquire of which copies may arrive until then, by the server's clock.
    barred_until: BTreeMap<ClaimId, Micros>,
}

impl Known {
    /// Records that copies of an acquire of these claims may arrive until then.
    fn will_arrive(&mut self, requests: &[AcquireRequest], deadline: Micros) {
        for request in requests {
            let until = self.barred_until.entry(request.claim).or_default();
            *until = deadline.max(*until);
        }
    }
}

/// A request that waits for its answer.
struct Pending {
    id: u64,
    answer: oneshot::Receiver<Response>,
}

impl Pending {
    fn new() -> Self {
        let (sender, answer) = oneshot::channel();
        let id = mail(|mail| {
            mail.requests += 1;
            mail.answers.insert(mail.requests, sender);
            mail.requests
        });
        Self { id, answer }
    }
}

impl Drop for Pending {
    fn drop(&mut self) {
        drop(mail(|mail| mail.answers.remove(&self.id)));
    }
}

/// A claim that waits for its notification.
struct Turn {
    claim: ClaimId,
    comes: Arc<Notify>,
}

impl Turn {
    fn of(claim: ClaimId) -> Self {
        let comes = Arc::new(Notify::new());
        mail(|mail| mail.turns.insert(claim, Arc::clone(&comes)));
        Self { claim, comes }
    }
}

impl Drop for Turn {
    fn drop(&mut self) {
        mail(|mail| mail.turns.remove(&self.claim));
    }
}

impl MachineBackend {
    pub(crate) fn new(process: usize, response_timeout: Duration) -> Self {
        let (clocks, known) = (StoreClocks::new(), Mutex::default());
        Self(Arc::new(Client { process, response_timeout, clocks, known }))
    }
}

impl Client {
    fn known(&self) -> MutexGuard<'_, Known> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns how long to wait for the answer to a request with this lease.
    fn limit(&self, lease: Duration) -> Duration {
        self.response_timeout.min(lease)
    }

    /// Sends a request until it is answered.
    async fn exchange(&self, request: Request, limit: Duration) -> Result<Answered, Error> {
        let (sent, request, mut pending) = (Clock::Boot.now(), Arc::new(request), Pending::new());
        let answered = timeout(limit, async {
            loop {
                let request = Arc::clone(&request);
                world::with(|world| world.request(self.process, pending.id, request));
                if let Ok(answer) = timeout(limit / SENDINGS, &mut pending.answer).await {
                    return answer;
                }
            }
        });
        let Ok(Ok(response)) = answered.await else {
            let text = format!("no answer within {limit:?}: check the server and the network");
            let error = Error::new(ErrorKind::Unavailable, text);
            return Err(match has_mistake("unknown-as-not-applied") {
                true => error.with_certainty(Certainty::NotApplied),
                false => error,
            });
        };
        let mut known = self.known();
        known.epoch = known.epoch.max(response.epoch);
        drop(known);
        self.clocks.observe(0, response.clock, sent);
        Ok((sent, response))
    }

    /// Returns until when an acquire may be executed that is sent now.
    async fn validity(&self, limit: Duration) -> Result<Validity, Error> {
        if self.clocks.deadline(0, limit).is_none() {
            self.exchange(Request::Sample, limit).await?;
        }
        let deadline = self.clocks.deadline(0, limit).unwrap_or(0);
        Ok(Validity { deadline, epoch: self.known().epoch })
    }

    async fn acquire(&self, requests: &[AcquireRequest]) -> Result<Vec<Acquired>, Error> {
        let lease = requests.iter().map(|request| request.lease).min().unwrap_or_default();
        let limit = self.limit(lease);
        let valid = self.validity(limit).await;
        let valid = valid.map_err(|error| error.with_certainty(Certainty::NotApplied))?;
        let (mut sent, mut response) = self.send_acquire(requests, valid, limit).await?;
        if is_late(&response) {
            // The answer has shown the clock and the epoch.
            let valid = self.validity(limit).await?;
            (sent, response) = self.send_acquire(requests, valid, limit).await?;
        }
        if is_late(&response) {
            let text = "the acquire came too late: check the clock of the server and the network";
            return Err(Error::new(ErrorKind::Unavailable, text));
        }
        let grant = |granted| self.grant(&granted, sent, response.clock).map(Acquired::Granted);
        let answers = requests.iter().zip(&response.applied);
        let answers = answers.map(|(request, applied)| match applied.outcome {
            Outcome::Granted(granted) => grant(granted),
            Outcome::Queued { .. } => Ok(Acquired::Queued),
            Outcome::Conflict { capacity } => Err(conflict(request.mode, capacity)),
            Outcome::Spent => Err(spent()),
            _ => Ok(Acquired::Busy),
        });
        answers.collect()
    }

    async fn send_acquire(
        &self,
        requests: &[AcquireRequest],
        valid: Validity,
        limit: Duration,
    ) -> Result<Answered, Error> {
        self.known().will_arrive(requests, valid.deadline);
        let ops = requests.iter().map(|request| {
            let op = Op::Acquire {
                claim: request.claim,
                mode: request.mode,
                lease: micros(request.lease),
                block: request.tokens,
                queue: request.queue,
                home: home_of(self.process),
                note: request.note.clone(),
            };
            (request.name.clone(), op)
        });
        self.exchange(Request::Apply { ops: ops.collect(), valid: Some(valid) }, limit).await
    }

    /// Returns the grant of an answer to a request that was sent at `sent`.
    fn grant(&self, granted: &Granted, sent: Instant, clock: Micros) -> Result<Grant, Error> {
        let ago = Duration::from_micros(clock.saturating_sub(granted.since));
        let since = match has_mistake("lease-from-answer") {
            true => Clock::Boot.now(),
            false => sent.saturating_sub(ago),
        };
        Ok(Grant::new(FencingToken::new(granted.token)?, granted.block, since))
    }

    async fn granted(&self, request: &AcquireRequest) -> Result<Grant, Error> {
        // From before the first poll, so that no notification is missed.
        let mut turn = Some(Turn::of(request.claim));
        if has_mistake("lost-wake-up") {
            turn = None;
        }
        loop {
            let ops = vec![renewal(&request.as_claim(), request.mode, request.lease, false)];
            let poll = Request::Apply { ops, valid: None };
            let (sent, response) = self.exchange(poll, self.limit(request.lease)).await?;
            let Some(applied) = response.applied.first() else { continue };
            match applied.outcome {
                Outcome::Granted(granted) => return self.grant(&granted, sent, response.clock),
                Outcome::Queued { .. } => {}
                Outcome::Spent => return Err(spent()),
                _ => {
                    let text = "the claim expired in the queue: acquire the lock again";
                    return Err(Error::new(ErrorKind::NotHeld, text));
                }
            }
            let turn = turn.get_or_insert_with(|| Turn::of(request.claim));
            if has_mistake("lost-wake-up") || has_mistake("no-notification") {
                turn.comes.notified().await;
            }
            // After the first expiry the poll itself grants the lock, if no other client sends
            // anything.
            let expiry = applied.next_expiry.unwrap_or(Micros::MAX).saturating_sub(response.clock);
            let expiry = Duration::from_micros(expiry.saturating_add(1000));
            let _ = timeout(expiry.min(request.lease / HEARTBEAT), turn.comes.notified()).await;
        }
    }

    async fn renew(&self, renewals: &[Renewal]) -> Result<Vec<Renewed>, Error> {
        let ops = renewals.iter().map(|one| renewal(&one.claim, one.mode, one.lease, one.is_last));
        let longest = renewals.iter().map(|one| one.lease).max().unwrap_or_default();
        let mut limit = self.limit(longest);
        if has_mistake("unanswered-renewal-kept") {
            // Before the core stops to wait.
            limit = limit.min(longest / 4);
        }
        let request = Request::Apply { ops: ops.collect(), valid: None };
        let (_, response) = match self.exchange(request, limit).await {
            Err(_) if has_mistake("unanswered-renewal-kept") => {
                return Ok(vec![Renewed::Kept; renewals.len()]);
            }
            answer => answer?,
        };
        let answers = renewals.iter().zip(&response.applied).map(|(renewal, applied)| {
            match has_mistake("failed-renewal-kept") {
                true => Renewed::Kept,
                false => renewed(renewal.token, applied),
            }
        });
        Ok(answers.collect())
    }

    async fn release(&self, claim: &Claim) -> Result<Released, Error> {
        if claim.used == 0 && has_mistake("cancel-not-sent") {
            return Ok(Released::Released);
        }
        let bar = self.known().barred_until.get(&claim.id).copied().unwrap_or(0);
        let op = Op::Release { claim: claim.id, used: claim.used, bar };
        let request = Request::Apply { ops: vec![(claim.name.clone(), op)], valid: None };
        let (_, response) = self.exchange(request, self.response_timeout).await?;
        self.known().barred_until.remove(&claim.id);
        Ok(match response.applied.first().map(|applied| applied.outcome) {
            Some(Outcome::Released) => Released::Released,
            _ => Released::AlreadyLost,
        })
    }
}

/// Returns the answer to the renewal of a grant with this token.
fn renewed(token: Option<FencingToken>, applied: &Applied) -> Renewed {
    match (applied.outcome, token) {
        // The server has lost the grant, but not the place in the queue, and has granted the claim
        // anew.
        (Outcome::Granted(granted), Some(own)) if granted.token != own.get() => Renewed::Forgotten,
        (Outcome::Granted(_), _) => Renewed::Kept,
        (_, Some(own)) if own.get() > applied.last_token => Renewed::Forgotten,
        _ => Renewed::Lost,
    }
}

fn is_late(response: &Response) -> bool {
    response.applied.iter().any(|applied| applied.outcome == Outcome::Late)
}

fn renewal(claim: &Claim, mode: Mode, lease: Duration, is_last: bool) -> (LockName, Op) {
    let op = Op::Renew { claim: claim.id, mode, lease: micros(lease), is_last };
    (claim.name.clone(), op)
}

#[async_trait]
impl Backend for MachineBackend {
    fn store(&self) -> &str {
        "machine:store-0"
    }

    fn guarantees(&self) -> Guarantees {
        Guarantees::WEAKEST
            .with_exclusion(Exclusion::Restart)
            .with_fencing(Fencing::Clock)
            .with_orphan_release(OrphanRelease::LeaseEnd)
            .with_fairness(Fairness::Fifo)
            .with_wake_up(WakeUp::Push)
            .with_scope(Scope::Network)
            .with_permits(Permits::Counted)
            .with_notes(Notes::Kept)
    }

    fn response_timeout(&self) -> Duration {
        self.0.response_timeout
    }

    fn events(&self) -> Option<StoreEvents> {
        Some(self.0.clocks.events())
    }

    fn acquire(&self, request: &AcquireRequest) -> Answer<Acquired> {
        let (client, request) = (Arc::clone(&self.0), request.clone());
        Answer::later(async move {
            let answers = client.acquire(std::slice::from_ref(&request)).await?;
            Ok(answers.first().copied().unwrap_or(Acquired::Busy))
        })
    }

    async fn granted(&self, request: &AcquireRequest) -> Result<Grant, Error> {
        self.0.granted(request).await
    }

    async fn renew(&self, renewals: &[Renewal]) -> Result<Vec<Renewed>, Error> {
        self.0.renew(renewals).await
    }

    fn release(&self, claim: &Claim) -> Answer<Released> {
        let (client, claim) = (Arc::clone(&self.0), claim.clone());
        Answer::later(async move { client.release(&claim).await })
    }

    async fn inspect(&self, name: &LockName) -> Result<LockState, Error> {
        let request = Request::Inspect(name.clone());
        Ok(self.0.exchange(request, self.0.response_timeout).await?.1.state)
    }

    fn acquire_all(&self, requests: &[AcquireRequest]) -> Option<Answer<Vec<Acquired>>> {
        let (client, requests) = (Arc::clone(&self.0), requests.to_vec());
        Some(Answer::later(async move {
            // After a refusal of one claim the others may be in their queues.
            let answers = client.acquire(&requests).await;
            answers.map_err(|error| error.with_certainty(Certainty::Unknown))
        }))
    }
}

impl fmt::Debug for MachineBackend {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("MachineBackend").field("process", &self.0.process).finish_non_exhaustive()
    }
}

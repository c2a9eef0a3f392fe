//! A small store in memory, which is correct unless it has a fault. It shares no code with the memory
//! backend and with the models.

mod admin;

use std::{
    collections::BTreeMap,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    time::Duration,
};

use async_trait::async_trait;
use dlock_core::{
    AcquireRequest, Acquired, Admin, Answer, Backend, Certainty, Claim, ClaimId, ClaimState,
    ConfigIssue, Error, ErrorKind, Exclusion, Fairness, Fencing, FencingToken, Grant, Guarantees,
    Instant, LockName, LockState, Mode, Notes, Permits, Queue, Released, Renewal, Renewed, WakeUp,
};
use parking_lot::Mutex;
use tokio::{runtime::Handle, sync::Notify};

use crate::{
    fault::Fault,
    rules::{Entry, Lock, SHIFT, applied, later, now, read_late, read_now},
};

/// A store with a fault. Clones are clients of one store.
#[derive(Clone, Debug)]
pub(crate) struct Toy {
    store: String,
    fault: Fault,
    modest: bool,
    /// The number of this client. `clients` is the number of all clients.
    client: u64,
    clients: Arc<AtomicU64>,
    /// If set, the client loses the answer to each acquire, and gets an error with this certainty.
    loses: Option<Certainty>,
    names: Arc<Mutex<BTreeMap<String, Lock>>>,
    /// Whether a renewal of this client has begun and not ended.
    renewing: Arc<AtomicBool>,
    /// Held while claims join several queues, so that two sets do not interleave.
    entering: Arc<Mutex<()>>,
    changed: Arc<Notify>,
    /// The runtime of the client.
    runtime: Option<Handle>,
}

impl Toy {
    pub(crate) fn new(fault: Fault) -> Self {
        let store = format!("toy:{}", ClaimId::random());
        let (names, entering, changed, clients, renewing) = Default::default();
        let (modest, client, loses) = (false, 0, None);
        let runtime = Handle::try_current().ok();
        Self {
            store,
            fault,
            modest,
            client,
            clients,
            loses,
            names,
            renewing,
            entering,
            changed,
            runtime,
        }
    }

    /// Returns a correct store with the weakest guarantees.
    pub(crate) fn modest() -> Self {
        Self { modest: true, ..Self::new(Fault::None) }
    }

    /// Returns another client of the store.
    pub(crate) fn another(&self) -> Self {
        let client = self.clients.fetch_add(1, Ordering::Relaxed) + 1;
        let store = match self.fault {
            Fault::StoreNameByClient => format!("{} by {client}", self.store),
            _ => self.store.clone(),
        };
        let runtime = Handle::try_current().ok();
        Self { client, store, runtime, renewing: Arc::default(), ..self.clone() }
    }

    /// Returns a client that loses the answers to acquires, and gets errors of this certainty.
    pub(crate) fn losing(certainty: Certainty) -> Self {
        Self { loses: Some(certainty), ..Self::new(Fault::None) }
    }

    /// Loses all data of a name.
    pub(crate) fn forget(&self, name: &LockName) {
        self.names.lock().remove(&self.key(name));
    }

    /// Returns the records of a name.
    pub(crate) fn records(&self, name: &LockName) -> Vec<String> {
        let names = self.names.lock();
        let lock = names.get(&self.key(name));
        let entries = lock.iter().flat_map(|lock| &lock.entries);
        // The next request removes expired claims.
        let alive = entries.filter(|entry| entry.until > now());
        let mut records: Vec<String> = alive.map(|entry| format!("{entry:?}")).collect();
        if self.fault == Fault::LeavesRecords && lock.is_some() {
            records.push("a record of former claims".to_owned());
        }
        records
    }

    fn key(&self, name: &LockName) -> String {
        let name = name.as_str();
        match self.fault {
            Fault::FoldsNames => name.to_lowercase(),
            Fault::TrimsNames => name.trim_end().to_owned(),
            Fault::TableByClient => format!("{name} of {}", self.client),
            Fault::CutsNames => name.chars().take(255).collect(),
            _ => name.to_owned(),
        }
    }

    /// Expires leases of a lock, changes it, and grants the claims that fit.
    fn with<T>(&self, name: &LockName, change: impl FnOnce(&mut Lock, Instant) -> T) -> T {
        let mut names = self.names.lock();
        let (lock, now) = (names.entry(self.key(name)).or_default(), now());
        lock.end_leases(self.fault, now);
        let result = change(lock, now);
        lock.grant(self.fault, now);
        if self.fault == Fault::ResetsTokens && lock.entries.is_empty() {
            lock.last = 0;
        }
        result
    }

    fn acquire_now(&self, request: &AcquireRequest) -> Result<Acquired, Error> {
        let fault = self.fault;
        self.with(&request.name, |lock, now| {
            let capacity =
                |mode: Mode| if fault == Fault::AnyCapacity { 0 } else { mode.capacity() };
            let other = lock.entries.iter().any(|e| capacity(e.mode) != capacity(request.mode));
            let known = lock.find(request.claim).is_some() && fault != Fault::CountsAResendTwice;
            if other && !known {
                let text = "the name is used by another kind of lock: use one kind";
                return Err(Error::config(ConfigIssue::Capacity, text).with_lock(&request.name));
            }
            if let Some(entry) = lock.find(request.claim) {
                match fault {
                    Fault::AdoptsTheOldClaim if entry.token.is_some() => entry.since = now,
                    Fault::ResendShortensTheLease => {
                        entry.until = now.saturating_add(request.lease);
                    }
                    Fault::ResendKeepsTheLease => {}
                    _ if entry.is_final => {}
                    _ => entry.until = entry.until.max(now.saturating_add(request.lease)),
                }
            }
            if !known {
                lock.join(request, fault, now);
                if let Some(entry) = lock.find(request.claim) {
                    entry.client = self.client;
                }
            } else if fault == Fault::ResendLosesThePosition {
                lock.requeue(request.claim);
            }
            lock.grant(fault, now);
            if fault == Fault::NewTokenForAResend && known {
                lock.new_token(request.claim);
            }
            let grant = lock.find(request.claim).and_then(|entry| entry.grant());
            match grant {
                Some(grant) => Ok(Acquired::Granted(grant)),
                None if request.queue == Queue::Enqueue => Ok(Acquired::Queued),
                None => {
                    if fault != Fault::BusyTryStays {
                        lock.entries.retain(|entry| entry.id != request.claim);
                    }
                    Ok(Acquired::Busy)
                }
            }
        })
    }

    fn release_now(&self, claim: &Claim) -> Released {
        let fault = self.fault;
        let released = self.with(&claim.name, |lock, _| {
            let at = lock.entries.iter().position(|entry| entry.id == claim.id);
            let held = at.is_some_and(|at| lock.entries[at].token.is_some());
            let first = (!lock.entries.is_empty()).then_some(0);
            let removed = match fault {
                Fault::ReleasesWithoutOwnerCheck => first,
                Fault::CancelReleasesTheHolder if at.is_some() && !held => first,
                Fault::ReleasesTheNextHolder if at.is_none() => first,
                Fault::CancelledWaiterStays if !held => None,
                _ => at,
            };
            if let Some(removed) = removed {
                let released = lock.entries.remove(removed);
                lock.take_back(&released, claim.used, fault);
            }
            lock.stuck = match fault {
                Fault::ReleaseGrantsNobody => held,
                Fault::CancelGrantsNobody => at.is_some() && !held,
                _ => false,
            };
            match at {
                Some(_) => Released::Released,
                None if fault == Fault::NeverAlreadyLost => Released::Released,
                None => Released::AlreadyLost,
            }
        });
        self.notify();
        released
    }

    fn renew_now(&self, renewal: &Renewal) -> Renewed {
        let fault = self.fault;
        let renewed = self.with(&renewal.claim.name, |lock, now| {
            let weaker = lock.find(renewal.claim.id).is_some_and(|e| e.mode != renewal.mode);
            if weaker && fault == Fault::DowngradeGrantsAWriter {
                lock.requeue(renewal.claim.id);
            }
            lock.stuck = weaker && fault == Fault::DowngradeGrantsNobody;
            let empty = lock.entries.is_empty();
            match lock.find(renewal.claim.id) {
                Some(entry) if entry.is_of_another(renewal) && fault != Fault::RenewsAnyGrant => {
                    Renewed::Forgotten
                }
                Some(entry)
                    if entry.token.is_some()
                        || weaker && fault == Fault::DowngradeGrantsAWriter
                        || fault == Fault::RenewsWaiters =>
                {
                    let keeps_the_lease = fault == Fault::RenewalDoesNothing
                        || weaker && fault == Fault::DowngradeKeepsTheLease;
                    if !keeps_the_lease {
                        entry.renew(renewal.lease, renewal.is_last, fault, now);
                        if fault == Fault::RenewalFromTheTransaction {
                            entry.until = entry.until.saturating_sub(SHIFT);
                        }
                    }
                    if fault == Fault::RenewalForgetsTheNote {
                        entry.note = None;
                    }
                    let stronger = renewal.mode.weight() > entry.mode.weight();
                    let ignored = match fault {
                        Fault::DowngradeIgnored => true,
                        Fault::RenewalStrengthens => false,
                        _ => stronger,
                    };
                    if !ignored {
                        entry.mode = renewal.mode;
                    }
                    Renewed::Kept
                }
                None if fault == Fault::RenewsExpiredClaims && empty => {
                    let request = AcquireRequest::new(
                        renewal.claim.name.clone(),
                        renewal.mode,
                        renewal.lease,
                    )
                    .with_claim(renewal.claim.id);
                    lock.join(&request, fault, now);
                    Renewed::Kept
                }
                _ if fault == Fault::RenewalAlwaysConfirmed => Renewed::Kept,
                None if fault == Fault::RenewsTheNextHolder && !empty => {
                    let next = &mut lock.entries[0];
                    next.until = now.saturating_add(renewal.lease);
                    Renewed::Kept
                }
                _ => Renewed::Lost,
            }
        });
        let share_a_lease = match renewal.mode {
            Mode::Shared => fault == Fault::ReadersShareALease,
            Mode::Permits { .. } => fault == Fault::PermitsShareALease,
            _ => false,
        };
        if share_a_lease && renewed == Renewed::Kept {
            self.with(&renewal.claim.name, |lock, now| {
                lock.extend_all(now.saturating_add(renewal.lease));
            });
        }
        self.notify();
        renewed
    }

    /// Returns whether a claim holds the lock or is in the queue.
    fn is_there(&self, claim: &Claim) -> bool {
        self.with(&claim.name, |lock, _| lock.find(claim.id).is_some())
    }

    /// Returns whether a claim is in the queue.
    fn is_waiting(&self, claim: &Claim) -> bool {
        self.with(&claim.name, |lock, _| lock.find(claim.id).is_some_and(|e| e.token.is_none()))
    }

    fn notify(&self) {
        if self.fault != Fault::NeverNotifies {
            self.changed.notify_waiters();
        }
    }

    /// Returns the grant of a claim, if it has one. The request is a heartbeat of the waiter.
    fn standing(&self, request: &AcquireRequest) -> Result<Option<Grant>, Error> {
        let fault = self.fault;
        self.with(&request.name, |lock, now| {
            if fault == Fault::RejoinsSilently && lock.find(request.claim).is_none() {
                lock.join(request, fault, now);
            }
            lock.grant(fault, now);
            let last = lock.last;
            let Some(entry) = lock.find(request.claim) else {
                if fault == Fault::TrustsTheWakeUp {
                    let token = FencingToken::new(last + 1)?;
                    return Ok(Some(Grant::new(token, request.tokens, now)));
                }
                let text = "the claim is not in the queue any more: retry";
                return Err(Error::new(ErrorKind::NotHeld, text).with_lock(&request.name));
            };
            if entry.token.is_none() && fault != Fault::ExpiresLiveWaiters {
                entry.until = now.saturating_add(request.lease);
            }
            Ok(entry.grant())
        })
    }
}

#[async_trait]
impl Backend for Toy {
    fn store(&self) -> &str {
        &self.store
    }

    fn guarantees(&self) -> Guarantees {
        if self.modest {
            return Guarantees::WEAKEST;
        }
        Guarantees::WEAKEST
            .with_exclusion(Exclusion::Nothing)
            .with_fencing(Fencing::Volatile)
            .with_fairness(Fairness::Fifo)
            .with_wake_up(WakeUp::Push)
            .with_permits(Permits::Counted)
            .with_notes(Notes::Kept)
    }

    fn acquire(&self, request: &AcquireRequest) -> Answer<Acquired> {
        let answer = self.acquire_now(request);
        if let Some(certainty) = self.loses {
            let lost = Error::new(ErrorKind::Unavailable, "the answer was lost: retry");
            return Answer::ready(Err(lost.with_certainty(certainty)));
        }
        match self.fault {
            Fault::IgnoresTheMargin => {
                let margin = request.lease / 100 + Duration::from_millis(10);
                Answer::ready(answer.map(|acquired| later(acquired, margin)))
            }
            Fault::LeaseFromTheReply => Answer::later(async move {
                tokio::time::sleep(SHIFT).await;
                answer.map(|acquired| later(acquired, SHIFT))
            }),
            Fault::LeaseFromTheAnswer => Answer::later(async move {
                read_late().await;
                answer.map(read_now)
            }),
            // The flag never says that the request was sent.
            Fault::GivesUpSentAcquires => Answer::unsent(|_| async move { answer }),
            _ => Answer::ready(answer),
        }
    }

    async fn granted(&self, request: &AcquireRequest) -> Result<Grant, Error> {
        if self.fault == Fault::WaitingLosesThePosition {
            self.with(&request.name, |lock, _| lock.requeue(request.claim));
        }
        loop {
            let changed = self.changed.notified();
            match self.fault {
                Fault::LosesWakeUps => changed.await,
                Fault::PanicsWithoutItsRuntime => {
                    let pause = tokio::time::sleep(Duration::from_millis(5));
                    let runtime = self.runtime.as_ref().expect("a runtime");
                    runtime.spawn(pause).await.expect("the runtime of the client lives");
                }
                Fault::NoWakeUpAtLeaseEnd | Fault::NeverNotifies => {
                    if let Some(grant) = self.standing(request)? {
                        return Ok(grant);
                    }
                    changed.await;
                }
                _ => {
                    let _ = tokio::time::timeout(Duration::from_millis(5), changed).await;
                }
            }
            if let Some(grant) = self.standing(request)? {
                if self.fault == Fault::LeaseFromTheWakeUp {
                    read_late().await;
                    return Ok(Grant::new(grant.token, grant.tokens, now()));
                }
                return Ok(grant);
            }
        }
    }

    async fn renew(&self, renewals: &[Renewal]) -> Result<Vec<Renewed>, Error> {
        if self.fault == Fault::DroppedRenewalBlocks {
            while self.renewing.swap(true, Ordering::Relaxed) {
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
            tokio::task::yield_now().await;
            self.renewing.store(false, Ordering::Relaxed);
        }
        if self.fault == Fault::RenewsTheFirstOnly {
            let first = renewals.first().map(|first| self.renew_now(first));
            return Ok(renewals.iter().map(|_| first.unwrap_or(Renewed::Kept)).collect());
        }
        let most = if self.fault == Fault::RenewsTheFirst64 { 64 } else { usize::MAX };
        let renewals = applied(renewals, self.fault);
        let confirms_waiters = self.fault == Fault::RenewsWaitersInBatches && renewals.len() > 1;
        let last_of_its_lock = |renewal: &Renewal| {
            renewals.iter().rposition(|other| other.claim.name == renewal.claim.name)
        };
        let one_of_a_lock = self.fault == Fault::BatchRenewsOneOfALock;
        let renew = |(at, renewal): (usize, &Renewal)| {
            let is_earlier = one_of_a_lock && last_of_its_lock(renewal) != Some(at);
            let is_skipped = is_earlier && self.is_there(&renewal.claim)
                || confirms_waiters && self.is_waiting(&renewal.claim);
            if is_skipped { Renewed::Kept } else { self.renew_now(renewal) }
        };
        let mut answers: Vec<_> = renewals.iter().take(most).enumerate().map(renew).collect();
        if self.fault == Fault::BatchAnswersByLock {
            let last = |renewal| last_of_its_lock(renewal).map(|last| answers[last]);
            answers = renewals.iter().filter_map(last).collect();
        }
        answers.resize(renewals.len(), Renewed::Kept);
        Ok(answers)
    }

    fn release(&self, claim: &Claim) -> Answer<Released> {
        Answer::ready(Ok(self.release_now(claim)))
    }

    async fn inspect(&self, name: &LockName) -> Result<LockState, Error> {
        let mut lock = self.names.lock().get(&self.key(name)).cloned().unwrap_or_default();
        let now = now();
        if self.fault != Fault::InspectShowsExpired {
            lock.end_leases(self.fault, now);
        }
        let of = |held: bool| -> Vec<ClaimState> {
            let entries = lock.entries.iter().filter(|entry| entry.token.is_some() == held);
            let state = |entry: &Entry| {
                ClaimState::new(
                    entry.id,
                    match self.fault {
                        Fault::InspectShowsExclusiveOnly => Mode::Exclusive,
                        _ => entry.mode,
                    },
                    entry.token.and_then(|token| FencingToken::new(token).ok()),
                    match self.fault {
                        Fault::InspectShowsTheWholeLease => entry.lease,
                        _ => entry.until.since(now),
                    },
                )
                .with_age(lock.age(entry, self.fault, now))
                .with_note(lock.note(entry, self.fault).filter(|_| !self.modest))
            };
            entries.map(state).collect()
        };
        let forgets = self.fault == Fault::ForgetsTheLastToken && lock.entries.is_empty();
        let last = if forgets { 0 } else { lock.last };
        Ok(LockState::new(of(true), of(false), FencingToken::new(last).ok()))
    }

    fn admin(&self) -> Option<&dyn Admin> {
        Some(self)
    }

    fn acquire_all(&self, requests: &[AcquireRequest]) -> Option<Answer<Vec<Acquired>>> {
        match self.fault {
            Fault::LeaseFromTheReply => return None,
            Fault::SomeClientsAcquireOneByOne if self.client.is_multiple_of(2) => return None,
            _ => {}
        }
        let _entering = self.entering.lock();
        let mut leases = requests.iter().map(|request| request.lease);
        let one_lease = match self.fault {
            Fault::SetHasTheFirstLease => leases.next(),
            Fault::SetHasTheShortestLease => leases.min(),
            _ => None,
        };
        let mut answers = Vec::new();
        for request in requests {
            let lease = one_lease.unwrap_or(request.lease);
            match self.acquire_now(&request.clone().with_lease(lease)) {
                Ok(acquired) => answers.push(acquired),
                Err(error) => {
                    for request in requests {
                        self.release_now(&request.as_claim());
                    }
                    return Some(Answer::ready(Err(error)));
                }
            }
        }
        if self.fault == Fault::KeepsPartOfASet && answers.contains(&Acquired::Busy) {
            answers.fill(Acquired::Busy);
        }
        Some(Answer::ready(Ok(answers)))
    }
}

//! One acquisition: sends the claim, waits in the store's queue, and cleans up if the caller's
//! future is dropped at any await.
//!
//! 1. The claim is sent with a random id. A request that waits too long for its turn in the client
//!    is not sent: see [`Engine::send_by`]. An error whose certainty is unknown is retried with the
//!    same id, so that a claim whose answer was lost is found again, and is not granted twice.
//! 2. A queued claim waits with `granted`. If its place in the queue has expired, because this
//!    process was stopped, the acquisition starts again with a new id.
//! 3. A grant becomes a hold, unless its lease has expired in transit.
//!
//! [`Stage`] records at every await whether the store may know the claim. Dropping the attempt then
//! cancels it: [`cancel`]. The kit's `cancel` cases drop the future at every poll. If the process
//! dies, the lease of the claim, waiting or granted, frees the lock.

pub(crate) mod handoff;

use std::{error::Error as _, sync::Arc, time::Duration};

use crate::{
    AcquireRequest, Acquired, Answer, Certainty, ClaimId, Error, ErrorKind, Grant, LockName,
    LockOptions, Mode,
    engine::{Engine, cancel::cancel, hold_ref::HoldRef},
    hold::{
        Hold,
        local_deadline::{holder_lease, valid_until},
        local_queue::LocalQueue,
    },
    support::{
        labels::QueuedIn,
        meter::Waiting,
        retry::{PAUSES, RetryBudget, Wait, Why, pause, within},
        tasks::Ticket,
    },
    sync::time::Instant as Timer,
};

/// Acquires the lock. Returns `None` if it is busy and the caller does not wait.
///
/// For a caller that waits, requests to an unreachable store are retried for one lease, with the
/// same claim.
pub(crate) async fn take(
    engine: &Arc<Engine>,
    name: &LockName,
    mode: Mode,
    options: LockOptions,
    tokens: u32,
    queue: Option<&Arc<LocalQueue<Hold>>>,
    wait: Wait,
) -> Result<Option<HoldRef>, Error> {
    engine.check_open()?;
    let request = AcquireRequest {
        name: name.clone(),
        claim: ClaimId::random(),
        mode,
        lease: engine.lease(options)?,
        queue: wait.queue(),
        tokens,
        note: None,
    };
    let stage = match engine.backend.acquire(&request).try_ready() {
        // The uncontended path of a store in this process: no wait, and nothing to clean up.
        Ok(Ok(Acquired::Granted(grant))) => {
            return Ok(Some(HoldRef::for_grant(engine, request, grant, options, queue.cloned())));
        }
        Ok(answer) => Stage::Sending(Answer::ready(answer)),
        Err(later) => Stage::Sending(later),
    };
    let mut attempt = Attempt::queued(engine, request, options);
    attempt.local = queue.cloned();
    attempt.alone = true;
    attempt.stage = stage;
    let taken = attempt.run(wait).await;
    taken.map_err(|error| attempt.explain(error))
}

/// A claim, from its first request to a hold.
pub(crate) struct Attempt<'a> {
    engine: &'a Arc<Engine>,
    options: LockOptions,
    request: AcquireRequest,
    /// The local queue, if this task is its leader.
    local: Option<Arc<LocalQueue<Hold>>>,
    /// Whether the claim may join its queue again. A claim of a multi-lock may not: another order
    /// in one of its queues could deadlock with another multi-lock.
    alone: bool,
    /// Whether the store may know the claim from an earlier request: one that was queued, or whose
    /// outcome is unknown. Then a request that was not applied proves nothing about the claim.
    is_known: bool,
    /// The last failure of the store, if it has not answered since.
    last: Option<Error>,
    stage: Stage,
    _waiting: Waiting<'a>,
    /// Shutdown waits until it is dropped.
    _ticket: Ticket,
}

enum Stage {
    /// The store does not know the claim, or it is settled.
    Clear,
    /// The claim is being sent.
    Sending(Answer<Acquired>),
    /// The store may know the claim.
    Known,
}

impl<'a> Attempt<'a> {
    /// Creates one of several claims that entered their queues together.
    pub(crate) fn queued(
        engine: &'a Arc<Engine>,
        request: AcquireRequest,
        options: LockOptions,
    ) -> Self {
        Self {
            engine,
            options,
            request,
            local: None,
            alone: false,
            is_known: false,
            last: None,
            stage: Stage::Known,
            _waiting: engine.meter.wait(),
            _ticket: engine.tasks.ticket(),
        }
    }

    /// Turns the store's grant into a hold.
    pub(crate) fn settle(&mut self, grant: Grant) -> HoldRef {
        self.stage = Stage::Clear;
        let (request, local) = (self.request.clone(), self.local.take());
        HoldRef::for_grant(self.engine, request, grant, self.options, local)
    }

    /// Records that the store does not have the claim.
    pub(crate) fn forget(mut self) {
        self.stage = Stage::Clear;
    }

    /// Runs the claim to a hold, to `None` if the lock is busy, or to an error.
    ///
    /// The parts that an uncontended lock does not reach are boxed, because there may be many of
    /// these futures at a time.
    pub(crate) async fn run(&mut self, wait: Wait) -> Result<Option<HoldRef>, Error> {
        let deadline = wait.deadline();
        let answer_by = self.engine.answer_by(wait);
        let (mut budget, mut too_slow) = (RetryBudget::default(), RetryBudget::default());
        let mut restarts = None;
        let mut queued = !self.alone;
        let mut waits_since = None;
        loop {
            if queued && waits_since.is_none() {
                waits_since = Some(self.engine.clock.now());
                self.engine.meter.queued(QueuedIn::Store);
            }
            let began = self.engine.clock.now();
            let answer = if queued {
                let granted = self.engine.backend.granted(&self.request);
                let granted = within(
                    deadline,
                    &self.request.name,
                    self.engine.watch(&self.request.name, self.options.lease(), granted),
                );
                Box::pin(self.engine.while_open(granted)).await.map(Acquired::Granted)
            } else {
                self.send(wait, answer_by).await
            };
            if answer.is_ok() {
                self.last = None;
                self.store_is_back();
            }
            match answer {
                Ok(Acquired::Granted(grant)) => {
                    self.engine.check_open()?;
                    let now = self.engine.clock.now();
                    let lease = holder_lease(self.request.lease, self.options.lock_delay());
                    if !self.alone || now < valid_until(grant.since, lease) {
                        if let Some(since) = waits_since {
                            self.log_wait(&grant, now.since(since));
                        }
                        return Ok(Some(self.settle(grant)));
                    }
                    // The lease has expired in transit. A guard would be lost at once, so the claim
                    // is cancelled, and the next one has another id.
                    self.cancel();
                    let again = too_slow.pause(now, lease);
                    if matches!(wait, Wait::Try) || again.is_none() {
                        return self.in_context(Err(Error::new(
                            ErrorKind::Unavailable,
                            "the store took longer to answer than the lease lasts: use a longer \
                             lease",
                        )));
                    }
                }
                Ok(Acquired::Queued) => {
                    budget.over();
                    queued = true;
                    continue;
                }
                Ok(_) => {
                    self.stage = Stage::Clear;
                    return Ok(None);
                }
                Err(error) if error.kind() == ErrorKind::NotHeld => {
                    // The place in the queue has expired while this process was stopped. The answer
                    // may be older than a retry that has joined again, so the claim is cancelled.
                    self.cancel();
                    if !self.alone {
                        return self.in_context(Err(error));
                    }
                    // A try starts over, too, but not for longer than an answer may take.
                    let limit = self.options.lease().min(self.engine.backend.response_timeout());
                    if matches!(wait, Wait::Try)
                        && too_slow.pause(self.engine.clock.now(), limit).is_none()
                    {
                        return self.in_context(Err(Error::new(
                            ErrorKind::Unavailable,
                            "the claim has ended in the store, and so have the ones after it: try \
                             again, and check that the store answers well within a lease",
                        )
                        .with_source(error)));
                    }
                }
                Err(error) => {
                    // A wait of more than two leases without an error proves that the store was
                    // up, so this failure begins a new outage. A claim of a multi-lock has no other
                    // proof, since it does not send its acquire again.
                    let peace = self.request.lease * 2 + Duration::from_secs(10);
                    if queued && self.engine.clock.now().since(began) > peace {
                        self.store_is_back();
                        budget.over();
                    }
                    Box::pin(self.retry(error, wait, deadline, &mut budget)).await?;
                    // A retry of the same claim finds its place, or a grant that came meanwhile.
                    queued = !self.alone;
                    continue;
                }
            }
            // Start over with a new id, since the old claim is being cancelled. The pause prevents
            // a hot loop.
            self.request.claim = ClaimId::random();
            self.is_known = false;
            queued = false;
            match &mut restarts {
                None => restarts = Some(PAUSES),
                Some(pauses) => {
                    Box::pin(pause(pauses.pause(), deadline, &self.request.name)).await?;
                }
            }
        }
    }

    /// Sends the claim, unless a request is in flight. The stage is set before each await, and says
    /// what to clean up if this future is dropped there.
    async fn send(&mut self, wait: Wait, answer_by: Option<Timer>) -> Result<Acquired, Error> {
        if !matches!(self.stage, Stage::Sending(_)) {
            self.stage = Stage::Sending(self.engine.backend.acquire(&self.request));
        }
        if let Some(local) = &self.local {
            local.set_asked(true);
        }
        let Stage::Sending(answer) = &mut self.stage else { return Ok(Acquired::Queued) };
        // Without an answer the stage stays `Sending`. When the attempt is dropped, `cancel` waits
        // for the answer in the background, unless the request was not sent.
        let name = &self.request.name;
        let answer = self.engine.acquire_answered(answer_by, wait, name, answer).await?;
        let answer = self.in_context(answer);
        self.engine.failure.record(&answer, Some(&self.request.name));
        if let Some(local) = &self.local {
            local.set_asked(false);
        }
        self.stage = match &answer {
            Err(error) if error.certainty() == Certainty::NotApplied && !self.is_known => {
                Stage::Clear
            }
            _ => {
                self.is_known = true;
                Stage::Known
            }
        };
        answer
    }

    fn in_context<T>(&self, answer: Result<T, Error>) -> Result<T, Error> {
        self.engine.in_context("acquire", &self.request.name, answer)
    }

    /// Returns whether its last request failed.
    pub(crate) fn gave_up(&self) -> bool {
        self.last.is_some()
    }

    /// Adds the last failure of the store to the error of a wait that has ended.
    pub(crate) fn explain(&self, error: Error) -> Error {
        match &self.last {
            _ if error.kind() != ErrorKind::Timeout || error.source().is_some() => error,
            Some(last) => Why::Failed(last.clone()).error(&self.request.name),
            None if matches!(self.stage, Stage::Sending(_)) => error,
            None => self.engine.timed_out(&self.request.name),
        }
    }

    /// Ends the outage that the tasks of the local queue share.
    fn store_is_back(&self) {
        if let Some(local) = &self.local {
            local.store_is_back();
        }
    }

    /// Logs how long the claim has waited.
    fn log_wait(&self, grant: &Grant, wait: Duration) {
        tracing::debug!(
            target: "dlock",
            { lock.name = %self.request.name, backend = self.engine.backend.store(),
              token = grant.token.get(), ?wait },
            "lock acquired after a wait"
        );
    }

    /// Pauses before the next attempt, or gives up with the error.
    async fn retry(
        &mut self,
        error: Error,
        wait: Wait,
        deadline: Option<Timer>,
        budget: &mut RetryBudget,
    ) -> Result<(), Error> {
        let error = error
            .during("acquire")
            .with_lock(&self.request.name)
            .with_store(self.engine.backend.store());
        let (transient, now) = (error.kind() == ErrorKind::Unavailable, self.engine.clock.now());
        let again = transient && !matches!(wait, Wait::Try);
        // The outage counts from its first failure, also if another leader saw that one.
        if let Some(local) = self.local.as_ref().filter(|_| transient) {
            budget.began(local.store_failed(now, &error));
        }
        if transient {
            self.last = Some(error.clone());
        }
        let next = budget.pause(now, self.options.lease());
        if let Some(local) = self.local.as_ref().filter(|_| again && next.is_none()) {
            local.give_up(&error);
        }
        match next {
            Some(next) if again => {
                tracing::debug!(target: "dlock", %error, pause = ?next, "acquire failed, will be retried");
                self.engine.while_open(pause(next, deadline, &self.request.name)).await
            }
            _ => Err(error),
        }
    }

    /// Cancels the claim in the background, if the store may know it.
    fn cancel(&mut self) {
        let acquire = match std::mem::replace(&mut self.stage, Stage::Clear) {
            Stage::Clear => return,
            Stage::Sending(mut answer) => match answer.give_up() {
                // Neither this request nor an earlier one of the claim was sent.
                true if !self.is_known => return,
                true => None,
                false => Some(answer),
            },
            Stage::Known => None,
        };
        cancel(self.engine, self.request.as_claim(), self.request.lease, acquire);
    }
}

impl Drop for Attempt<'_> {
    fn drop(&mut self) {
        self.cancel();
    }
}

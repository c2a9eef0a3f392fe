//! Acquiring one lock: a claim takes it or joins its queue.

use std::sync::Arc;

use dlock_core::{
    AcquireRequest, Acquired, Certainty, Clock, Error, Grant, Mode, Queue, SendFlag,
    machine::conflict,
};
use redis::Value;

use crate::{
    durable::won,
    error::no_token,
    keys::Bucket,
    link::window::{Kind, Role, Sending},
    release::claim_ended,
    reply::{ClaimStatus, status},
    session::Retries,
    store::Store,
    take::{Outcome, TRIM, Take},
    waiters::QueuedGrant,
};

impl Store {
    /// Returns the channel for the message about a later grant. The message is expected from
    /// now on. If it has to subscribe first, the request can't be given up any more: the next one
    /// then finds the subscription.
    pub(crate) async fn channel_for(
        &self,
        request: &AcquireRequest,
        flag: &SendFlag,
    ) -> Option<Arc<str>> {
        if request.queue != Queue::Enqueue {
            return None;
        }
        // Both before the claim is sent: its message may arrive before the answer.
        let channel = self.session.link.channel(Bucket::of(&request.name), flag).await;
        self.waiters.expect(request);
        channel
    }

    /// Takes the lock or joins its queue.
    ///
    /// # Cancel safety
    /// The future may be dropped until the request has [begun](SendFlag::begin).
    pub(crate) async fn acquire(
        self: &Arc<Self>,
        request: &AcquireRequest,
        flag: &SendFlag,
    ) -> Result<Acquired, Error> {
        self.session.check_lease(request.lease)?;
        let (acquired, has_begun) = self.take(request, flag).await?;
        match acquired {
            Some(acquired) => Ok(acquired),
            None => match self.ask(request, flag, has_begun).await {
                Err(error) if has_begun => Err(self.take_back(request, error).await),
                answer => answer,
            },
        }
    }

    /// Takes the lock or joins its queue, with the script. `is_unknown`: plain commands may have written
    /// the holder's key before.
    async fn ask(
        self: &Arc<Self>,
        request: &AcquireRequest,
        flag: &SendFlag,
        is_unknown: bool,
    ) -> Result<Acquired, Error> {
        let expected = self.waiters.until_answered(std::slice::from_ref(request));
        let channel = self.channel_for(request, flag).await;
        let call = self.session.scripts.acquire(request, channel.as_deref(), 0, is_unknown);
        let call = call.acquiring(&self.session.unanswered, std::slice::from_ref(request));
        let call = call.unsent(flag);
        let answer = status(&self.run_durably(&call, won).await?)?;
        expected.answered();
        self.settle(request, call.sending().began(), answer)
    }

    /// Interprets the answer to an acquire.
    pub(crate) fn settle(
        self: &Arc<Self>,
        request: &AcquireRequest,
        sent: dlock_core::Instant,
        answer: ClaimStatus,
    ) -> Result<Acquired, Error> {
        match answer {
            ClaimStatus::Waits(position) => {
                self.waiters.queued(request.claim, sent, position);
                self.contention.claims_wait(&request.name);
                // The grant was written later than the answer, but its message came first. With
                // durability it does not count until `granted` has confirmed it.
                Ok(match self.waiters.take(request.claim) {
                    Some(grant) if self.durable.is_none() => {
                        Acquired::Granted(grant.into_grant(request))
                    }
                    _ => Acquired::Queued,
                })
            }
            other => {
                self.waiters.forget(request.claim);
                if let ClaimStatus::Held(token) = other {
                    if request.mode == Mode::Exclusive && request.tokens == 1 {
                        self.contention.took_alone(request.claim, None);
                    }
                    return Ok(Acquired::Granted(
                        QueuedGrant { token, since: sent }.into_grant(request),
                    ));
                }
                claim_ended(self, &request.name, request.claim);
                match other {
                    ClaimStatus::Conflict(capacity) => Err(conflict(request.mode, capacity)),
                    ClaimStatus::NoToken => Err(no_token()),
                    _ => Ok(Acquired::Busy),
                }
            }
        }
    }

    /// Takes a lock with plain commands, if it is probably free. `None`: the script has to decide. The
    /// second value says whether these commands, or earlier ones, may have written the holder's key.
    ///
    /// # Cancel safety
    /// The future may be dropped until the request has [begun](SendFlag::begin).
    pub(crate) async fn take(
        self: &Arc<Self>,
        request: &AcquireRequest,
        flag: &SendFlag,
    ) -> Result<(Option<Acquired>, bool), Error> {
        let AcquireRequest { name, claim, .. } = request;
        let is_simple = request.mode == Mode::Exclusive && request.tokens == 1;
        let is_unknown = self.session.unanswered.has(*claim);
        if is_unknown || !is_simple || self.durable.is_some() || !self.contention.is_calm(name) {
            return Ok((None, is_unknown));
        }
        let trims = self.contention.count().is_multiple_of(TRIM);
        let take = Take::new(request, trims);
        let mut sending = Sending::of(Kind::Acquire);
        sending.role = Role::Acquires(&self.session.unanswered, std::slice::from_ref(request));
        sending.flag = Some(flag);
        let taken = match self.session.link.take(&take, &sending).await {
            Ok(Some(taken)) => taken,
            Ok(None) => return Ok((None, false)),
            Err(error) => {
                let mut retries = Retries::new(self.session.response_timeout);
                retries.pause_after(error).await?;
                return Ok((None, retries.is_unknown()));
            }
        };
        match taken.outcome(*claim, request.lease, Clock::Boot.now()) {
            Outcome::Granted { token, since } => {
                self.contention.took_alone(*claim, Some(token));
                Ok((Some(Acquired::Granted(Grant::new(token, 1, since))), true))
            }
            Outcome::Held if request.queue == Queue::FailIfBusy => {
                Ok((Some(Acquired::Busy), false))
            }
            Outcome::Held => Ok((None, false)),
            Outcome::Open { repeats } => {
                if repeats {
                    self.contention.needs_scripts(take.bucket());
                }
                // Otherwise `SET` has written nothing.
                Ok((None, matches!(taken.answers.first(), Some(Value::Nil))))
            }
        }
    }

    /// Handles the error of a script that followed plain commands. The key that they may have written is
    /// deleted if no retry follows; a script that can't read another key of the name can't do that.
    pub(crate) async fn take_back(&self, request: &AcquireRequest, error: Error) -> Error {
        if !error.is_transient() {
            // The core releases the claim as well.
            let _ = self.session.release_alone(&request.name, request.claim, 0).await;
        }
        error.with_certainty(Certainty::Unknown)
    }
}

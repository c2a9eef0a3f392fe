//! Acquiring one lock: a claim takes it or joins its queue.

use std::sync::Arc;

use dlock_core::{AcquireRequest, Acquired, Error, Mode, Queue, SendFlag, machine::conflict};

use crate::{
    durable::won,
    error::no_token,
    keys::Bucket,
    release::claim_ended,
    reply::{ClaimStatus, status},
    store::Store,
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
        let expected = self.waiters.until_answered(std::slice::from_ref(request));
        let channel = self.channel_for(request, flag).await;
        let call = self.session.scripts.acquire(request, channel.as_deref(), 0);
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
                        self.contention.took_alone(request.claim);
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
}

//! The end of a hold: passing it on, or giving it back.

use std::{future::poll_fn, pin::Pin, sync::Arc, task::Poll};

use super::{Hold, RELEASED};
use crate::{
    Answer, Error, ErrorKind, Fairness, Released,
    cohort::{Lead, OwnedLead, TURN},
    engine::withdraw,
    support::tasks::Ticket,
    sync::time,
};

impl Hold {
    /// Gives the hold up: to the next task of this process, or back to the store.
    pub(crate) fn let_go(self: &Arc<Self>) -> LettingGo {
        if let Some(cohort) = &self.cohort
            && cohort.pass(self)
        {
            return LettingGo::Done(Ok(Released::Released));
        }
        let held = self.end(RELEASED);
        // Whoever ends a hold has the lead of its cohort.
        let lead = self.cohort.as_ref().filter(|_| held).map(Lead::of);
        let first = match self.engine.backend.release(&self.claim()).try_ready() {
            Ok(Ok(released)) => {
                if held {
                    self.engine.keeper.remove(self);
                }
                drop(lead);
                return LettingGo::Done(Ok(if held { released } else { Released::AlreadyLost }));
            }
            Ok(Err(error)) => Answer::ready(Err(error)),
            Err(answer) => answer,
        };
        // Under way before it is out of the books, so that shutdown waits for one or the other.
        let ticket = self.engine.tasks.ticket();
        if held {
            self.engine.keeper.remove(self);
        }
        let lead = lead.map(Lead::into_owned);
        let lost = !held || self.engine.clock.now() >= self.valid_until();
        let release = Box::pin(Arc::clone(self).released(first, lead, !lost, ticket));
        if lost && self.delay().is_zero() {
            // Nobody need wait for a store that may be away, only to hear what is known.
            self.see_through(release);
            return LettingGo::Done(Ok(Released::AlreadyLost));
        }
        LettingGo::Later(release)
    }

    async fn released(
        self: Arc<Self>,
        mut first: Answer<Released>,
        mut lead: Option<OwnedLead>,
        held: bool,
        _ticket: Ticket,
    ) -> Result<Released, Error> {
        let sent = poll_fn(|cx| Poll::Ready(Pin::new(&mut first).poll(cx))).await;
        // The next task of this process need not wait for the answer: what it asks comes after
        // this, in one message with it where the store can. Should this come late all the same,
        // it waits in the store's queue. Where there is none, nobody else would ever find the lock
        // free.
        if self.engine.backend.guarantees().fairness > Fairness::None {
            lead = None;
        }
        let first = match sent {
            Poll::Ready(answer) => answer,
            Poll::Pending => first.await,
        };
        if let Some(lead) = lead {
            self.leave_a_turn(lead);
        }
        let released = match first {
            Ok(released) => released,
            Err(error) if !held => {
                // What it frees early is the lock-delay.
                withdraw::withdraw(&self.engine, self.claim_with(0), self.stored_lease(), None);
                self.engine.failure.note(&error);
                return Ok(Released::AlreadyLost);
            }
            // Boxed, since few are asked for again.
            failed => Box::pin(self.asked_again(failed)).await?,
        };
        Ok(if held { released } else { Released::AlreadyLost })
    }

    /// Asks again for one lease, and after that in the background.
    async fn asked_again(&self, failed: Result<Released, Error>) -> Result<Released, Error> {
        let (claim, lease) = (self.claim(), self.stored_lease());
        let answer = withdraw::insist(&self.engine, &claim, lease, failed).await;
        answer.map_err(|error| {
            if error.kind() == ErrorKind::Unavailable {
                withdraw::withdraw(&self.engine, claim, lease, None);
            }
            error.during("release").with_lock(self.name())
        })
    }

    /// Passes the lead on, over a store in which nobody queues. If this process has passed the lock
    /// on, the others have a turn first: those who happen to ask within it.
    fn leave_a_turn(&self, lead: OwnedLead) {
        if self.used() == self.first_token().get() || !lead.is_wanted() {
            return;
        }
        self.engine.tasks.run(async move {
            time::sleep(TURN).await;
            drop(lead);
        });
    }

    /// Lets go without waiting for the outcome.
    pub(crate) fn let_go_in_background(self: &Arc<Self>) {
        if let LettingGo::Later(release) = self.let_go() {
            self.see_through(release);
        }
    }

    fn see_through(&self, release: Releasing) {
        self.engine.tasks.run(async move {
            if let Err(error) = release.await {
                tracing::warn!(target: "dlock", %error, "a dropped guard could not be released");
            }
        });
    }
}

/// What letting go comes to.
pub(crate) enum LettingGo {
    /// It is done.
    Done(Result<Released, Error>),
    /// It takes a round trip.
    Later(Releasing),
}

/// A release under way.
pub(crate) type Releasing = Pin<Box<dyn Future<Output = Result<Released, Error>> + Send>>;

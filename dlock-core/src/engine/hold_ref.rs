//! The right to release a hold.

use std::{future::poll_fn, sync::Arc, task::Poll, time::Duration};

use futures_util::FutureExt;

use super::{
    Engine, end,
    release::{self, Background, ReleaseProgress},
};
use crate::{
    AcquireRequest, ClaimId, DynBackend, Ended, Error, ErrorKind, FencingToken, Grant, GuardState,
    Instant, LockName, LockOptions, Mode, Released, Renewal, Renewed,
    hold::{Hold, local_queue::LocalQueue, renewal_queue::reason},
};

/// One guard's part of a hold. Dropping it releases the hold in the background.
pub(crate) struct HoldRef {
    engine: Arc<Engine>,
    hold: Arc<Hold>,
    /// The token of this guard. `None` once a method has consumed the right to release, so that the
    /// drop does not release a second time.
    token: Option<FencingToken>,
}

impl HoldRef {
    /// Creates the guard of a hold that was granted or handed off.
    pub(crate) const fn new(engine: Arc<Engine>, hold: Arc<Hold>, token: FencingToken) -> Self {
        Self { engine, hold, token: Some(token) }
    }

    /// Creates a hold from a grant, and the guard whose drop ends it.
    pub(crate) fn for_grant(
        engine: &Arc<Engine>,
        request: AcquireRequest,
        grant: Grant,
        options: LockOptions,
        queue: Option<Arc<LocalQueue<Hold>>>,
    ) -> Self {
        let hold = Arc::new(Hold::new(request, grant, options, queue));
        #[cfg(feature = "metrics")]
        engine.meter.held();
        // Added to the renewal queue first, so that renewal and shutdown see it. The same lock
        // covers the check for a step of the clock.
        if engine.holds.add(&hold, &engine.backend) {
            end::lose(engine, &hold, Ended::ClockStep);
        }
        if let Some(queue) = hold.queue() {
            queue.remember(&hold);
        }
        Self::new(Arc::clone(engine), hold, grant.token)
    }

    pub(crate) fn name(&self) -> &LockName {
        self.hold.name()
    }

    pub(crate) fn claim(&self) -> ClaimId {
        self.hold.id()
    }

    pub(crate) fn token(&self) -> FencingToken {
        self.token.unwrap_or_else(|| self.hold.first_token())
    }

    pub(crate) fn backend(&self) -> &DynBackend {
        &self.engine.backend
    }

    pub(crate) fn store(&self) -> &str {
        self.backend().store()
    }

    /// Returns the current state. Past its deadline a hold is lost, even if the renewal task has
    /// not detected it.
    pub(crate) fn state(&self) -> GuardState {
        end::state(&self.engine, &self.hold)
    }

    /// Returns how long the lock stays held if no further renewal succeeds.
    pub(crate) fn remaining(&self) -> Duration {
        match self.state() {
            GuardState::Lost => Duration::ZERO,
            _ => self.hold.valid_until().since(self.engine.clock.now()),
        }
    }

    /// Returns how it was lost, if it was.
    pub(crate) fn lost(&self) -> Option<Ended> {
        (self.state() == GuardState::Lost).then(|| self.hold.ended().unwrap_or(Ended::Expired))
    }

    /// Returns whether it is lost and has a lock-delay, during which the store grants the lock to
    /// nobody.
    pub(crate) fn is_lost_with_a_delay(&self) -> bool {
        !self.hold.delay().is_zero() && self.state() == GuardState::Lost
    }

    /// Waits for the end of this guard. Each poll reads the holder's own clock, so that neither a
    /// late renewal task nor a late timer delays it: timers do not fire while the process is
    /// stopped or the machine is suspended, and then another thread may be polled before they fire.
    pub(crate) fn until_ended(&self) -> impl Future<Output = Ended> + Send + use<> {
        let (engine, hold, token) =
            (Arc::clone(&self.engine), Arc::clone(&self.hold), self.token());
        // Called here and not in the future, so that an end before the first poll is seen as well.
        hold.watch();
        async move {
            loop {
                // Registered before the state is loaded: see the third order in `hold`.
                let mut notified = std::pin::pin!(hold.ending().notified());
                notified.as_mut().enable();
                if let Some(ended) = hold.ended_for(token) {
                    return ended;
                }
                let mut due = std::pin::pin!(engine.clock.sleep_until(hold.valid_until()));
                #[cfg(dlock_sim)]
                if crate::sim::has_mistake("work-until-timer") {
                    futures_util::future::select(notified, due).await;
                    end::state(&engine, &hold);
                    continue;
                }
                poll_fn(|cx| {
                    let is_over = end::state(&engine, &hold) == GuardState::Lost
                        || notified.as_mut().poll(cx).is_ready()
                        || due.as_mut().poll(cx).is_ready();
                    if is_over { Poll::Ready(()) } else { Poll::Pending }
                })
                .await;
            }
        }
    }

    /// Hands the hold off to the next task of this process, or releases it in the store.
    pub(crate) async fn release(mut self) -> Result<Released, Error> {
        self.token = None;
        self.finish(release::hand_off_or_release(&self.engine, &self.hold)).await
    }

    /// As [`release`](Self::release), after work whose output is `Ok` only if the lock was held
    /// until now: after a hand-off it waits until the store has confirmed that.
    pub(crate) async fn release_after_work(mut self) -> Result<Released, Error> {
        let token = self.token();
        self.token = None;
        if release::hand_off_after_work(&self.engine, &self.hold) {
            // Boxed, so that the future is not larger for all.
            let confirmed = Box::pin(release::confirmed(&self.engine, &self.hold, token));
            return self.engine.while_it_runs(confirmed.map(Ok)).await;
        }
        // Not `hand_off_or_release`, which hands the hold off if a task has joined the queue
        // meanwhile.
        self.finish(release::release_in_store(&self.engine, &self.hold)).await
    }

    async fn finish(&self, progress: ReleaseProgress) -> Result<Released, Error> {
        match progress {
            ReleaseProgress::Done(released) => released,
            ReleaseProgress::Later(release) => {
                let release = Background::new(&self.engine, release);
                self.engine.while_it_runs(release).await
            }
        }
    }

    /// Consumes the right to release. Call it only for a lost hold: in the store, the lease and the
    /// lock-delay expire without a release.
    pub(crate) fn forget(mut self) {
        self.token = None;
    }

    /// Leaves the claim to the store until `until`, without a holder. The renewal task renews it
    /// once more for the rest of the time, with the usual retries, and then forgets it. This is the
    /// [last renewal](Renewal::is_last), which an earlier one that arrives later does not change.
    /// `shutdown` waits for it. `schedules/renewal.rs` tests it.
    pub(crate) fn part(mut self, until: Instant) {
        let ended = self.until_ended();
        self.token = None;
        // Stored before `stopped` is loaded below: see the orders in `shared_queue`.
        self.hold.leave_until(until);
        self.engine.holds.expedite(&self.hold);
        if self.engine.holds.is_stopped() {
            end::parted(&self.engine, &self.hold);
        }
        // The job keeps the engine alive, and with it the renewal task, until the last renewal is
        // answered.
        let engine = Arc::clone(&self.engine);
        self.engine.tasks.run(async move {
            ended.await;
            drop(engine);
        });
    }

    /// Allows the downgrade.
    pub(crate) fn mark_writer(&self) {
        self.hold.mark_writer();
    }

    pub(crate) fn is_writer(&self) -> bool {
        self.hold.is_writer()
    }

    /// Implements [`Guard::downgrade`](crate::Guard::downgrade).
    pub(crate) async fn downgrade(&self) -> Result<(), Error> {
        let (engine, hold) = (&self.engine, &self.hold);
        // Set before the request is sent, so that a later renewal does not request the writer's
        // mode.
        hold.mark_downgraded();
        // Read before the request is sent, as the start of the new lease.
        let sent = engine.clock.now();
        let renewal = Renewal::new(hold.claim(), Mode::Shared, hold.next_lease(sent))
            .with_token(hold.first_token())
            .with_answer_within(hold.lease() / 3);
        let renewed = engine.backend.renew(std::slice::from_ref(&renewal));
        let answers = engine.while_it_runs(renewed).await;
        match engine.in_context("renew", hold.name(), answers)?.first() {
            Some(Renewed::Kept) => {
                engine.holds.renewed(hold, sent, renewal.lease, &engine.backend);
            }
            Some(Renewed::Unknown) => {
                let text = "the store can't tell whether the lock is held: try again";
                let error = Error::new(ErrorKind::Unavailable, text);
                return Err(error.at("downgrade", hold.name(), engine.backend.store()));
            }
            answer => {
                let how = answer.map_or(Ended::Revoked, |gone| reason(*gone));
                end::lose(engine, hold, how);
            }
        }
        // The answer may have come after the local deadline.
        match self.lost() {
            Some(how) => Err(self.lost_error(how).during("downgrade")),
            None => Ok(()),
        }
    }

    /// Returns the error for work that relies on the hold after its end.
    pub(crate) fn lost_error(&self, how: Ended) -> Error {
        Error::lost(self.name(), how).with_store(self.store())
    }
}

impl Drop for HoldRef {
    fn drop(&mut self) {
        if self.token.is_some() {
            release::release_in_background(&self.engine, &self.hold);
        }
    }
}

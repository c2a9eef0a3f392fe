//! The steps in which a multi-lock acquires the locks of one store.
//!
//! A *step* is a shard if the store takes several names at once and grants in order of arrival, and
//! otherwise a name. All steps of a store have one order, and a multi-lock waits in a step only
//! while it holds locks of earlier steps (Havender, *Avoiding deadlock in multitasking systems*,
//! 1968).
//!
//! Suppose that multi-locks wait for each other in a circle. One that waits in a step is blocked by
//! one that holds a lock of this step or is ahead in one of its queues, and so waits in the same
//! step or in a later one. In a circle all of them wait in the same step. There, all claims of a
//! multi-lock have entered the queues at one point, so the earliest one is ahead in every queue,
//! and none of the others blocks it.
//!
//! This needs the same steps in every client of the store. If one client entered two queues at
//! once and another one after the other, the first could hold the second lock while it waits for
//! the first one. So [`Backend::acquire_all`](crate::Backend::acquire_all) must not depend on the
//! settings of a client, and a shard is never split.

use super::{
    Base,
    multi_acquire::{MultiAcquire, release_parts},
};
use crate::{AcquireRequest, Error, Fairness, Guard, Mode, support::retry::Wait};

/// The locks of one shard, sorted by name and without repetition, never empty.
#[derive(Clone, Debug)]
pub(super) struct Shard(pub(super) Vec<Base>);

/// Takes one step after the other, in the order that all clients use. A try waits for one response
/// timeout in total.
pub(super) async fn take_in_order(
    steps: &[impl AcquireStep],
    wait: Wait,
    retries: &mut bool,
) -> Result<Option<Guard>, Error> {
    let first = steps[0].base();
    match wait {
        Wait::Try => {
            let engine = first.engine();
            let taking = take_each(steps, wait, retries);
            engine.answered(engine.answer_by(wait), wait, &first.name, taking).await?
        }
        Wait::Until(_) => take_each(steps, wait, retries).await,
    }
}

async fn take_each(
    steps: &[impl AcquireStep],
    wait: Wait,
    retries: &mut bool,
) -> Result<Option<Guard>, Error> {
    let mut parts = Vec::with_capacity(steps.len());
    for step in steps {
        match step.take(wait, retries).await? {
            Some(guard) => parts.extend(guard.into_parts()),
            None => {
                release_parts(parts, wait).await;
                return Ok(None);
            }
        }
    }
    Ok(Some(Guard::many(parts)))
}

/// Locks that are acquired before those of the next step.
pub(super) trait AcquireStep: Sync {
    /// Returns the first lock.
    fn base(&self) -> &Base;

    /// Takes all locks of the step. `retries` is set to whether the caller should retry if the
    /// store is unreachable: claims that wait retry on their own, and then have used their retry
    /// budgets.
    fn take(
        &self,
        wait: Wait,
        retries: &mut bool,
    ) -> impl Future<Output = Result<Option<Guard>, Error>> + Send;
}

/// One lock of a store that acquires one by one.
impl AcquireStep for Base {
    fn base(&self) -> &Base {
        self
    }

    async fn take(&self, wait: Wait, retries: &mut bool) -> Result<Option<Guard>, Error> {
        *retries = false;
        Ok(Self::take(self, Mode::Exclusive, wait).await?.map(Guard::one))
    }
}

impl AcquireStep for Shard {
    fn base(&self) -> &Base {
        &self.0[0]
    }

    async fn take(&self, wait: Wait, retries: &mut bool) -> Result<Option<Guard>, Error> {
        if let [only] = &*self.0 {
            return AcquireStep::take(only, wait, retries).await;
        }
        let mut gave_up = false;
        match self.take_at_once(wait, &mut gave_up).await {
            Some(taken) => {
                *retries = !gave_up;
                taken
            }
            None => Box::pin(take_in_order(&self.0, wait, retries)).await,
        }
    }
}

impl Shard {
    /// Enters all queues at once; returns `None` if the store can't. Sets `gave_up` if a claim that
    /// waited has used its retry budget.
    async fn take_at_once(
        &self,
        wait: Wait,
        gave_up: &mut bool,
    ) -> Option<Result<Option<Guard>, Error>> {
        let engine = self.0[0].engine();
        let waits = !matches!(wait, Wait::Try);
        if waits && engine.backend.guarantees().fairness < Fairness::Fifo {
            // The same order in all queues helps only if the store grants in that order.
            return None;
        }
        if let Err(error) = engine.check_open() {
            return Some(Err(error));
        }
        let claim = |base: &Base| {
            let lease = engine.lease(*base.options)?;
            let request = AcquireRequest::new(base.name.clone(), Mode::Exclusive, lease)
                .with_queue(wait.queue());
            Ok((request, *base.options))
        };
        let claims: Vec<_> = match self.0.iter().map(claim).collect() {
            Ok(claims) => claims,
            Err(error) => return Some(Err(error)),
        };
        let requests: Vec<_> = claims.iter().map(|(request, _)| request.clone()).collect();
        let answer_by = engine.answer_by(wait);
        let sending = engine.backend.acquire_all(&requests)?;
        let mut claims = MultiAcquire::new(engine, claims, sending, answer_by);
        Some(claims.all_granted(wait, &self.0[0].name, gave_up).await)
    }
}

//! Renewal: one task for each engine, which acts on the engine's renewal queue.
//!
//! In each round it checks the renewal queue, sends the due renewals, and waits for the first of
//! these: an event of the store, an answer, a wake-up, the next due time.
//!
//! The task keeps the engine alive only while it works. After the last handle and the last guard
//! have been dropped, the engine is dropped and wakes the task, which then ends.
//!
//! If a request or its answer is lost, the batch fails after its limit, and its holds are due for a
//! retry. If the store applied the request anyway, it keeps the claims longer than the holders rely
//! on them, which is safe.

use std::{
    collections::HashSet,
    sync::{Arc, Weak},
};

use futures_util::{StreamExt, stream::FuturesUnordered};

use super::{Engine, end, runtime_gone};
use crate::{
    ClaimId, DynBackend, Ended, Error, ErrorKind, NoEvent, Renewed, StoreEvent, StoreEvents,
    hold::{
        renewal_queue::Step,
        renewal_queue::{Batch, Due, LONGEST_SLEEP},
    },
    support::tasks::Tasks,
    sync::time,
};

/// Starts the engine of a backend on the current tokio runtime.
pub(crate) fn start(backend: DynBackend) -> Result<Arc<Engine>, Error> {
    let tasks = Tasks::start()?;
    backend.clock().check().map_err(|error| error.with_store(backend.store()))?;
    let engine = Arc::new(Engine::new(backend, tasks));
    engine.tasks.spawn(run(&engine));
    Ok(engine)
}

/// The renewal task.
fn run(engine: &Arc<Engine>) -> impl Future<Output = ()> + Send + use<> {
    /// Reports the end of the task, also if the runtime drops it before its first run.
    struct Stopped(Weak<Engine>);
    impl Drop for Stopped {
        fn drop(&mut self) {
            if let Some(engine) = self.0.upgrade() {
                stopped(&engine);
            }
        }
    }
    let stopped = Stopped(Arc::downgrade(engine));
    // Subscribed here and not in the task, so that no event is missed before the task first runs.
    let events = engine.backend.events();
    let backend = Arc::clone(&engine.backend);
    async move {
        renew_until_gone(&stopped.0, &backend, events).await;
    }
}

/// Handles the end of the renewals: fails the tasks that wait for holds of this process, and
/// forgets holds without a holder, whose leases expire in the store.
fn stopped(engine: &Engine) {
    // `stop` comes first: see the orders in `shared_queue`.
    engine.holds.stop();
    for hold in engine.holds.all() {
        if let Some(queue) = hold.queue() {
            queue.fail_all(runtime_gone);
        }
        if hold.is_parting() {
            end::parted(engine, &hold);
        }
    }
}

async fn renew_until_gone(
    engine: &Weak<Engine>,
    backend: &DynBackend,
    mut events: Option<StoreEvents>,
) {
    let mut running = FuturesUnordered::new();
    loop {
        let Some(alive) = engine.upgrade() else { return };
        let (clock, wake) = (alive.clock, Arc::clone(&alive.holds.wake));
        let due = check(&alive);
        // Only `wake` is kept while the task sleeps. A reference would keep the engine alive.
        drop(alive);
        for mut batch in due.batches {
            running.push(async move {
                batch.sent = clock.now();
                let answers = renew(backend, &batch).await;
                #[cfg(dlock_sim)]
                if crate::sim::has_mistake("renewal-from-answer") {
                    batch.sent = clock.now();
                }
                (batch, answers)
            });
        }
        let idle = due.next_check.is_none();
        let latest = clock.now().saturating_add(LONGEST_SLEEP);
        let next = due.next_check.map_or(latest, |next| next.min(latest));
        tokio::select! {
            // Events come first. A backend sends the events that an answer reveals before the
            // answer itself, and they contain the reason why a claim ended.
            biased;
            Some(new) = next_events(&mut events), if events.is_some() => {
                if let Some(engine) = engine.upgrade() {
                    apply_events(&engine, &new);
                }
            }
            Some((batch, answers)) = running.next(), if !running.is_empty() => {
                if let Some(engine) = engine.upgrade() {
                    settle(&engine, &batch, answers);
                }
            }
            () = wake.notified() => {}
            () = clock.sleep_until(next), if !idle => {}
        }
    }
}

/// Checks the renewal queue, and ends the holds that are past their deadlines.
fn check(engine: &Engine) -> Due {
    let now = engine.clock.now();
    let mut due = engine.holds.with(&engine.backend, |queue, shard| queue.collect(now, shard));
    for hold in due.late.drain(..) {
        end::lose(engine, &hold, Ended::Expired);
    }
    for hold in due.own.drain(..) {
        engine.warn_held_here(hold.name(), engine.clock.now().since(hold.granted_at()));
    }
    due
}

async fn renew(backend: &DynBackend, batch: &Batch) -> Result<Vec<Renewed>, Error> {
    let renewed = time::timeout(batch.limit, backend.renew(&batch.renewals)).await;
    let renewed = renewed.unwrap_or_else(|_| {
        Err(Error::new(
            ErrorKind::Unavailable,
            format!(
                "no answer to a renewal within {:?}: check the store and the network",
                batch.limit
            ),
        ))
    });
    renewed.map_err(|error| error.during("renew").with_store(backend.store()))
}

/// Records the answers to a batch, and ends the holds of the claims that have ended.
fn settle(engine: &Engine, batch: &Batch, answers: Result<Vec<Renewed>, Error>) {
    let now = engine.clock.now();
    let known = answers.as_deref().ok();
    let settled = engine.holds.with(&engine.backend, |queue, _| queue.settle(batch, known, now));
    #[cfg(feature = "metrics")]
    engine.meter.renewed(settled.renewed, settled.lost.len(), settled.failed);
    for hold in settled.parted {
        end::parted(engine, &hold);
    }
    for (hold, how) in settled.lost {
        end::lose(engine, &hold, how);
    }
    engine.failure.record(&answers, None);
    let unknown =
        || Error::new(ErrorKind::Unavailable, "the store can't say whether these claims are held");
    let failed = settled.failed;
    if let Some(error) = answers.err().or_else(|| (failed > 0).then(unknown)) {
        tracing::warn!(target: "dlock", %error, claims = failed, "renewal failed, will be retried");
    }
}

/// The events of the store since the last check.
#[derive(Default)]
struct NewEvents {
    ended: HashSet<ClaimId>,
    steps: Vec<Step>,
}

/// Waits for the next events. Returns `None` after the last one.
async fn next_events(events: &mut Option<StoreEvents>) -> Option<NewEvents> {
    let receiver = events.as_mut()?;
    let mut new = NewEvents::default();
    match receiver.recv().await {
        Ok(event) => new.add(event),
        // The next renewals detect the ends that the missed events reported.
        Err(NoEvent::Missed(_)) => {}
        Err(NoEvent::Closed) => {
            *events = None;
            return None;
        }
    }
    while let Some(event) = receiver.try_recv() {
        new.add(event);
    }
    Some(new)
}

impl NewEvents {
    fn add(&mut self, event: StoreEvent) {
        match event {
            StoreEvent::Ended(claim) => drop(self.ended.insert(claim)),
            StoreEvent::ClockStep { shard, forward, by, seen } => {
                self.steps.push(Step { shard, forward, by, seen });
            }
        }
    }
}

/// Ends the holds of claims that the store has ended, and those whose leases a step of its clock
/// has ended. The step shortens the leases of the others.
fn apply_events(engine: &Engine, new: &NewEvents) {
    let now = engine.clock.now();
    let mut lost = Vec::new();
    if !new.ended.is_empty() {
        let gone = engine.holds.with(&engine.backend, |queue, _| queue.of_claims(&new.ended));
        lost.extend(gone.into_iter().map(|hold| (hold, Ended::Revoked)));
    }
    for step in &new.steps {
        let direction = if step.forward { "forward" } else { "back" };
        let backend = engine.backend.store();
        tracing::warn!(target: "dlock", backend, direction, by = ?step.by, "store clock stepped");
        if step.forward {
            let over =
                engine.holds.with(&engine.backend, |queue, shard| queue.stepped(*step, now, shard));
            lost.extend(over.into_iter().map(|hold| (hold, Ended::ClockStep)));
        }
    }
    for (hold, how) in lost {
        end::lose(engine, &hold, how);
    }
}

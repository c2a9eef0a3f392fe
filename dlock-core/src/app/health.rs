//! Whether locks work just now.

use std::{sync::Arc, time::Duration};

use crate::{Error, LockName, engine::Engine, sync::time};

/// How locks are just now, for a readiness endpoint: what
/// [`Locks::health`](crate::Locks::health) finds.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Health {
    /// How long the store took to answer a question that changes nothing, or why it did not:
    /// `Unavailable`, with the store's last error as the source as soon as there is one,
    /// `Config(ShutDown)` after a shutdown, `Config(Runtime)` when the runtime that renews the locks
    /// is gone.
    pub latency: Result<Duration, Error>,
    /// How many claims this process holds in the store.
    pub held: usize,
    /// Of how many of those the last renewal has failed: they are tried again, and are lost when
    /// their leases end.
    pub doubtful: usize,
    /// How many acquisitions are under way, waiting for a lock or for the store; each claim of a
    /// multi-lock is one.
    pub waiting: usize,
}

impl Health {
    /// What is asked about: no program should use it.
    const NAME: &'static str = "dlock.health";

    /// Whether locks can be taken and kept.
    pub fn is_ready(&self) -> bool {
        self.latency.is_ok()
    }

    pub(crate) async fn of(engine: &Arc<Engine>, within: Duration) -> Self {
        let latency = latency(engine, within).await;
        let (held, doubtful) = engine.holds.count();
        Self { latency, held, doubtful, waiting: engine.meter.waiting() }
    }
}

async fn latency(engine: &Arc<Engine>, within: Duration) -> Result<Duration, Error> {
    engine.check_open()?;
    let (backend, began) = (&engine.backend, engine.clock.now());
    let name = LockName::new(Health::NAME)?;
    let mut question = Box::pin({
        let (backend, failure) = (Arc::clone(backend), Arc::clone(&engine.failure));
        async move {
            let answer = backend.inspect(&name).await;
            failure.look_at(&answer);
            answer
        }
    });
    let asked = match time::timeout(within, &mut question).await {
        Ok(answer) => answer,
        Err(_) => {
            // The reason may come later, for whoever asks next.
            engine.failure.wait_for(&engine.tasks, question);
            Err(engine.failure.no_answer(within))
        }
    };
    asked.map_err(|error| error.during("health").with_store(backend.store()))?;
    Ok(engine.clock.now().since(began))
}

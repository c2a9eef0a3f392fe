//! Reports whether locks work now.

use std::{sync::Arc, time::Duration};

use crate::{Error, LockName, engine::Engine, sync::time};

/// The current state of the locks, for a readiness endpoint: the result of
/// [`Locks::health`](crate::Locks::health).
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Health {
    /// The time that the store took to answer a request that changes nothing, or the error:
    /// `Unavailable`, with the store's last error as its source if one is known, `Config(ShutDown)`
    /// after a shutdown, `Config(Runtime)` if the runtime that renews the locks has ended.
    pub latency: Result<Duration, Error>,
    /// The number of claims that this process holds in the store.
    pub held: usize,
    /// The number of held claims whose last renewal failed. They are retried, and are lost when
    /// their leases expire.
    pub doubtful: usize,
    /// The number of acquisitions in progress, which wait for a lock or for the store. Each claim
    /// of a multi-lock counts.
    pub waiting: usize,
}

impl Health {
    /// The name that the request inspects; no program should use it.
    const NAME: &'static str = "dlock.health";

    /// Returns whether locks can be acquired and renewed.
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
            let answer = answer.map_err(|error| error.at("inspect", &name, backend.store()));
            failure.record(&answer, Some(&name));
            answer
        }
    });
    let asked = match time::timeout(within, &mut question).await {
        Ok(answer) => answer,
        Err(_) => {
            // The store's error may arrive later; keep it for the next call.
            engine.failure.wait_for(&engine.tasks, question);
            Err(engine.failure.no_answer(within, None))
        }
    };
    asked.map_err(|error| error.during("health").with_store(backend.store()))?;
    Ok(engine.clock.now().since(began))
}

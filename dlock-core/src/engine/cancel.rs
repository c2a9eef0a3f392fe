//! Cancels claims that are no longer needed: their futures were dropped, or their waits ended.
//!
//! The store may know such a claim, or may receive it later, since its request may still be in
//! flight. So the release is sent after the answer to the acquire, and is retried. If the process
//! dies first, the lease of the claim frees the lock. The backends refuse requests that arrive
//! late, so that an acquire does not take effect after the release.
//!
//! A request that was not sent needs none of this: the caller [gives it up](Answer::give_up).
//! Otherwise callers that leave sooner than a busy store serves them would keep it busy with
//! claims that nobody needs.

use std::{sync::Arc, time::Duration};

use super::Engine;
use crate::{
    Acquired, Answer, Certainty, Claim, Error, ErrorKind, Released, support::retry::RetryBudget,
    sync::time,
};

/// The minimum time for which a release is retried, even if the lease is shorter. It is the default
/// lease. If the store's clock was ahead when it granted a lease, that lease ends later there than
/// here.
const AT_LEAST: Duration = Duration::from_secs(30);
/// The number of pending releases above which each is retried only for its lease, since each takes
/// about 1 KB.
const MANY: usize = 4096;

/// Cancels a claim in the background: at once if the store supports that, and after the answer of
/// an acquire that is still in flight.
pub(crate) fn cancel(
    engine: &Arc<Engine>,
    claim: Claim,
    lease: Duration,
    acquire: Option<Answer<Acquired>>,
) {
    let acquire = match acquire.map(Answer::try_ready) {
        // A busy claim does not wait in the store, so there is nothing to release.
        Some(Ok(Ok(Acquired::Busy))) => return,
        Some(Err(under_way)) => Some(under_way),
        Some(Ok(_)) | None => None,
    };
    let released = match acquire {
        // A release that overtook the acquire would find no claim, and leave the later one behind.
        Some(_) => None,
        None => match engine.backend.release(&claim).try_ready() {
            Ok(Ok(_)) => return,
            Ok(Err(error)) => Some(Answer::ready(Err(error))),
            Err(answer) => Some(answer),
        },
    };
    let job_engine = Arc::clone(engine);
    engine.tasks.run(async move {
        let engine = job_engine;
        if let Some(acquire) = acquire {
            let answer = engine.in_context("acquire", &claim.name, acquire.await);
            engine.failure.record(&answer, Some(&claim.name));
            if matches!(answer, Ok(Acquired::Busy)) {
                return;
            }
        }
        let first = match released {
            Some(answer) => answer.await,
            None => engine.backend.release(&claim).await,
        };
        let is_busy = engine.tasks.pending() > MANY;
        let at_most = if is_busy { lease } else { lease.max(AT_LEAST) };
        if let Err(error) = retry_release(&engine, &claim, at_most, first).await {
            tracing::warn!(target: "dlock", %error, "cancel of a claim failed");
        }
    });
}

/// Retries a release until it is answered, for `at_most`.
pub(super) async fn retry_release(
    engine: &Engine,
    claim: &Claim,
    at_most: Duration,
    first: Result<Released, Error>,
) -> Result<Released, Error> {
    let mut answer = first;
    let mut budget = RetryBudget::default();
    let mut unsure = false;
    loop {
        answer = engine.in_context("release", &claim.name, answer);
        engine.failure.record(&answer, Some(&claim.name));
        let error = match answer {
            // The claim is gone, and an earlier request whose answer was lost may have ended it.
            // So this is not reported as a loss.
            Ok(Released::AlreadyLost) if unsure => return Ok(Released::Released),
            Ok(released) => return Ok(released),
            Err(error) => error,
        };
        unsure |= error.certainty() == Certainty::Unknown;
        match budget.pause(engine.clock.now(), at_most) {
            Some(pause) if error.kind() == ErrorKind::Unavailable => {
                time::sleep(pause).await;
            }
            _ => return Err(error),
        }
        answer = engine.backend.release(claim).await;
    }
}

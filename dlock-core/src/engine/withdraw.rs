//! Giving back what nobody wants any more.

use std::{sync::Arc, time::Duration};

use super::Engine;
use crate::{
    Acquired, Answer, Certainty, Claim, Error, ErrorKind, Released, support::retry::Trouble,
    sync::time,
};

/// For how long the store is asked to let a claim go, however short its lease is: as long as leases
/// last by default. A lease that the store gave while its clock was ahead ends later there than here.
const AT_LEAST: Duration = Duration::from_secs(30);
/// While more is under way, a lease has to do: each takes about 1 KB.
const MANY: usize = 4096;

/// Takes back what the store may know of a claim, in the background: at once where the store can,
/// and only after an acquire that is still under way.
pub(crate) fn withdraw(
    engine: &Arc<Engine>,
    claim: Claim,
    lease: Duration,
    asking: Option<Answer<Acquired>>,
) {
    let asking = match asking.map(Answer::try_ready) {
        Some(Ok(Ok(Acquired::Busy))) => return,
        Some(Err(under_way)) => Some(under_way),
        Some(Ok(_)) | None => None,
    };
    let released = match asking {
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
        if let Some(asking) = asking {
            let answer = asking.await;
            engine.failure.look_at(&answer);
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

/// Asks again until a release is answered, for this long at most.
pub(super) async fn retry_release(
    engine: &Engine,
    claim: &Claim,
    at_most: Duration,
    first: Result<Released, Error>,
) -> Result<Released, Error> {
    let mut answer = first;
    let mut trouble = Trouble::default();
    let mut unsure = false;
    loop {
        engine.failure.look_at(&answer);
        let error = match answer {
            // The first of two may have done it.
            Ok(Released::AlreadyLost) if unsure => return Ok(Released::Released),
            Ok(released) => return Ok(released),
            Err(error) => error,
        };
        unsure |= error.certainty() == Certainty::Unknown;
        match trouble.pause(engine.clock.now(), at_most) {
            Some(pause) if error.kind() == ErrorKind::Unavailable => {
                time::sleep(pause).await;
            }
            _ => return Err(error.with_store(engine.backend.store())),
        }
        answer = engine.backend.release(claim).await;
    }
}

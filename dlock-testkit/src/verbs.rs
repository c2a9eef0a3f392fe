//! The contract's verbs, with the answers that cases expect.

use std::time::Duration;

use dlock_core::{
    AcquireRequest, Acquired, Certainty, Claim, DynBackend, Error, ErrorKind, FencingToken, Grant,
    LockName, LockState, Mode, Queue, Released, Renewal, Renewed,
};
use tokio::time::sleep;

use crate::{Stop, Verdict, stop::ensure};

/// How often a verb is sent, at most.
const TRIES: usize = 5;

/// The pause before a verb is sent again.
const PAUSE: Duration = Duration::from_millis(100);

/// Sends a verb, and sends it again if the store does not answer, as the core does. Also returns
/// whether an earlier sending may have been applied.
async fn sent<T, F>(mut verb: impl FnMut() -> F) -> (Result<T, Error>, bool)
where
    F: Future<Output = Result<T, Error>>,
{
    let mut unsure = false;
    for _ in 1..TRIES {
        match verb().await {
            Err(error) if error.kind() == ErrorKind::Unavailable => {
                unsure |= error.certainty() == Certainty::Unknown;
                sleep(PAUSE).await;
            }
            answer => return (answer, unsure),
        }
    }
    (verb().await, unsure)
}

async fn acquired(backend: &DynBackend, request: &AcquireRequest) -> Result<Acquired, Error> {
    sent(|| backend.acquire(request)).await.0
}

/// Checks that a state has a last token that is not smaller than a granted one.
#[track_caller]
pub(crate) fn ensure_remembered(state: &LockState, granted: Option<FencingToken>) -> Verdict {
    ensure!(
        granted <= state.last_token,
        "inspect shows the last token {:?}, and {granted:?} was granted before: \
         LockState::last_token must not be smaller than any granted token, also after the claim \
         has ended and its record was deleted",
        state.last_token
    );
    Ok(())
}

/// Returns the request of a claim that joins the queue and does not expire during a case.
pub(crate) fn ask(name: &LockName, mode: Mode) -> AcquireRequest {
    AcquireRequest::new(name.clone(), mode, Duration::from_secs(300))
}

/// Returns [`ask`] in exclusive mode.
pub(crate) fn alone(name: &LockName) -> AcquireRequest {
    ask(name, Mode::Exclusive)
}

/// Returns the same request with another lease.
pub(crate) fn leased(request: AcquireRequest, lease: Duration) -> AcquireRequest {
    request.with_lease(lease)
}

/// Returns the same request without waiting.
pub(crate) fn trying(request: AcquireRequest) -> AcquireRequest {
    request.with_queue(Queue::FailIfBusy)
}

/// Acquires a lock that must be free.
#[track_caller]
pub(crate) fn take<'a>(
    backend: &'a DynBackend,
    request: &'a AcquireRequest,
) -> impl Future<Output = Result<Grant, Stop>> + 'a {
    let refused = Stop::failed("the claim should have been granted at once");
    async move {
        match acquired(backend, request).await? {
            Acquired::Granted(grant) => Ok(grant),
            _ => Err(refused),
        }
    }
}

/// Joins the queue of a lock that must be held.
#[track_caller]
pub(crate) fn queue<'a>(
    backend: &'a DynBackend,
    request: &'a AcquireRequest,
) -> impl Future<Output = Verdict> + 'a {
    let wrong = Stop::failed("the claim should have been queued");
    async move {
        match acquired(backend, request).await? {
            Acquired::Queued => Ok(()),
            _ => Err(wrong),
        }
    }
}

/// Tries to acquire the lock without waiting. If the claim is granted, it keeps the lock.
pub(crate) async fn tried(
    backend: &DynBackend,
    request: &AcquireRequest,
) -> Result<Option<Grant>, Stop> {
    match acquired(backend, &trying(request.clone())).await? {
        Acquired::Granted(grant) => Ok(Some(grant)),
        Acquired::Busy => Ok(None),
        _ => Err(Stop::failed("a claim that does not wait was queued")),
    }
}

/// Releases a claim that the store must know.
#[track_caller]
pub(crate) fn release<'a>(
    backend: &'a DynBackend,
    request: &AcquireRequest,
) -> impl Future<Output = Verdict> + 'a {
    let lost = Stop::failed("the claim should have been there to release");
    let claim = request.as_claim();
    async move {
        let (released, unsure) = sent(|| backend.release(&claim)).await;
        match released? {
            Released::Released => Ok(()),
            Released::AlreadyLost if unsure => Ok(()),
            _ => Err(lost),
        }
    }
}

/// Releases a claim that the store must no longer know.
#[track_caller]
pub(crate) fn release_in_vain<'a>(
    backend: &'a DynBackend,
    request: &AcquireRequest,
) -> impl Future<Output = Verdict> + 'a {
    let there = Stop::failed("the claim should have gone before the release");
    let claim = request.as_claim();
    async move {
        match backend.release(&claim).await? {
            Released::AlreadyLost => Ok(()),
            _ => Err(there),
        }
    }
}

/// Renews one claim in its mode.
pub(crate) async fn renew(
    backend: &DynBackend,
    request: &AcquireRequest,
    lease: Duration,
) -> Result<Renewed, Stop> {
    renewed(backend, Renewal::new(request.as_claim(), request.mode, lease)).await
}

/// Renews one claim for the last time, perhaps with a shorter lease.
pub(crate) async fn renew_last(
    backend: &DynBackend,
    request: &AcquireRequest,
    lease: Duration,
) -> Result<Renewed, Stop> {
    renewed(backend, Renewal::new(request.as_claim(), request.mode, lease).as_last()).await
}

/// Downgrades an exclusive holder to a shared one.
pub(crate) async fn downgrade(
    backend: &DynBackend,
    request: &AcquireRequest,
) -> Result<Renewed, Stop> {
    renewed(backend, Renewal::new(request.as_claim(), Mode::Shared, request.lease)).await
}

/// Revokes the lock of the first holder, as an operator would.
pub(crate) async fn take_away(backend: &DynBackend, name: &LockName) -> Verdict {
    let state = backend.inspect(name).await?;
    let holder = state.holders.first().ok_or_else(|| Stop::failed("nobody holds the lock"))?;
    let claim = Claim::new(name.clone(), holder.claim);
    match backend.release(&claim).await? {
        Released::Released => Ok(()),
        _ => Err(Stop::failed("inspect names a holder that is not there to release")),
    }
}

async fn renewed(backend: &DynBackend, renewal: Renewal) -> Result<Renewed, Stop> {
    let renewals = [renewal];
    let answers = sent(|| backend.renew(&renewals)).await.0?;
    match answers[..] {
        [answer] => Ok(answer),
        _ => Err(Stop::failed(format!("{} answers to one renewal", answers.len()))),
    }
}

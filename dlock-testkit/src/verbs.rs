//! The contract's verbs, with the answer that a case expects.

use std::time::Duration;

use dlock_core::{
    AcquireRequest, Acquired, Claim, DynBackend, Grant, LockName, Mode, Queue, Released, Renewal,
    Renewed,
};

use crate::{Stop, Verdict};

/// A claim that waits in line and does not end by itself.
pub(crate) fn ask(name: &LockName, mode: Mode) -> AcquireRequest {
    AcquireRequest::new(name.clone(), mode, Duration::from_secs(300))
}

/// [`ask`] for the lock alone.
pub(crate) fn alone(name: &LockName) -> AcquireRequest {
    ask(name, Mode::Exclusive)
}

/// The same with another lease.
pub(crate) fn leased(request: AcquireRequest, lease: Duration) -> AcquireRequest {
    request.with_lease(lease)
}

/// The same without waiting.
pub(crate) fn trying(request: AcquireRequest) -> AcquireRequest {
    request.with_queue(Queue::FailIfBusy)
}

/// Takes what must be free.
#[track_caller]
pub(crate) fn take<'a>(
    backend: &'a DynBackend,
    request: &'a AcquireRequest,
) -> impl Future<Output = Result<Grant, Stop>> + 'a {
    let refused = Stop::failed("the claim should have been granted at once");
    async move {
        match backend.acquire(request).await? {
            Acquired::Granted(grant) => Ok(grant),
            _ => Err(refused),
        }
    }
}

/// Joins the queue of what must be held.
#[track_caller]
pub(crate) fn queue<'a>(
    backend: &'a DynBackend,
    request: &'a AcquireRequest,
) -> impl Future<Output = Verdict> + 'a {
    let wrong = Stop::failed("the claim should have been queued");
    async move {
        match backend.acquire(request).await? {
            Acquired::Queued => Ok(()),
            _ => Err(wrong),
        }
    }
}

/// Whether a claim that does not wait gets the lock. If it does, it keeps it.
pub(crate) async fn tried(
    backend: &DynBackend,
    request: &AcquireRequest,
) -> Result<Option<Grant>, Stop> {
    match backend.acquire(&trying(request.clone())).await? {
        Acquired::Granted(grant) => Ok(Some(grant)),
        Acquired::Busy => Ok(None),
        _ => Err(Stop::failed("a claim that does not wait was queued")),
    }
}

/// Releases a claim that must be there.
#[track_caller]
pub(crate) fn release<'a>(
    backend: &'a DynBackend,
    request: &AcquireRequest,
) -> impl Future<Output = Verdict> + 'a {
    let lost = Stop::failed("the claim should have been there to release");
    let claim = request.as_claim();
    async move {
        match backend.release(&claim).await? {
            Released::Released => Ok(()),
            _ => Err(lost),
        }
    }
}

/// Releases a claim that must have gone.
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
    let renewal = Renewal::new(request.as_claim(), request.mode, lease);
    one(backend.renew(&[renewal]).await?)
}

/// Turns a held claim into a shared one.
pub(crate) async fn downgrade(
    backend: &DynBackend,
    request: &AcquireRequest,
) -> Result<Renewed, Stop> {
    let claim = request.as_claim();
    one(backend.renew(&[Renewal::new(claim, Mode::Shared, request.lease)]).await?)
}

/// Releases whatever claim stands first, as an operator would: behind its holder's back.
pub(crate) async fn take_away(backend: &DynBackend, name: &LockName) -> Verdict {
    let state = backend.inspect(name).await?;
    let holder = state.holders.first().ok_or_else(|| Stop::failed("nobody holds the lock"))?;
    let claim = Claim::new(name.clone(), holder.claim);
    match backend.release(&claim).await? {
        Released::Released => Ok(()),
        _ => Err(Stop::failed("inspect names a holder that is not there to release")),
    }
}

fn one(answers: Vec<Renewed>) -> Result<Renewed, Stop> {
    match answers[..] {
        [answer] => Ok(answer),
        _ => Err(Stop::failed(format!("{} answers to one renewal", answers.len()))),
    }
}

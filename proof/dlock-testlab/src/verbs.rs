//! The verbs of the contract with the answers that tests expect.

use dlock_core::{AcquireRequest, Acquired, DynBackend, Grant, Released, Renewal, Renewed};
use dlock_testkit::{Stop, Verdict};

/// Acquires a lock that must be free.
///
/// # Errors
/// Those of the backend, and any answer but a grant.
pub async fn take(client: &DynBackend, request: &AcquireRequest) -> Result<Grant, Stop> {
    match client.acquire(request).await? {
        Acquired::Granted(grant) => Ok(grant),
        other => Err(Stop::failed(format!("{} is {other:?}", request.name))),
    }
}

/// Joins the queue of a lock that must be held.
///
/// # Errors
/// Those of the backend, and any other answer.
pub async fn queue(client: &DynBackend, request: &AcquireRequest) -> Verdict {
    match client.acquire(request).await? {
        Acquired::Queued => Ok(()),
        other => Err(Stop::failed(format!("{} is {other:?}", request.name))),
    }
}

/// Renews a held claim in its mode.
///
/// # Errors
/// Those of the backend, and any answer but [`Renewed::Kept`].
pub async fn renew(client: &DynBackend, request: &AcquireRequest) -> Verdict {
    let renewal = Renewal::new(request.as_claim(), request.mode, request.lease);
    match client.renew(&[renewal]).await?.as_slice() {
        [Renewed::Kept] => Ok(()),
        other => Err(Stop::failed(format!("{} is {other:?}", request.name))),
    }
}

/// Releases a claim that must exist.
///
/// # Errors
/// Those of the backend, and any answer but [`Released::Released`].
pub async fn free(client: &DynBackend, request: &AcquireRequest) -> Verdict {
    match client.release(&request.as_claim()).await? {
        Released::Released => Ok(()),
        other => Err(Stop::failed(format!("{} is {other:?}", request.name))),
    }
}

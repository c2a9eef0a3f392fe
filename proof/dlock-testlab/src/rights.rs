//! Accounts that lose a right for a while, as when a role is edited.

use std::time::Duration;

use dlock_core::{
    AcquireRequest, Acquired, DynBackend, ErrorKind, LockName, LockOptions, Locks, Mode, Queue,
};
use dlock_testkit::{Stop, Verdict};
use tokio::time::{sleep, timeout};

use crate::verbs::{free, queue, take};

/// Longer than it takes until a claim has ended, on a busy machine.
const SOON: Duration = Duration::from_secs(60);

/// Fails unless claims end whose end was refused by the store, soon after `client` has its right
/// again, or with their `lease`. `set_right` takes the right from the account of `client` and gives it
/// back; `other` keeps it. Nobody renews the claims. A lock is tried until it is free, so a store
/// without sessions passes as well.
///
/// # Errors
/// Those of the backends and of `set_right`, and a lock that stays held.
pub async fn claims_end_after_a_refusal(
    client: &DynBackend,
    other: &DynBackend,
    lease: Duration,
    mut set_right: impl AsyncFnMut(bool) -> Verdict,
) -> Verdict {
    let ask = |name: &str| -> Result<AcquireRequest, Stop> {
        Ok(AcquireRequest::new(LockName::new(name)?, Mode::Exclusive, lease))
    };
    let options = LockOptions::new().with_lease(lease);
    let locks = Locks::new(client.clone())?.with_options(options)?;
    // Each name is in use, so that its record exists while the right is missing.
    for name in ["released", "dropped", "cancelled", "busy"] {
        let request = ask(name)?;
        take(other, &request).await?;
        free(other, &request).await?;
    }
    let released = ask("released")?;
    let (holder, cancelled) = (ask("cancelled")?, ask("cancelled")?);
    let keeper = ask("busy")?;
    let guard = locks.mutex("dropped")?.lock().await?;
    take(client, &released).await?;
    take(other, &holder).await?;
    queue(client, &cancelled).await?;
    take(other, &keeper).await?;
    set_right(false).await?;
    for request in [&released, &cancelled] {
        match timeout(SOON, client.release(&request.as_claim())).await? {
            Err(error) if matches!(error.kind(), ErrorKind::Config(_)) => {}
            answer => {
                return Err(Stop::failed(format!(
                    "{} without the right: {answer:?}",
                    request.name
                )));
            }
        }
    }
    drop(guard);
    // The store refuses the attempt, or only the end of its claim.
    if let Ok(Some(guard)) = timeout(SOON, locks.mutex("busy")?.try_lock()).await? {
        return Err(Stop::failed(format!("granted without the right: {guard:?}")));
    }
    sleep(Duration::from_millis(500)).await;
    set_right(true).await?;
    // They may have expired, if the lease is short.
    for request in [&holder, &keeper] {
        other.release(&request.as_claim()).await?;
    }
    for name in ["released", "dropped", "cancelled", "busy"] {
        until_free(other, name, lease).await?;
    }
    Ok(())
}

/// Fails unless the lock becomes free.
///
/// # Errors
/// Those of the backend, and a lock that stays held.
pub async fn until_free(client: &DynBackend, name: &str, lease: Duration) -> Verdict {
    let trying = async {
        loop {
            let attempt = AcquireRequest::new(LockName::new(name)?, Mode::Exclusive, lease)
                .with_queue(Queue::FailIfBusy);
            match client.acquire(&attempt).await? {
                Acquired::Granted(_) => return free(client, &attempt).await,
                _ => sleep(Duration::from_millis(50)).await,
            }
        }
    };
    let late = |_| Stop::failed(format!("{name} stays held"));
    timeout(SOON, trying).await.map_err(late)?
}

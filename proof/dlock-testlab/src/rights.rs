//! Accounts that lose a right for a while, as when a role is edited.

use std::time::Duration;

use dlock_core::{
    AcquireRequest, Acquired, Certainty, Clock, ConfigIssue, DynBackend, ErrorKind, LockName,
    LockOptions, Locks, Mode, Queue, Renewal, Renewed,
};
use dlock_testkit::{Stop, Verdict};
use futures_util::FutureExt;
use tokio::time::{sleep, timeout};

use crate::{
    Door, Flow, Proxy,
    client::{LEASE, exclusive, free, queue, take, until, works},
};

/// Longer than it takes until a claim has ended, on a busy machine.
const SOON: Duration = Duration::from_secs(60);

/// The locks of [`claims_end_after_a_refusal`].
pub const LOCKS: [&str; 5] = ["released", "dropped", "cancelled", "busy", "weakened"];

/// Fails unless claims of every kind end whose end was refused by the store, soon after `client` has
/// its right again, or with their `lease`. `set_right` takes the right to the [`LOCKS`] from the
/// account of `client` and gives it back; `other` keeps it. Nobody renews the claims. A lock is tried
/// until it is free, so a store without sessions passes as well.
///
/// # Errors
/// Those of the backends and of `set_right`, and a lock that stays held.
pub async fn claims_end_after_a_refusal(
    client: &DynBackend,
    other: &DynBackend,
    lease: Duration,
    mut set_right: impl AsyncFnMut(bool) -> Verdict,
) -> Verdict {
    let all = Mode::permits(2, 2)?;
    for (mode, all) in [
        (Mode::Exclusive, Mode::Exclusive),
        (Mode::Shared, Mode::Exclusive),
        (Mode::permits(1, 2)?, all),
    ] {
        claims_of_a_mode_end(client, other, lease, (mode, all), &mut set_right).await?;
    }
    Ok(())
}

/// `all` is the mode of a holder for which a claim of `mode` waits.
async fn claims_of_a_mode_end(
    client: &DynBackend,
    other: &DynBackend,
    lease: Duration,
    (mode, all): (Mode, Mode),
    set_right: &mut impl AsyncFnMut(bool) -> Verdict,
) -> Verdict {
    let ask = |name: &str, mode| -> Result<AcquireRequest, Stop> {
        Ok(AcquireRequest::new(LockName::new(name)?, mode, lease))
    };
    let options = LockOptions::new().with_lease(lease);
    let locks = Locks::new(client.clone())?.with_options(options)?;
    let attempt = async |name: &str| match mode {
        Mode::Exclusive => locks.mutex(name)?.try_lock().await,
        Mode::Shared => locks.rw(name)?.read().try_lock().await,
        _ => locks.semaphore(name, 2)?.try_acquire().await,
    };
    // Each name is in use, so that its record exists while the right is missing.
    for name in LOCKS {
        let request = ask(name, all)?;
        take(other, &request).await?;
        free(other, &request).await?;
    }
    let released = ask("released", mode)?;
    let (holder, cancelled) = (ask("cancelled", all)?, ask("cancelled", mode)?);
    let keeper = ask("busy", all)?;
    let weakened = ask("weakened", Mode::Exclusive)?;
    let guard = attempt("dropped").await?.ok_or("the lock is not free")?;
    take(client, &released).await?;
    take(other, &holder).await?;
    queue(client, &cancelled).await?;
    take(other, &keeper).await?;
    let taken = Clock::Boot.now();
    take(client, &weakened).await?;
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
    if let Ok(Some(guard)) = timeout(SOON, attempt("busy")).await? {
        return Err(Stop::failed(format!("granted without the right: {guard:?}")));
    }
    // A store may have the right to do this.
    let downgrade = [Renewal::new(weakened.as_claim(), Mode::Shared, lease)];
    let _ = timeout(SOON, client.renew(&downgrade)).await?;
    sleep(Duration::from_millis(500)).await;
    set_right(true).await?;
    let answer = client.renew(&downgrade).await?;
    match answer.first() {
        Some(Renewed::Kept) => {
            let reader = ask("weakened", Mode::Shared)?.with_queue(Queue::FailIfBusy);
            take(other, &reader).await?;
            free(other, &reader).await?;
        }
        // It may have expired, if the lease is short.
        _ if Clock::Boot.now().since(taken) >= lease => {}
        answer => {
            return Err(Stop::failed(format!("a refused downgrade costs the lock: {answer:?}")));
        }
    }
    client.release(&weakened.as_claim()).await?;
    for request in [&holder, &keeper] {
        other.release(&request.as_claim()).await?;
    }
    for name in LOCKS {
        until_free(other, name, lease).await?;
    }
    Ok(())
}

/// The lock of [`claims_of_unknown_outcome_end`].
pub const UNKNOWN: &str = "unknown";

/// Fails unless a claim ends whose creation was not answered, and whose outcome the store then refuses
/// to show: soon after its client has its right again, if the claim was released meanwhile, and after a
/// release, if it was sent again. `client` is connected through the proxy. `set_right` takes the right
/// to read the lock [`UNKNOWN`] from its account and gives it back.
///
/// # Errors
/// Those of the backends, of the proxy and of `set_right`, and a lock that stays held.
pub async fn claims_of_unknown_outcome_end(
    client: &DynBackend,
    other: &DynBackend,
    proxy: &Proxy,
    mut set_right: impl AsyncFnMut(bool) -> Verdict,
) -> Verdict {
    for is_sent_again in [false, true] {
        works(other, UNKNOWN).await?;
        let request = exclusive(UNKNOWN);
        proxy.replies(Flow::Drop);
        let mut taking = std::pin::pin!(client.acquire(&request));
        until("the claim is made", async || match taking.as_mut().now_or_never() {
            None => Ok(!other.inspect(&request.name).await?.is_free()),
            Some(taken) => Err(Stop::failed(format!("{taken:?} without an answer"))),
        })
        .await?;
        set_right(false).await?;
        // A new connection would miss the beginning of the server's answer.
        proxy.door(Door::Closed).await?;
        proxy.cut();
        sleep(Duration::from_millis(5)).await;
        proxy.pass().await?;
        match timeout(SOON, taking).await? {
            Err(error)
                if matches!(error.kind(), ErrorKind::Config(_))
                    && error.certainty() == Certainty::Unknown => {}
            answer => return Err(Stop::failed(format!("the outcome is unknown: {answer:?}"))),
        }
        if is_sent_again {
            set_right(true).await?;
            take(client, &request).await?;
            free(client, &request).await?;
        } else {
            // The store may refuse it, or have the right to do this.
            let _ = timeout(SOON, client.release(&request.as_claim())).await?;
            set_right(true).await?;
        }
        until_free(other, UNKNOWN, LEASE).await?;
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
            match client.acquire(&attempt).await {
                Ok(Acquired::Granted(_)) => return free(client, &attempt).await,
                // A lock of another kind is held.
                Err(error) if error.kind() != ErrorKind::Config(ConfigIssue::Capacity) => {
                    return Err(error.into());
                }
                _ => sleep(Duration::from_millis(50)).await,
            }
        }
    };
    let late = |_| Stop::failed(format!("{name} stays held"));
    timeout(SOON, trying).await.map_err(late)?
}

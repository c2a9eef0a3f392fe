//! Faults of waiting claims.

#![expect(clippy::disallowed_methods, reason = "tests start tasks of their own")]

use std::time::Duration;

use dlock_core::{
    AcquireRequest, Error, FairMutex, Guard, LockName, LockOptions, Locks, Memory, Mode, Renew,
    Renewal, Renewed,
};
use dlock_testlab::{
    Stop, Verdict,
    redis::{Options, RedisServer},
};
use tokio::{task::spawn, time::sleep};

use crate::connect;

/// A claim that waits in the queue.
pub(crate) fn ask(name: &LockName, lease: Duration) -> AcquireRequest {
    AcquireRequest::new(name.clone(), Mode::Exclusive, lease)
}

/// After a failover that lost a grant, the claim may still be in the queue of the new master: the
/// answer must not say that its holder has the lock for another lease.
pub(crate) async fn a_waiter_is_not_renewed_as_a_holder() -> Verdict {
    let server = RedisServer::start(&Options::new()).await?;
    let client = connect(server.url()).await?;
    let (name, lease) = (LockName::new("waits")?, Duration::from_secs(30));
    let [holder, waiter] = [ask(&name, lease), ask(&name, lease)];
    client.acquire(&holder).await?;
    client.acquire(&waiter).await?;
    let renewal = |request: &AcquireRequest| Renewal::new(request.as_claim(), request.mode, lease);
    let answers = client.renew(&[renewal(&holder), renewal(&waiter)]).await?;
    match answers[..] {
        [Renewed::Kept, Renewed::Lost] => Ok(()),
        _ => Err(Stop::failed(format!("the holder and the waiter are told {answers:?}"))),
    }
}

/// A multi-lock that repeatedly waits for longer than its lease continues to wait.
pub(crate) async fn a_multi_lock_waits_until_all_locks_are_free() -> Verdict {
    let locks = Locks::new(Memory::new())?;
    let brief = LockOptions::new().with_lease(Duration::from_millis(200)).with_renew(Renew::Never);
    let multi = locks.with_options(brief)?.multi(["multi/a", "multi/b"])?;
    let other = locks.fair("multi/b")?;
    let turns = spawn(take_turns(other.lock().await?, other));
    let taken = multi.lock_timeout(Duration::from_secs(60)).await;
    turns.abort();
    match taken {
        Ok(_) => Ok(()),
        Err(error) => Err(Stop::failed(format!("{:?}: {error}", error.kind()))),
    }
}

/// Holds a lock three times, each time for one to two leases of the waiter. The waiter is in the
/// queue again before each release.
async fn take_turns(mut guard: Guard, lock: FairMutex) -> Result<(), Error> {
    for _ in 0..3 {
        sleep(Duration::from_millis(300)).await;
        let lock = lock.clone();
        let next = spawn(async move { lock.lock().await });
        sleep(Duration::from_millis(5)).await;
        guard.release().await?;
        match next.await {
            Ok(next) => guard = next?,
            Err(_) => return Ok(()),
        }
    }
    guard.release().await.map(|_| ())
}

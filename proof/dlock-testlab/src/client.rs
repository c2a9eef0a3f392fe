//! Steps of tests with a client: requests, the verbs of the contract with the answers that tests
//! expect, and waits for changes.

use std::time::Duration;

use dlock_core::{
    AcquireRequest, Acquired, Clock, DynBackend, Error, ErrorKind, Grant, Guard, LockName, Locks,
    Mode, Queue, Released, Renewal, Renewed,
};
use dlock_testkit::{Stop, Verdict, run_test};
use tokio::{
    runtime::Builder,
    task::{JoinHandle, spawn},
    time::{sleep, timeout},
};

/// A lease that outlasts any wait of a test: what comes [soon](SOON) did not wait for its end.
pub const LEASE: Duration = Duration::from_secs(180);

/// Longer than anything takes that has to happen, however busy the machine is, and shorter than the
/// longest time for an answer, a minute.
pub const SOON: Duration = Duration::from_secs(45);

/// Longer than any test takes, however busy the machine is.
const LONG: Duration = Duration::from_secs(300);

/// Runs a test that needs a server of this store; without one it ends early, unless it must not.
/// The test has one thread, so that a subscriber of one test hears nothing of another.
///
/// # Panics
/// If the test fails.
pub fn run_on_one_thread(store: &str, test: impl Future<Output = Verdict>) {
    run_test(
        store,
        Builder::new_current_thread().enable_all().build().expect("a runtime"),
        LONG,
        test,
    );
}

/// Like [`run_on_one_thread`], with several threads.
///
/// # Panics
/// If the test fails.
pub fn run_on_threads(store: &str, test: impl Future<Output = Verdict>) {
    let runtime = Builder::new_multi_thread().worker_threads(2).enable_all().build();
    run_test(store, runtime.expect("a runtime"), LONG, test);
}

/// Returns the name of a lock.
///
/// # Panics
/// If it is not valid.
pub fn name(text: &str) -> LockName {
    LockName::new(text).expect("a name")
}

/// Returns a claim that waits in the queue.
pub fn ask(lock: &str, mode: Mode) -> AcquireRequest {
    AcquireRequest::new(name(lock), mode, LEASE)
}

/// Returns an exclusive claim that waits in the queue.
pub fn exclusive(lock: &str) -> AcquireRequest {
    ask(lock, Mode::Exclusive)
}

/// Returns an exclusive claim that does not wait.
pub fn attempt(lock: &str) -> AcquireRequest {
    exclusive(lock).with_queue(Queue::FailIfBusy)
}

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

/// Acquires a lock, waiting for it.
///
/// # Errors
/// Those of the backend, and a lock that is not granted.
pub async fn lock(client: &DynBackend, request: &AcquireRequest) -> Result<Grant, Stop> {
    match client.acquire(request).await? {
        Acquired::Granted(grant) => Ok(grant),
        Acquired::Queued => granted(client, request).await,
        other => Err(Stop::failed(format!("{} is {other:?}", request.name))),
    }
}

/// Waits for a claim that is in the queue.
///
/// # Errors
/// Those of the backend, and a claim that is not granted soon.
pub async fn granted(client: &DynBackend, request: &AcquireRequest) -> Result<Grant, Stop> {
    let late = |_| Stop::failed(format!("{} is not granted", request.name));
    Ok(timeout(SOON, client.granted(request)).await.map_err(late)??)
}

/// Fails if a claim that is in the queue is granted within a while.
///
/// # Errors
/// Those of the backend, and a grant.
pub async fn waits(client: &DynBackend, request: &AcquireRequest) -> Verdict {
    match timeout(Duration::from_millis(300), client.granted(request)).await {
        Err(_) => Ok(()),
        Ok(Ok(grant)) => {
            Err(Stop::violation(format!("{} has two holders: {grant:?}", request.name)))
        }
        Ok(Err(error)) => Err(error.into()),
    }
}

/// Returns the error of an acquire that has to fail soon.
///
/// # Errors
/// An answer.
pub async fn fails(client: &DynBackend, request: &AcquireRequest) -> Result<Error, Stop> {
    match timeout(SOON, client.acquire(request)).await? {
        Err(error) => Ok(error),
        Ok(answer) => Err(Stop::failed(format!("{answer:?}"))),
    }
}

/// Returns the error of a connect that has to fail soon.
///
/// # Errors
/// A connection.
pub async fn refused(
    connecting: impl Future<Output = Result<DynBackend, Error>>,
) -> Result<Error, Stop> {
    match timeout(SOON, connecting).await? {
        Ok(backend) => Err(Stop::failed(format!("{} accepts the client", backend.store()))),
        Err(error) => Ok(error),
    }
}

/// Fails unless the error is of this kind, names the remedy, and does not show the password
/// `secret`.
///
/// # Panics
/// If it fails.
#[track_caller]
pub fn says(error: &Error, kind: ErrorKind, remedy: &str) {
    assert_eq!(error.kind(), kind, "{error:?}");
    assert!(error.to_string().contains(remedy), "no {remedy:?} in {error:?}");
    assert!(!format!("{error} {error:?}").contains("secret"), "{error:?}");
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

/// Acquires, renews and releases, as on a server without faults.
///
/// # Errors
/// Those of the backend, and any answer but the usual one.
pub async fn works(client: &DynBackend, lock: &str) -> Verdict {
    let request = exclusive(lock);
    take(client, &request).await?;
    renew(client, &request).await?;
    free(client, &request).await
}

/// Uses every verb, every mode, several names at once, and hand-offs to another client.
///
/// # Errors
/// Those of the backend, and any answer but the usual one.
pub async fn works_fully(client: &DynBackend, other: &DynBackend, lock: &str) -> Verdict {
    works(client, lock).await?;
    // A client may save steps the second time.
    works(client, lock).await?;
    for mode in [Mode::Shared, Mode::permits(2, 3)?] {
        let (first, second) = (ask(lock, mode), ask(lock, mode));
        take(client, &first).await?;
        let answer = other.acquire(&second).await?;
        renew(client, &first).await?;
        free(client, &first).await?;
        if answer == Acquired::Queued {
            granted(other, &second).await?;
        }
        free(other, &second).await?;
    }
    let (held, waiting) = (exclusive(lock), exclusive(lock));
    take(client, &held).await?;
    queue(other, &waiting).await?;
    let busy = other.acquire(&attempt(lock)).await?;
    let state = client.inspect(&held.name).await?;
    let [holder, waiter] = [&state.holders, &state.waiters].map(|claims| claims.first());
    let seen = [holder, waiter].map(|claim| claim.map(|claim| claim.claim));
    if busy != Acquired::Busy || seen != [Some(held.claim), Some(waiting.claim)] {
        return Err(Stop::failed(format!("a held lock is {busy:?}: {state:?}")));
    }
    free(client, &held).await?;
    granted(other, &waiting).await?;
    // A downgrade, and a reader that is granted by it.
    let reader = ask(lock, Mode::Shared);
    queue(client, &reader).await?;
    other.renew(&[Renewal::new(waiting.as_claim(), Mode::Shared, LEASE)]).await?;
    granted(client, &reader).await?;
    free(client, &reader).await?;
    free(other, &waiting).await?;
    // Not every client can take these two at once.
    let both = [exclusive(lock), exclusive(&format!("{lock:.500}2"))];
    if let Some(answer) = client.acquire_all(&both) {
        answer.await?;
        for request in &both {
            free(client, request).await?;
        }
    }
    Ok(())
}

/// Holds all these locks at once, and checks that each has its own holder.
///
/// # Errors
/// Those of the backend, and any answer but the usual one.
///
/// # Panics
/// If two names are one lock.
pub async fn are_separate(client: &DynBackend, names: &[LockName]) -> Verdict {
    let held: Vec<_> = names.iter().map(|name| exclusive(name.as_str())).collect();
    for request in &held {
        take(client, request).await?;
    }
    for request in &held {
        let state = client.inspect(&request.name).await?;
        assert_eq!(state.holders.len(), 1, "{}", request.name);
        assert_eq!(state.holders[0].claim, request.claim, "{}", request.name);
    }
    for request in &held {
        free(client, request).await?;
    }
    Ok(())
}

/// Checks repeatedly until it is so.
///
/// # Errors
/// Those of the check, and if it is not so soon.
pub async fn until(what: &str, mut check: impl AsyncFnMut() -> Result<bool, Stop>) -> Verdict {
    let polling = async {
        while !check().await? {
            sleep(Duration::from_millis(10)).await;
        }
        Ok(())
    };
    timeout(SOON, polling).await.map_err(|_| Stop::failed(format!("not in time: {what}")))?
}

/// Waits until a lock can be acquired and released again.
///
/// # Errors
/// If that is not possible soon.
pub async fn until_it_works(client: &DynBackend) -> Verdict {
    until("it works again", async || {
        let request = exclusive("until it works");
        let works = client.acquire(&request).await.is_ok();
        Ok(client.release(&request.as_claim()).await.is_ok() && works)
    })
    .await
}

/// The holder of a lock whose client will be cut off, and a waiter on another client.
#[derive(Debug)]
pub struct CutOffHolder {
    locks: Locks,
    guard: Guard,
    waiting: JoinHandle<Result<Guard, Stop>>,
}

impl CutOffHolder {
    /// Acquires a lock with the first client, and starts to wait for it with the second one.
    ///
    /// # Errors
    /// Those of the backend.
    #[expect(clippy::disallowed_methods, reason = "a task of a test")]
    pub async fn start(holder: DynBackend, waiter: DynBackend) -> Result<Self, Stop> {
        let locks = Locks::new(holder)?;
        let guard = locks.mutex("cut")?.lock().await?;
        let other = Locks::new(waiter)?;
        let waiting = spawn(async move { relock(&other).await });
        Ok(Self { locks, guard, waiting })
    }

    /// Checks that the holder, which is cut off now, reports the loss before the waiter is granted
    /// the lock, and acquires it again after `heal`.
    ///
    /// # Errors
    /// Any other order.
    #[expect(clippy::disallowed_methods, reason = "a task of a test")]
    pub async fn ends_in_order(self, heal: impl FnOnce()) -> Verdict {
        let Self { locks, guard, waiting } = self;
        let lost = guard.lost();
        let losing = spawn(async move { (lost.await, Clock::Boot.now()) });
        let granted = timeout(SOON, waiting).await???;
        let (at, checked) = (Clock::Boot.now(), guard.check());
        if checked.is_ok() {
            return Err(Stop::violation(format!("{granted:?} while {guard:?} is valid")));
        }
        let (ended, notified) = timeout(SOON, losing).await??;
        println!("cut: {ended:?}, {:?} before the next one held it", at.since(notified));
        if notified > at {
            let late = notified.since(at);
            return Err(Stop::failed(format!("the loss was reported {late:?} late")));
        }
        if granted.token() <= guard.token() {
            return Err(Stop::violation(format!("{granted:?} after {guard:?}")));
        }
        granted.release().await?;
        heal();
        drop(guard);
        relock(&locks).await?.release().await?;
        Ok(())
    }
}

/// Acquires the lock `cut` from servers that need time to recover.
///
/// # Errors
/// If that is not possible soon.
pub async fn relock(locks: &Locks) -> Result<Guard, Stop> {
    let taking = async {
        loop {
            match locks.mutex("cut")?.lock().await {
                Err(error) if error.kind() == ErrorKind::Unavailable => {
                    sleep(Duration::from_millis(50)).await;
                }
                answer => return answer,
            }
        }
    };
    Ok(timeout(SOON, taking).await??)
}

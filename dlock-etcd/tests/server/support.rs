//! A private server, clients of it, and the steps of the tests.

use std::time::Duration;

use dlock_core::{AcquireRequest, DynBackend, Error, ErrorKind, Grant, LockName, Mode, Queue};
use dlock_etcd::{Etcd, EtcdConfig};
pub(crate) use dlock_testlab::verbs::{free, queue, renew, take};
use dlock_testlab::{
    Stop, Verdict,
    etcd::{EtcdServer, Options},
    run_test,
};
use tokio::time::{sleep, timeout};

/// Longer than any lease here has to last.
pub(crate) const LEASE: Duration = Duration::from_secs(60);

/// Longer than anything here takes, however busy the machine is.
const LONG: Duration = Duration::from_secs(240);

/// Longer than anything takes that has to happen, however busy the machine is.
pub(crate) const SOON: Duration = Duration::from_secs(60);

/// Runs a test that needs an etcd server; without one it ends early, unless it must not.
pub(crate) fn run(test: impl Future<Output = Verdict>) {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    run_test("etcd", runtime.expect("a runtime"), LONG, test);
}

pub(crate) async fn server() -> Result<EtcdServer, Stop> {
    EtcdServer::start(&Options::new()).await
}

/// A server, and two clients of it.
pub(crate) async fn start() -> Result<(EtcdServer, DynBackend, DynBackend), Stop> {
    let server = server().await?;
    let (one, two) = (connect(&url(&server)).await?, connect(&url(&server)).await?);
    Ok((server, one, two))
}

/// The URL of the server. Sessions are long enough for a busy machine.
pub(crate) fn url(server: &EtcdServer) -> String {
    format!("{}?dlock.session_timeout=15s", server.url())
}

pub(crate) async fn connect(url: &str) -> Result<DynBackend, Error> {
    Etcd::connect(EtcdConfig::from_url(url)?).await
}

/// The error of a connect that has to fail, and soon.
pub(crate) async fn refused(url: &str) -> Result<Error, Stop> {
    match timeout(SOON, connect(url)).await? {
        Ok(backend) => Err(Stop::failed(format!("{} is let in", backend.store()))),
        Err(error) => Ok(error),
    }
}

/// The error of an acquire that has to fail, and soon.
pub(crate) async fn fails(client: &DynBackend, request: &AcquireRequest) -> Result<Error, Stop> {
    match timeout(SOON, client.acquire(request)).await? {
        Err(error) => Ok(error),
        Ok(answer) => Err(Stop::failed(format!("{answer:?}"))),
    }
}

/// Fails unless the error is of this kind, names the remedy, and shows no password.
#[track_caller]
pub(crate) fn says(error: &Error, kind: ErrorKind, remedy: &str) {
    assert_eq!(error.kind(), kind, "{error:?}");
    assert!(error.to_string().contains(remedy), "no {remedy:?} in {error:?}");
    // The password of all credentials here.
    assert!(!format!("{error} {error:?}").contains("secret"), "{error:?}");
}

pub(crate) fn name(text: &str) -> LockName {
    LockName::new(text).expect("a name")
}

pub(crate) fn ask(lock: &str, mode: Mode) -> AcquireRequest {
    AcquireRequest::new(name(lock), mode, LEASE)
}

pub(crate) fn exclusive(lock: &str) -> AcquireRequest {
    ask(lock, Mode::Exclusive)
}

pub(crate) fn attempt(lock: &str, mode: Mode) -> AcquireRequest {
    ask(lock, mode).with_queue(Queue::FailIfBusy)
}

/// Waits for a claim that is in the queue.
pub(crate) async fn granted(client: &DynBackend, request: &AcquireRequest) -> Result<Grant, Stop> {
    Ok(timeout(SOON, client.granted(request)).await??)
}

/// Fails if a claim that is in the queue is granted within a while.
pub(crate) async fn waits(client: &DynBackend, request: &AcquireRequest) -> Verdict {
    match timeout(Duration::from_millis(300), client.granted(request)).await {
        Err(_) => Ok(()),
        Ok(Ok(grant)) => {
            Err(Stop::violation(format!("{} has two holders: {grant:?}", request.name)))
        }
        Ok(Err(error)) => Err(error.into()),
    }
}

/// Acquires, renews and releases, as if nothing had ever happened to the server.
pub(crate) async fn works(client: &DynBackend, lock: &str) -> Verdict {
    let request = exclusive(lock);
    take(client, &request).await?;
    renew(client, &request).await?;
    free(client, &request).await
}

/// Checks repeatedly until it is so.
pub(crate) async fn until(
    what: &str,
    mut check: impl AsyncFnMut() -> Result<bool, Stop>,
) -> Verdict {
    let polling = async {
        while !check().await? {
            sleep(Duration::from_millis(10)).await;
        }
        Ok(())
    };
    let late = |_| Stop::failed(format!("not in time: {what}"));
    timeout(SOON, polling).await.map_err(late)?
}

/// Waits until a lock can be acquired and released again.
pub(crate) async fn until_it_works(client: &DynBackend) -> Verdict {
    until("it works again", async || {
        let request = exclusive("until it works");
        let works = client.acquire(&request).await.is_ok();
        Ok(client.release(&request.as_claim()).await.is_ok() && works)
    })
    .await
}

/// The key of a claim.
pub(crate) async fn key_of(server: &EtcdServer, claim: &AcquireRequest) -> Result<String, Stop> {
    for key in keys(server, claim.name.as_str()).await? {
        let value = server.value(&key).await?;
        if value.is_some_and(|value| value.contains(&claim.claim.to_string())) {
            return Ok(key);
        }
    }
    Err(Stop::failed(format!("no key of {claim:?}")))
}

/// The keys of a lock.
pub(crate) async fn keys(server: &EtcdServer, lock: &str) -> Result<Vec<String>, Stop> {
    server.keys_under(&format!("/dlock/{lock}/")).await
}

//! A private server, clients of it, and looks at it past the backend.

use std::time::Duration;

use dlock_core::{
    AcquireRequest, Acquired, DynBackend, Error, ErrorKind, Grant, LockName, Mode, Queue, Renewal,
};
pub(crate) use dlock_testlab::verbs::{free, queue, renew, take};
use dlock_testlab::{
    Stop, Verdict, run_test,
    zookeeper::{Options, ZooKeeperServer},
};
use dlock_zk::{ZkConfig, ZooKeeper};
use tokio::time::{sleep, timeout};
use zookeeper_client::Client;

/// Longer than any lease here has to last.
pub(crate) const LEASE: Duration = Duration::from_secs(60);

/// Longer than anything here takes, however busy the machine is.
const LONG: Duration = Duration::from_secs(180);

/// Longer than anything takes that has to happen, however busy the machine is: a few times the
/// longest time-out in between.
pub(crate) const SOON: Duration = Duration::from_secs(40);

/// Runs a test that needs a ZooKeeper server; without one it ends early, unless it must not. One
/// thread, so that a subscriber of one test hears nothing of another.
pub(crate) fn run(test: impl Future<Output = Verdict>) {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    run_test("zk", runtime.expect("a runtime"), LONG, test);
}

pub(crate) async fn server() -> Result<ZooKeeperServer, Stop> {
    ZooKeeperServer::start(&Options::new()).await
}

/// A server, and a client of it.
pub(crate) async fn start() -> Result<(ZooKeeperServer, DynBackend), Stop> {
    let server = server().await?;
    let client = connect(&url(&server)).await?;
    Ok((server, client))
}

/// Where a client finds the server. Sessions are long enough for a busy machine.
pub(crate) fn url(server: &ZooKeeperServer) -> String {
    format!("zk://{}?dlock.session_timeout=15s", server.address())
}

pub(crate) async fn connect(url: &str) -> Result<DynBackend, Error> {
    ZooKeeper::connect(ZkConfig::from_url(url)?).await
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

/// Fails unless the error is of this kind, names the remedy, and keeps the password to itself.
#[track_caller]
pub(crate) fn says(error: &Error, kind: ErrorKind, remedy: &str) {
    assert_eq!(error.kind(), kind, "{error:?}");
    assert!(error.to_string().contains(remedy), "no {remedy:?} in {error:?}");
    // That of all credentials here.
    assert!(!format!("{error} {error:?}").contains("secret"), "{error:?}");
}

/// A session of the driver alone.
pub(crate) async fn raw(server: &ZooKeeperServer) -> Result<Client, Stop> {
    Ok(Client::connect(&server.address()).await?)
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

pub(crate) fn attempt(lock: &str) -> AcquireRequest {
    exclusive(lock).with_queue(Queue::FailIfBusy)
}

/// Waits for a claim that is in the queue.
pub(crate) async fn granted(client: &DynBackend, request: &AcquireRequest) -> Result<Grant, Stop> {
    Ok(timeout(SOON, client.granted(request)).await??)
}

/// Fails when a claim that is in the queue is granted within a while.
pub(crate) async fn waits(client: &DynBackend, request: &AcquireRequest) -> Verdict {
    match timeout(Duration::from_millis(300), client.granted(request)).await {
        Err(_) => Ok(()),
        Ok(Ok(grant)) => {
            Err(Stop::violation(format!("{} has two holders: {grant:?}", request.name)))
        }
        Ok(Err(error)) => Err(error.into()),
    }
}

/// Takes and gives back, as if nothing had ever happened to the server.
pub(crate) async fn works(client: &DynBackend, lock: &str) -> Verdict {
    let request = exclusive(lock);
    take(client, &request).await?;
    renew(client, &request).await?;
    free(client, &request).await
}

/// Every verb, every mode, and hand-overs to another client.
pub(crate) async fn works_fully(client: &DynBackend, other: &DynBackend, lock: &str) -> Verdict {
    works(client, lock).await?;
    for mode in [Mode::Shared, Mode::permits(2, 3)?] {
        let (first, second) = (ask(lock, mode), ask(lock, mode));
        take(client, &first).await?;
        other.acquire(&second).await?;
        renew(client, &first).await?;
        free(client, &first).await?;
        granted(other, &second).await?;
        free(other, &second).await?;
    }
    let (held, waiting) = (exclusive(lock), exclusive(lock));
    take(client, &held).await?;
    queue(other, &waiting).await?;
    assert_eq!(other.acquire(&attempt(lock)).await?, Acquired::Busy);
    let state = client.inspect(&held.name).await?;
    assert_eq!((state.holders[0].claim, state.waiters[0].claim), (held.claim, waiting.claim));
    free(client, &held).await?;
    granted(other, &waiting).await?;
    // A downgrade, and a reader that was let in by it.
    let reader = ask(lock, Mode::Shared);
    queue(client, &reader).await?;
    let weaker = Renewal::new(waiting.as_claim(), Mode::Shared, LEASE);
    other.renew(&[weaker]).await?;
    granted(client, &reader).await?;
    free(client, &reader).await?;
    free(other, &waiting).await?;
    let both = [exclusive(lock), exclusive(&format!("{lock:.500}2"))];
    if let Some(answer) = client.acquire_all(&both) {
        answer.await?;
        for request in &both {
            free(client, request).await?;
        }
    }
    Ok(())
}

/// Asks again until it is so.
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

/// Waits until a lock can be taken and given back again.
pub(crate) async fn until_it_works(client: &DynBackend) -> Verdict {
    until("it works again", async || {
        let request = exclusive("until it works");
        let works = client.acquire(&request).await.is_ok();
        Ok(client.release(&request.as_claim()).await.is_ok() && works)
    })
    .await
}

pub(crate) fn url_of(ensemble: &dlock_testlab::zookeeper::Ensemble) -> String {
    format!("zk://{}?dlock.session_timeout=15s", ensemble.connect_string())
}

/// Servers that do not remove empty containers during a test.
pub(crate) fn lazy() -> Options {
    Options::new().with_container_checks_every(Duration::from_secs(3600))
}

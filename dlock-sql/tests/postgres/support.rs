//! Helpers of the tests: a private server, its clients, and direct access to its tables.

use std::time::Duration;

use dlock_core::{
    AcquireRequest, Acquired, DynBackend, Error, ErrorKind, Grant, LockName, Mode, Queue,
};
use dlock_sql::{Postgres, PostgresConfig};
pub(crate) use dlock_testlab::verbs::{free, queue, renew, take};
use dlock_testlab::{
    Stop, Verdict,
    postgres::{Options, PgBouncer, PostgresServer},
    run_test,
};
use tokio::time::{sleep, timeout};

/// Longer than any lease here has to last.
pub(crate) const LEASE: Duration = Duration::from_secs(30);

/// Longer than anything here takes, however busy the machine is.
const LONG: Duration = Duration::from_secs(120);

/// Runs a test that needs a server; without PostgreSQL it ends early, unless it must not.
pub(crate) fn run(test: impl Future<Output = Verdict>) {
    let runtime =
        tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build();
    run_test("postgres", runtime.expect("a runtime"), LONG, test);
}

pub(crate) async fn server() -> Result<PostgresServer, Stop> {
    PostgresServer::start(&Options::new()).await
}

/// A server with dlock's tables, and a client of it.
pub(crate) async fn start() -> Result<(PostgresServer, DynBackend), Stop> {
    let server = server().await?;
    let client = connect(&create(&server)).await?;
    Ok((server, client))
}

/// A server with dlock's tables, and a pooler before it.
pub(crate) async fn start_pooler(config: &[&str]) -> Result<(PostgresServer, PgBouncer), Stop> {
    let (server, _) = start().await?;
    let bouncer = PgBouncer::start(&server, config).await?;
    Ok((server, bouncer))
}

/// Where a client finds the server that is to make the tables.
pub(crate) fn create(server: &PostgresServer) -> String {
    format!("{}?dlock.create_schema=true", server.url())
}

pub(crate) fn config(url: &str) -> Result<PostgresConfig, Error> {
    PostgresConfig::from_url(&url.parse()?)
}

pub(crate) async fn connect(url: &str) -> Result<DynBackend, Error> {
    Postgres::open(config(url)?).await
}

/// The error of a connect that has to fail.
pub(crate) async fn refused(url: &str) -> Result<Error, Stop> {
    match connect(url).await {
        Ok(backend) => Err(Stop::failed(format!("{} is let in", backend.store()))),
        Err(error) => Ok(error),
    }
}

/// Fails unless the error is of this kind, names the remedy, and keeps the password to itself.
#[track_caller]
pub(crate) fn says(error: &Error, kind: ErrorKind, remedy: &str) {
    assert_eq!(error.kind(), kind, "{error:?}");
    assert!(error.to_string().contains(remedy), "no {remedy:?} in {error:?}");
    // That of all the servers here.
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

pub(crate) fn attempt(lock: &str) -> AcquireRequest {
    exclusive(lock).with_queue(Queue::FailIfBusy)
}

/// Waits for a claim that is in the queue.
pub(crate) async fn granted(client: &DynBackend, request: &AcquireRequest) -> Result<Grant, Stop> {
    Ok(client.granted(request).await?)
}

/// Acquires and releases, as on a server without faults.
pub(crate) async fn works(client: &DynBackend, lock: &str) -> Verdict {
    let request = exclusive(lock);
    take(client, &request).await?;
    renew(client, &request).await?;
    free(client, &request).await
}

/// Every verb, several names at once, and a hand-over to another client.
pub(crate) async fn works_fully(client: &DynBackend, other: &DynBackend, lock: &str) -> Verdict {
    works(client, lock).await?;
    let (held, waiting) = (exclusive(lock), exclusive(lock));
    take(client, &held).await?;
    queue(other, &waiting).await?;
    if !matches!(other.acquire(&attempt(lock)).await?, Acquired::Busy) {
        return Err(Stop::failed("a held lock is not busy"));
    }
    assert_eq!(client.inspect(&held.name).await?.holders.len(), 1);
    free(client, &held).await?;
    granted(other, &waiting).await?;
    free(other, &waiting).await?;
    let both = [exclusive(lock), exclusive(&format!("{lock}2"))];
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
            sleep(Duration::from_millis(20)).await;
        }
        Ok(())
    };
    let late = |_| Stop::failed(format!("not in time: {what}"));
    timeout(Duration::from_secs(60), polling).await.map_err(late)?
}

//! Helpers of the tests: private servers and their clients.

use std::time::Duration;

use dlock_core::{
    AcquireRequest, Acquired, ConfigIssue, DynBackend, Error, ErrorKind, Grant, LockName, Mode,
    Queue, Released,
};
use dlock_sql::{Mysql, MysqlConfig};
use dlock_testlab::{
    Stop, Verdict,
    mariadb::{MariadbServer, Options},
    run_test,
};
use tokio::{runtime::Builder, time::timeout};

/// Longer than anything here takes, however busy the machine is.
pub(crate) const LONG: Duration = Duration::from_secs(60);

pub(crate) const LEASE: Duration = Duration::from_secs(30);

/// Runs a test that needs a MariaDB server; without MariaDB it ends early, unless it must not.
pub(crate) fn with_mariadb(test: impl Future<Output = Verdict>) {
    let runtime = Builder::new_multi_thread().enable_all().build().expect("a runtime");
    run_test("mysql", runtime, LONG * 4, test);
}

/// A server with empty tables.
pub(crate) async fn server() -> Result<MariadbServer, Stop> {
    server_with(&Options::new()).await
}

pub(crate) async fn server_with(options: &Options) -> Result<MariadbServer, Stop> {
    let server = MariadbServer::start(options).await?;
    server.run_sql(MysqlConfig::SCHEMA).await?;
    Ok(server)
}

pub(crate) fn config(url: &str) -> Result<MysqlConfig, Error> {
    MysqlConfig::from_url(&url.parse()?)
}

/// A client of its own.
pub(crate) async fn connect(server: &MariadbServer) -> Result<DynBackend, Error> {
    Mysql::open(config(&server.url())?).await
}

/// A client that uses the server as MySQL has to be used.
pub(crate) async fn connect_plainly(server: &MariadbServer) -> Result<DynBackend, Error> {
    Mysql::open(config(&server.url())?.with_returning(false)).await
}

/// The error of a configuration that can't be used.
#[track_caller]
pub(crate) fn refused(
    config: MysqlConfig,
    issue: ConfigIssue,
    remedy: &'static str,
) -> impl Future<Output = Verdict> {
    let wrong = move |error: &Error| Stop::failed(format!("{issue:?}, {remedy}: {error}"));
    async move {
        let Err(error) = Mysql::open(config).await else {
            return Err(Stop::failed(format!("{issue:?} is not refused")));
        };
        let is_it = error.kind() == ErrorKind::Config(issue) && error.to_string().contains(remedy);
        if is_it { Ok(()) } else { Err(wrong(&error)) }
    }
}

pub(crate) fn name(text: &str) -> LockName {
    LockName::new(text).expect("a name")
}

/// A claim for the lock alone that waits in line.
pub(crate) fn ask(lock: &str) -> AcquireRequest {
    AcquireRequest::new(name(lock), Mode::Exclusive, LEASE)
}

/// A claim for the lock alone that does not wait.
pub(crate) fn attempt(lock: &str) -> AcquireRequest {
    ask(lock).with_queue(Queue::FailIfBusy)
}

/// Takes what must be free.
pub(crate) async fn take(client: &DynBackend, request: &AcquireRequest) -> Result<Grant, Stop> {
    match client.acquire(request).await? {
        Acquired::Granted(grant) => Ok(grant),
        other => Err(Stop::failed(format!("{}: {other:?}", request.name))),
    }
}

/// Joins the queue of what must be held.
pub(crate) async fn queue(client: &DynBackend, request: &AcquireRequest) -> Verdict {
    match client.acquire(request).await? {
        Acquired::Queued => Ok(()),
        other => Err(Stop::failed(format!("{}: {other:?}", request.name))),
    }
}

/// Takes a lock, waiting for it.
pub(crate) async fn lock(client: &DynBackend, request: &AcquireRequest) -> Result<Grant, Stop> {
    match client.acquire(request).await? {
        Acquired::Granted(grant) => Ok(grant),
        Acquired::Queued => granted(client, request).await,
        other => Err(Stop::failed(format!("{}: {other:?}", request.name))),
    }
}

pub(crate) async fn granted(client: &DynBackend, request: &AcquireRequest) -> Result<Grant, Stop> {
    let granted = timeout(LONG, client.granted(request)).await;
    Ok(granted.map_err(|_| Stop::failed("never granted"))??)
}

pub(crate) async fn free(client: &DynBackend, request: &AcquireRequest) -> Verdict {
    match client.release(&request.as_claim()).await? {
        Released::Released => Ok(()),
        other => Err(Stop::failed(format!("{}: {other:?}", request.name))),
    }
}

/// An error that says that the server can't serve, and with these words why.
#[track_caller]
pub(crate) fn assert_unavailable(error: &Error, words: &str) {
    assert_eq!(error.kind(), ErrorKind::Unavailable, "{error}");
    assert!(error.to_string().contains(words), "{words}: {error}");
}

//! A private server, clients of it, and the steps of the tests.

use dlock_core::{AcquireRequest, DynBackend, Error, Mode, Queue};
use dlock_etcd::{Etcd, EtcdConfig};
pub(crate) use dlock_testlab::client::{
    SOON, ask, exclusive, fails, free, granted, name, queue, renew, says, take, until,
    until_it_works, waits, works,
};
use dlock_testlab::{
    Stop, Verdict,
    client::{self, run_on_one_thread},
    etcd::{EtcdServer, Options},
};

/// Runs a test that needs an etcd server. Without one, the test is skipped, or fails if etcd is
/// required.
pub(crate) fn run(test: impl Future<Output = Verdict>) {
    run_on_one_thread("etcd", test);
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

/// Returns the URL of the server. Sessions are long enough for a busy machine.
pub(crate) fn url(server: &EtcdServer) -> String {
    format!("{}?dlock.session_timeout=15s", server.url())
}

pub(crate) async fn connect(url: &str) -> Result<DynBackend, Error> {
    Etcd::connect(EtcdConfig::from_url(url)?).await
}

/// The error of a connect that has to fail, and soon.
pub(crate) async fn refused(url: &str) -> Result<Error, Stop> {
    client::refused(connect(url)).await
}

pub(crate) fn attempt(lock: &str, mode: Mode) -> AcquireRequest {
    ask(lock, mode).with_queue(Queue::FailIfBusy)
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

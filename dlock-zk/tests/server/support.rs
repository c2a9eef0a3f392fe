//! A private server, its clients, and direct reads of its state.

use std::time::Duration;

use dlock_core::{DynBackend, Error};
pub(crate) use dlock_testlab::client::{
    LEASE, SOON, ask, attempt, exclusive, fails, free, granted, name, queue, renew, says, take,
    until, until_it_works, waits, works, works_fully,
};
use dlock_testlab::{
    Stop, Verdict,
    client::{self, run_on_one_thread},
    zookeeper::{Options, ZooKeeperServer},
};
use dlock_zk::{ZkConfig, ZooKeeper};
use zookeeper_client::Client;

/// Runs a test that needs a ZooKeeper server. Without one, the test is skipped, or fails if
/// ZooKeeper is required.
pub(crate) fn run(test: impl Future<Output = Verdict>) {
    run_on_one_thread("zk", test);
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

/// Returns the URL of the server. Sessions are long enough for a busy machine.
pub(crate) fn url(server: &ZooKeeperServer) -> String {
    format!("zk://{}?dlock.session_timeout=15s", server.address())
}

pub(crate) async fn connect(url: &str) -> Result<DynBackend, Error> {
    ZooKeeper::connect(ZkConfig::from_url(url)?).await
}

/// The error of a connect that has to fail, and soon.
pub(crate) async fn refused(url: &str) -> Result<Error, Stop> {
    client::refused(connect(url)).await
}

/// A session of the driver, without dlock.
pub(crate) async fn raw(server: &ZooKeeperServer) -> Result<Client, Stop> {
    Ok(Client::connect(&server.address()).await?)
}

pub(crate) fn url_of(ensemble: &dlock_testlab::zookeeper::Ensemble) -> String {
    format!("zk://{}?dlock.session_timeout=15s", ensemble.connect_string())
}

/// Servers that do not remove empty containers during a test.
pub(crate) fn lazy() -> Options {
    Options::new().with_container_checks_every(Duration::from_secs(3600))
}

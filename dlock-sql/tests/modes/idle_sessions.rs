//! Advisory locks and the idle timeout of the server.

use std::time::Duration;

use dlock_testlab::{
    Stop,
    postgres::{Options, PostgresServer},
};
use tokio::time::sleep;

use crate::support::{LEASE, Server, locks, run};

/// The holder would notice that its session has ended when it renews, after a third of the lease.
#[test]
fn an_idle_session_keeps_its_locks() {
    run("postgres", async {
        let options = Options::new().with_config("idle_session_timeout = 300ms");
        let server = Server::Postgres(PostgresServer::start(&options).await?);
        let url = server.url("dlock.advisory=true");
        let (holder, other) = (locks(&url, LEASE).await?, locks(&url, LEASE).await?);
        let held = holder.mutex("a")?.lock().await?;
        sleep(Duration::from_secs(3)).await;
        if other.mutex("a")?.try_lock().await?.is_some() {
            return Err(Stop::violation("two hold it"));
        }
        held.check()?;
        held.release().await?;
        Ok(())
    });
}

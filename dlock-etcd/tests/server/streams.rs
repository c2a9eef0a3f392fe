//! A server that allows few streams at a time.

use std::time::Duration;

use dlock_core::{AcquireRequest, DynBackend, Error, Renewal, Renewed};
use dlock_testlab::{
    Flow, Proxy,
    etcd::{EtcdServer, Options},
};
use futures_util::{FutureExt, future::try_join_all};
use tokio::time::{Instant, sleep};

use crate::support::{connect, exclusive, free, run, take, until};

/// The number of locks. Each of them reads its key once its watch is set.
const MANY: usize = 400;

/// The time that each answer takes. The reads of all locks together take longer than a session lasts.
const SLOW: Duration = Duration::from_millis(100);

/// The time that a session lasts without heartbeats.
const SESSION: Duration = Duration::from_secs(15);

#[test]
fn heartbeats_precede_the_reads_of_many_watches() {
    run(async {
        let options = Options::new().with_flag("--max-concurrent-streams=4");
        let server = EtcdServer::start(&options).await?;
        let proxy = Proxy::start(&server.address()).await?;
        let timeout = SESSION.as_secs();
        let url = format!("etcd://{}?dlock.session_timeout={timeout}s", proxy.address());
        let client = connect(&url).await?;
        let mut losses = client.events().ok_or("it reports no losses")?;
        let held: Vec<_> = (0..MANY).map(|at| exclusive(&at.to_string())).collect();
        // In groups, so that none waits long for a stream.
        for group in held.chunks(20) {
            try_join_all(group.iter().map(|held| take(&client, held))).await?;
        }
        proxy.replies(Flow::Delay(SLOW));
        let slow = Instant::now();
        while slow.elapsed() < SESSION + Duration::from_secs(3) {
            sleep(Duration::from_secs(1)).await;
            // A renewal without an answer, or with an unknown one, loses no lock.
            if let Ok(renewed) = renewals(&client, &held).await {
                assert!(!renewed.contains(&Renewed::Lost), "a renewal finds a lock lost");
            }
        }
        proxy.replies(Flow::Pass);
        until("all renewals succeed", async || {
            let renewed = renewals(&client, &held).await;
            Ok(renewed.is_ok_and(|all| all.iter().all(|renewed| *renewed == Renewed::Kept)))
        })
        .await?;
        try_join_all(held.iter().map(|held| free(&client, held))).await?;
        assert!(losses.recv().now_or_never().is_none(), "a lock was lost");
        Ok(())
    });
}

/// Renews all locks with one request.
async fn renewals(client: &DynBackend, held: &[AcquireRequest]) -> Result<Vec<Renewed>, Error> {
    let renewals = held.iter().map(|held| Renewal::new(held.as_claim(), held.mode, held.lease));
    client.renew(&renewals.collect::<Vec<_>>()).await
}

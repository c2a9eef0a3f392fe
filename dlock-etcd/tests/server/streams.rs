//! A server that allows few streams at a time.

use std::time::Duration;

use dlock_core::{Renewal, Renewed};
use dlock_testlab::{
    Flow, Proxy,
    etcd::{EtcdServer, Options},
};
use futures_util::{FutureExt, future::try_join_all};
use tokio::time::sleep;

use crate::support::{connect, exclusive, free, run, take};

/// The number of locks. Each of them reads its key once its watch is set.
const MANY: usize = 400;

/// The time that each answer takes. The reads of all locks together take longer than a session lasts.
const SLOW: Duration = Duration::from_millis(60);

#[test]
fn heartbeats_precede_the_reads_of_many_watches() {
    run(async {
        let options = Options::new().with_flag("--max-concurrent-streams=4");
        let server = EtcdServer::start(&options).await?;
        let proxy = Proxy::start(&server.address()).await?;
        let url = format!("etcd://{}?dlock.session_timeout=9s", proxy.address());
        let client = connect(&url).await?;
        let mut losses = client.events().ok_or("it reports no losses")?;
        let held: Vec<_> = (0..MANY).map(|at| exclusive(&at.to_string())).collect();
        try_join_all(held.iter().map(|held| take(&client, held))).await?;
        proxy.replies(Flow::Delay(SLOW));
        // Longer than a session that is not renewed.
        for _ in 0..12 {
            sleep(Duration::from_secs(1)).await;
            let renewals =
                held.iter().map(|held| Renewal::new(held.as_claim(), held.mode, held.lease));
            let renewed = client.renew(&renewals.collect::<Vec<_>>()).await?;
            let kept = renewed.iter().filter(|renewed| **renewed == Renewed::Kept).count();
            assert_eq!(kept, MANY);
        }
        proxy.replies(Flow::Pass);
        try_join_all(held.iter().map(|held| free(&client, held))).await?;
        assert!(losses.recv().now_or_never().is_none(), "a lock was lost");
        Ok(())
    });
}

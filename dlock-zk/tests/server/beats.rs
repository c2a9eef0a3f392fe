//! What keeping many locks asks of the servers.

use dlock_testkit::Stop;
use futures_util::{FutureExt, future::try_join_all};
use zookeeper_client::{Acls, Client, CreateMode};

use crate::support::{connect, exclusive, raw, renew, run, server, take};

/// The number of the transaction that makes and removes a node.
async fn transaction(raw: &Client) -> Result<i64, Stop> {
    let mode = CreateMode::Ephemeral.with_acls(Acls::anyone_all());
    let (stat, _) = raw.create("/mark", b"", &mode).await?;
    raw.delete("/mark", None).await?;
    Ok(stat.czxid)
}

/// A heartbeat is a transaction, and so is what marks them here.
#[test]
fn renewals_that_are_asked_for_together_share_a_heartbeat() {
    run(async {
        let server = server().await?;
        let raw = raw(&server).await?;
        // No heartbeat of its own falls into the test.
        let url = format!("zk://{}?dlock.session_timeout=60s", server.address());
        let client = connect(&url).await?;
        let claims: Vec<_> = (0..32).map(|n| exclusive(&n.to_string())).collect();
        for claim in &claims {
            take(&client, claim).await?;
        }
        let before = transaction(&raw).await?;
        try_join_all(claims.iter().map(|claim| renew(&client, claim))).await?;
        let together = transaction(&raw).await? - before - 2;
        assert_eq!(together, 1);

        // Whoever asked first may go, or stand still, while the others wait.
        for goes in [true, false] {
            let mut first = Box::pin(renew(&client, &claims[0]));
            let rest = claims[1..].iter().map(|claim| renew(&client, claim));
            let mut others = Box::pin(try_join_all(rest));
            assert!(first.as_mut().now_or_never().is_none());
            assert!(others.as_mut().now_or_never().is_none());
            if goes {
                drop(first);
                others.await?;
            } else {
                others.await?;
                first.await?;
            }
        }
        Ok(())
    })
}

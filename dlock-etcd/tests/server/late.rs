//! Requests that reach the server after their client has moved on.

use std::time::Duration;

use dlock_core::{Acquired, ErrorKind, Queue};
use dlock_testlab::{Proxy, Stop};
use futures_util::future::try_join_all;
use tokio::time::{sleep, timeout};

use crate::support::{SOON, connect, exclusive, free, key_of, run, server, take, until, works};

/// As many that some of them are proposed before the server sees the end of the connection.
const MANY: usize = 200;

#[test]
fn creations_that_arrive_late_create_no_keys() {
    run(async {
        let server = server().await?;
        let proxy = Proxy::start(&server.address()).await?;
        let url = format!("etcd://{}?dlock.session_timeout=15s", proxy.address());
        let client = connect(&url).await?;
        works(&client, "a").await?;
        for queue in [Queue::Enqueue, Queue::FailIfBusy] {
            // Two locks each, or one request would have those of many.
            let two =
                |at| ["a", "b"].map(|lock| exclusive(&format!("{at}{lock}")).with_queue(queue));
            let requests: Vec<_> = (0..MANY).map(two).collect();
            proxy.strand();
            // They are sent on a connection that stands still, and then on the next one.
            let taking = requests.iter().map(async |request| {
                loop {
                    let asked = client.acquire_all(request).ok_or("it takes no two locks")?;
                    match asked.await.as_deref() {
                        Ok([Acquired::Granted(grant), Acquired::Granted(_)]) => return Ok(*grant),
                        Ok(other) => return Err(Stop::failed(format!("{other:?}"))),
                        Err(error) if error.kind() == ErrorKind::Unavailable => {}
                        Err(error) => return Err(Stop::failed(error.to_string())),
                    }
                }
            });
            let taking = try_join_all(taking);
            let grants = timeout(SOON, taking).await??;
            try_join_all(requests.iter().flatten().map(|request| free(&client, request))).await?;
            assert_eq!(client.list("", MANY).await?, []);
            let proposals = async || server.metric("etcd_server_proposals_committed_total").await;
            let before = proposals().await?;
            proxy.abandon();
            proxy.arrive();
            until("late requests arrive", async || {
                Ok(proposals().await.is_ok_and(|now| now > before + 20.0))
            })
            .await?;
            sleep(Duration::from_millis(500)).await;
            assert_eq!(client.list("", MANY).await?, [], "a late creation was applied");
            let next = exclusive("0a").with_queue(queue);
            assert!(take(&client, &next).await?.token > grants[0].token);
            free(&client, &next).await?;
        }
        Ok(())
    });
}

/// The next claim has another key then.
#[test]
fn releases_that_arrive_late_end_no_later_claims() {
    run(async {
        let server = server().await?;
        let proxy = Proxy::start(&server.address()).await?;
        let url = format!("etcd://{}?dlock.session_timeout=15s", proxy.address());
        let client = connect(&url).await?;
        let requests = async || {
            let requests: Vec<_> = (0..8).map(|at| exclusive(&at.to_string())).collect();
            try_join_all(requests.iter().map(|request| take(&client, request))).await?;
            let keys = try_join_all(requests.iter().map(|held| key_of(&server, held))).await?;
            Ok::<_, Stop>((requests, keys))
        };
        let (first, first_keys) = requests().await?;
        proxy.strand();
        let releasing = first.iter().map(async |held| {
            loop {
                match client.release(&held.as_claim()).await {
                    Ok(released) => return Ok(released),
                    Err(error) if error.kind() == ErrorKind::Unavailable => {}
                    Err(error) => return Err(error),
                }
            }
        });
        timeout(SOON, try_join_all(releasing)).await??;
        let (second, keys) = requests().await?;
        assert!(first_keys.iter().zip(&keys).any(|(first, second)| first != second), "{keys:?}");
        proxy.abandon();
        proxy.arrive();
        sleep(Duration::from_millis(500)).await;
        for (held, key) in second.iter().zip(keys) {
            assert_eq!(key_of(&server, held).await?, key, "a late release was applied");
            free(&client, held).await?;
        }
        Ok(())
    });
}

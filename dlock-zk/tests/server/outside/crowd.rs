//! Very many who wait for one name.

use dlock_core::Acquired;
use dlock_testlab::{Proxy, Stop, Verdict, zookeeper::ZooKeeperServer};
use futures_util::future::try_join_all;

use super::lazy;
use crate::support::{connect, exclusive, free, granted, run, take, url};

/// How many come at once.
const CROWD: usize = 1000;

/// At least so many bytes has a claim in a list.
const LISTED: usize = 54;

/// Each wants to know who stands before it.
#[test]
fn a_crowd_of_one_client_does_not_list_the_queue_for_each() {
    run(async {
        let server = ZooKeeperServer::start(&lazy()).await?;
        let proxy = Proxy::start(&server.address()).await?;
        let holder = connect(&url(&server)).await?;
        // Nobody loses patience on a busy machine.
        let slow = format!("zk://{}?dlock.session_timeout=60s", proxy.address());
        let crowd = connect(&slow).await?;
        let held = exclusive("a");
        take(&holder, &held).await?;
        let waiting: Vec<_> = (0..CROWD).map(|_| exclusive("a")).collect();
        let before = proxy.reply_bytes();
        try_join_all(waiting.iter().map(async |request| -> Verdict {
            match crowd.acquire(request).await? {
                Acquired::Queued => Ok(()),
                other => Err(Stop::failed(format!("{other:?}"))),
            }
        }))
        .await?;
        let bytes = proxy.reply_bytes() - before;
        let for_each = u64::try_from(CROWD * CROWD / 2 * LISTED).unwrap_or(u64::MAX);
        assert!(bytes < for_each / 4, "{bytes} bytes were told, and a list for each is {for_each}");
        // They have their places. On a busy machine a client may lose one, and asks for it anew.
        let state = holder.inspect(&held.name).await?;
        assert_eq!(state.holders.len(), 1);
        assert!(state.waiters.len() > CROWD * 9 / 10, "{} wait", state.waiters.len());
        let first = state.waiters[0].claim;
        let first = waiting.iter().find(|request| request.claim == first).ok_or("nobody")?;
        free(&holder, &held).await?;
        granted(&crowd, first).await?;
        Ok(())
    })
}

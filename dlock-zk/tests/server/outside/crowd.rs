//! Very many who wait for one name.

use std::time::Duration;

use dlock_core::{AcquireRequest, Acquired};
use dlock_testlab::{Proxy, Stop, Verdict, zookeeper::ZooKeeperServer};
use futures_util::future::try_join_all;

use super::lazy;
use crate::support::{connect, exclusive, free, granted, run, take};

/// How many come at once.
const CROWD: usize = 1000;

const LEASE: Duration = Duration::from_secs(120);

/// At least so many bytes has a claim in a list.
const LISTED: usize = 54;

/// Each wants to know who stands before it.
#[test]
fn a_crowd_of_one_client_does_not_list_the_queue_for_each() {
    run(async {
        // No session and no lease ends on a busy machine.
        let options = lazy().with_sessions(Duration::from_secs(1), 4 * LEASE);
        let server = ZooKeeperServer::start(&options).await?;
        let proxy = Proxy::start(&server.address()).await?;
        let patient =
            |address| format!("zk://{address}?dlock.session_timeout={}s", 3 * LEASE.as_secs());
        let holder = connect(&patient(server.address())).await?;
        let crowd = connect(&patient(proxy.address())).await?;
        let ask = || AcquireRequest { lease: LEASE, ..exclusive("a") };
        let held = ask();
        take(&holder, &held).await?;
        let waiting: Vec<_> = (0..CROWD).map(|_| ask()).collect();
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
        // All have their places.
        let state = holder.inspect(&held.name).await?;
        assert_eq!((state.holders.len(), state.waiters.len()), (1, CROWD));
        let first = state.waiters[0].claim;
        let first = waiting.iter().find(|request| request.claim == first).ok_or("nobody")?;
        free(&holder, &held).await?;
        granted(&crowd, first).await?;
        Ok(())
    })
}

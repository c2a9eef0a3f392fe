//! Removal of empty directories, and of the nodes of clients that are gone.

use std::time::Duration;

use dlock_core::{Clock, DynBackend, Locks, Mode};
use dlock_testlab::{
    Verdict,
    zookeeper::{Options, ZooKeeperServer},
};
use futures_util::future::try_join_all;
use tokio::time::timeout;

use crate::support::{
    SOON, ask, connect, exclusive, free, granted, queue, run, server, start, take, until, url,
    works, works_fully,
};

async fn until_nothing_is_left(server: &ZooKeeperServer) -> Verdict {
    until("everything has gone", async || Ok(server.nodes_under("/").await?.is_empty())).await
}

#[test]
fn fifty_unused_names_leave_no_nodes() {
    run(async {
        let (server, client) = start().await?;
        let other = connect(&url(&server)).await?;
        let held: Vec<_> = (0..50).map(|n| exclusive(&format!("name {n}"))).collect();
        try_join_all(held.iter().map(|request| take(&client, request))).await?;
        for request in &held {
            free(&client, request).await?;
        }
        works_fully(&client, &other, "all kinds").await?;
        until_nothing_is_left(&server).await?;
        works(&client, "again").await?;
        until_nothing_is_left(&server).await
    })
}

#[test]
fn a_root_with_several_levels_leaves_no_nodes() {
    run(async {
        let server = server().await?;
        let client = connect(&format!("{}&dlock.root=/a/b/c", url(&server))).await?;
        works(&client, "a").await?;
        until_nothing_is_left(&server).await?;
        drop(client);
        // Also when only a look was taken.
        drop(connect(&format!("{}&dlock.root=/d/e", url(&server))).await?);
        until_nothing_is_left(&server).await
    })
}

/// How many rounds there are on a busy machine, too.
const FEW: usize = 6;

/// They go by a round of the server, at any moment between two requests.
#[test]
fn a_directory_that_is_often_removed_blocks_nobody() {
    run(async {
        let options = Options::new()
            .with_container_checks_every(Duration::from_millis(5))
            .with_property("znode.container.maxPerMinute", "1000000");
        let server = ZooKeeperServer::start(&options).await?;
        // On a busy machine a directory may go many times before it is used.
        let url = format!("zk://{}?dlock.session_timeout=60s&dlock.root=/a/b", server.address());
        let clients = [connect(&url).await?, connect(&url).await?];
        let (mut last, began) = (None, Clock::Boot.now());
        for round in 0..150 {
            // The busier the server is, the more often a directory goes before it is used.
            if round >= FEW && Clock::Boot.now().since(began) > SOON {
                println!("{round} rounds only");
                break;
            }
            let client = &clients[round % 2];
            let request = exclusive("a");
            let token = take(client, &request).await?.token;
            assert!(last < Some(token), "{last:?} is before {token:?}");
            last = Some(token);
            free(client, &request).await?;
            let both = [exclusive("b"), ask("c", Mode::Shared)];
            client.acquire_all(&both).ok_or("not all at once")?.await?;
            for request in &both {
                free(client, request).await?;
            }
        }
        until_nothing_is_left(&server).await
    })
}

/// Its session would last for a minute.
async fn patient(server: &ZooKeeperServer) -> Result<DynBackend, dlock_core::Error> {
    connect(&format!("zk://{}?dlock.session_timeout=60s", server.address())).await
}

#[test]
fn the_last_clone_of_a_client_takes_its_session_with_it() {
    run(async {
        let (server, other) = start().await?;
        let client = patient(&server).await?;
        let clone = client.clone();
        let (held, waiting, next) = (exclusive("a"), exclusive("a"), exclusive("a"));
        take(&client, &held).await?;
        queue(&client, &waiting).await?;
        queue(&other, &next).await?;
        drop(client);
        crate::support::waits(&other, &next).await?;
        assert_eq!(clone.inspect(&held.name).await?.holders[0].claim, held.claim);
        drop(clone);
        granted(&other, &next).await?;
        free(&other, &next).await?;
        drop(other);
        until_nothing_is_left(&server).await
    })
}

#[test]
fn a_client_that_is_dropped_while_waiting_leaves_nothing() {
    run(async {
        let (server, other) = start().await?;
        let client = patient(&server).await?;
        let (held, waiting, next) = (exclusive("a"), exclusive("a"), exclusive("a"));
        take(&other, &held).await?;
        queue(&client, &waiting).await?;
        let wait = timeout(Duration::from_millis(300), client.granted(&waiting)).await;
        assert!(wait.is_err(), "{wait:?}");
        queue(&other, &next).await?;
        drop(client);
        until("the waiter has gone", async || {
            Ok(other.inspect(&held.name).await?.waiters.len() == 1)
        })
        .await?;
        free(&other, &held).await?;
        granted(&other, &next).await?;
        free(&other, &next).await
    })
}

#[test]
fn locks_that_are_dropped_with_their_guards_leave_nothing() {
    run(async {
        let (server, other) = start().await?;
        let locks = Locks::new(patient(&server).await?)?;
        let one = locks.mutex("a")?.lock().await?;
        let two = locks.rw("b")?.read().lock().await?;
        std::mem::forget(locks.semaphore("c", 3)?.acquire().await?);
        let (mutex, writer) = (exclusive("a"), exclusive("b"));
        queue(&other, &mutex).await?;
        queue(&other, &writer).await?;
        drop((one, two, locks));
        granted(&other, &mutex).await?;
        granted(&other, &writer).await?;
        free(&other, &mutex).await?;
        free(&other, &writer).await
    })
}

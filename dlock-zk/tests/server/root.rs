//! The chroot, which has to exist, and the root, which dlock creates. The removal of empty
//! directories, and of the nodes of clients that have ended.

use std::time::Duration;

use dlock_core::{Clock, ConfigIssue, DynBackend, ErrorKind, Locks, Mode, StoreEvent};
use dlock_testlab::{
    Verdict,
    zookeeper::{Options, ZooKeeperServer},
};
use dlock_zk::{ZkConfig, ZooKeeper};
use futures_util::future::try_join_all;
use tokio::time::timeout;

use crate::support::{
    SOON, ask, connect, exclusive, fails, free, granted, queue, refused, run, says, server, start,
    take, until, url, works, works_fully,
};

const ACCESS: ErrorKind = ErrorKind::Config(ConfigIssue::Access);

fn within(server: &ZooKeeperServer, chroot: &str) -> String {
    format!("zk://{}{chroot}?dlock.session_timeout=6s", server.address())
}

#[test]
fn a_missing_chroot_is_named() {
    run(async {
        let server = server().await?;
        for chroot in ["/shop", "/shop/locks"] {
            for root in ["", "&dlock.root=/", "&dlock.root=/a/b"] {
                let error = refused(&format!("{}{root}", within(&server, chroot))).await?;
                says(&error, ACCESS, &format!("the chroot {chroot} does not exist"));
                says(&error, ACCESS, "create it");
            }
        }
        assert!(server.nodes_under("/").await?.is_empty());
        Ok(())
    })
}

#[test]
fn a_chroot_is_before_all_paths() {
    run(async {
        let server = server().await?;
        server.create("/shop", "").await?;
        server.create("/shop/one", "").await?;
        let url = within(&server, "/shop/one");
        let (client, other) = (connect(&url).await?, connect(&url).await?);
        works_fully(&client, &other, "a").await?;
        let config = ZkConfig::new([server.address().as_str()])?
            .with_chroot("/shop/one")
            .with_session_timeout(Duration::from_secs(6));
        let built = ZooKeeper::connect(config).await?;
        assert_eq!(built.store(), client.store());
        works_fully(&client, &built, "a").await?;
        // The same name below another chroot is another lock.
        let elsewhere = connect(&within(&server, "")).await?;
        let (here, there) = (exclusive("a"), exclusive("a"));
        take(&client, &here).await?;
        take(&elsewhere, &there).await?;
        let nodes = server.nodes_under("/shop/one/dlock/a").await?;
        assert_eq!(nodes.len(), 1, "{nodes:?}");
        free(&client, &here).await?;
        free(&elsewhere, &there).await
    })
}

#[test]
fn a_missing_root_is_made_with_all_its_levels() {
    run(async {
        let server = server().await?;
        for root in ["/one/two/three/four", "/one/two/five", "/six"] {
            let url = format!("{}&dlock.root={root}", within(&server, ""));
            let (client, other) = (connect(&url).await?, connect(&url).await?);
            works_fully(&client, &other, "a").await?;
            // Also after the root was deleted while a client used it.
            server.delete_recursively(&root[..4]).await?;
            works_fully(&client, &other, "a").await?;
        }
        Ok(())
    })
}

#[test]
fn a_missing_chroot_is_reported_and_used_again_when_it_is_back() {
    run(async {
        let server = server().await?;
        for root in ["", "&dlock.root=/"] {
            server.create("/shop", "").await?;
            let client = connect(&format!("{}{root}", within(&server, "/shop"))).await?;
            works(&client, "a").await?;
            server.delete_recursively("/shop").await?;
            for lock in ["a", "b"] {
                says(&fails(&client, &exclusive(lock)).await?, ACCESS, "chroot");
            }
            let both = [exclusive("a"), exclusive("b")];
            let all = client.acquire_all(&both).ok_or("not all at once")?;
            let error = tokio::time::timeout(crate::support::SOON, all).await?;
            says(&error.err().ok_or("granted")?, ACCESS, "chroot");
            for request in &both {
                client.release(&request.as_claim()).await?;
            }
            let state = client.inspect(&exclusive("a").name).await?;
            assert!(state.is_free(), "{state:?}");
            server.create("/shop", "").await?;
            works(&client, "a").await?;
            drop(client);
            server.delete_recursively("/shop").await?;
        }
        Ok(())
    })
}

/// The holder learns that its node was deleted with it.
#[test]
fn a_lock_whose_chroot_is_deleted_is_lost() {
    run(async {
        let server = server().await?;
        server.create("/shop", "").await?;
        let client = connect(&within(&server, "/shop")).await?;
        let mut losses = client.events().ok_or("it tells of no losses")?;
        let held = exclusive("a");
        take(&client, &held).await?;
        // A node is watched some time after it is held.
        tokio::time::sleep(Duration::from_millis(600)).await;
        server.delete_recursively("/shop").await?;
        let lost = tokio::time::timeout(crate::support::SOON, losses.recv()).await??;
        assert_eq!(lost, StoreEvent::Ended(held.claim));
        Ok(())
    })
}

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
        // Also after an inspection only.
        drop(connect(&format!("{}&dlock.root=/d/e", url(&server))).await?);
        until_nothing_is_left(&server).await
    })
}

/// The number of rounds, which is small enough for a busy machine.
const FEW: usize = 6;

/// The server removes empty directories periodically, at any moment between two requests.
#[test]
fn a_directory_that_is_often_removed_blocks_nobody() {
    run(async {
        let options = Options::new()
            .with_container_checks_every(Duration::from_millis(5))
            .with_property("znode.container.maxPerMinute", "1000000");
        let server = ZooKeeperServer::start(&options).await?;
        // On a busy machine, a directory may be removed many times before it is used.
        let url = format!("zk://{}?dlock.session_timeout=60s&dlock.root=/a/b", server.address());
        let clients = [connect(&url).await?, connect(&url).await?];
        let (mut last, began) = (None, Clock::Boot.now());
        for round in 0..150 {
            // On a busier server, a directory is removed more often before it is used.
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

/// Without a shutdown, the session would last for a minute.
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

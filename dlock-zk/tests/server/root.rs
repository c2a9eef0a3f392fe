//! The chroot, which has to exist, and the root, which dlock creates.

use std::time::Duration;

use dlock_core::{ConfigIssue, ErrorKind, StoreEvent};
use dlock_testlab::zookeeper::ZooKeeperServer;
use dlock_zk::{ZkConfig, ZooKeeper};

use crate::support::{
    connect, exclusive, fails, free, refused, run, says, server, take, works, works_fully,
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
        // The same lock of another chroot is another lock.
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
            // Also after it has gone under a client.
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

/// Its holder learns that its node has gone with it.
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

//! Deletions that the servers refuse, for a while or for good.

use std::time::Duration;

use dlock_core::{Locks, Mode};
use dlock_testlab::{
    Door, Flow, Proxy, Verdict,
    rights::{LOCKS, claims_end_after_a_refusal, until_free},
};
use zookeeper_client::{Acl, AuthId, Client, Permission};

use crate::support::{
    LEASE, ask, connect, exclusive, free, raw, run, server, start, take, until, url, works,
};

/// Sets the rights of all clients in the directory of a lock.
async fn permit(raw: &Client, lock: &str, rights: Permission) -> Verdict {
    let acl = [Acl::new(rights | Permission::ADMIN, AuthId::anyone())];
    raw.set_acl(&format!("/dlock/{lock}"), &acl, None).await?;
    Ok(())
}

/// The rights without that of deletion.
const KEPT: Permission = Permission::READ;

fn no_delete() -> Permission {
    KEPT | Permission::CREATE | Permission::WRITE
}

#[test]
fn a_refused_release_is_repeated_until_the_node_is_gone() {
    run(async {
        let server = server().await?;
        let (client, other) = (connect(&url(&server)).await?, connect(&url(&server)).await?);
        let raw = raw(&server).await?;
        // Kept alive by a claim of its own, so that the session can't be replaced.
        let held = exclusive("held");
        take(&client, &held).await?;
        claims_end_after_a_refusal(&client, &other, LEASE, async |on| {
            for lock in LOCKS {
                permit(&raw, lock, if on { Permission::ALL } else { no_delete() }).await?;
            }
            Ok(())
        })
        .await?;
        crate::support::renew(&client, &held).await?;
        free(&client, &held).await
    })
}

#[test]
fn an_expired_lease_whose_end_is_refused_ends_later() {
    run(async {
        let (server, client) = start().await?;
        let other = connect(&url(&server)).await?;
        let raw = raw(&server).await?;
        let (held, brief) = (exclusive("held"), exclusive("a").with_lease(Duration::from_secs(1)));
        take(&client, &held).await?;
        take(&client, &brief).await?;
        permit(&raw, "a", no_delete()).await?;
        until("the lease has ended", async || {
            Ok(client.inspect(&brief.name).await?.holders[0].remaining.is_zero())
        })
        .await?;
        tokio::time::sleep(Duration::from_secs(1)).await;
        permit(&raw, "a", Permission::ALL).await?;
        until_free(&other, "a", LEASE).await?;
        free(&client, &held).await
    })
}

#[test]
fn a_session_with_nothing_else_is_replaced() {
    run(async {
        let (server, client) = start().await?;
        let raw = raw(&server).await?;
        let brief = exclusive("a").with_lease(Duration::from_secs(2));
        take(&client, &brief).await?;
        permit(&raw, "a", no_delete()).await?;
        assert!(client.release(&brief.as_claim()).await.is_err());
        until("the node is gone", async || Ok(server.nodes_under("/dlock/a").await?.is_empty()))
            .await?;
        permit(&raw, "a", Permission::ALL).await?;
        works(&client, "a").await
    })
}

/// The answer to the creation is lost, and then the directory can't be read.
#[test]
fn a_node_that_can_not_be_searched_for_is_deleted_later() {
    run(async {
        let (server, other) = start().await?;
        let proxy = Proxy::start(&server.address()).await?;
        let to_proxy = format!("zk://{}?dlock.session_timeout=15s", proxy.address());
        let client = Locks::new(connect(&to_proxy).await?)?;
        let raw = raw(&server).await?;
        let held = client.mutex("held")?.lock().await?;
        let first = ask("a", Mode::Exclusive);
        take(&other, &first).await?;
        free(&other, &first).await?;
        proxy.replies(Flow::Drop);
        let mutex = client.mutex("a")?;
        let mut taking = std::pin::pin!(mutex.lock());
        until("the node exists", async || {
            let polled = futures_util::poll!(taking.as_mut());
            assert!(polled.is_pending());
            Ok(!server.nodes_under("/dlock/a").await?.is_empty())
        })
        .await?;
        permit(&raw, "a", Permission::WRITE | Permission::CREATE | Permission::DELETE).await?;
        proxy.door(Door::Closed).await?;
        proxy.cut();
        proxy.pass().await?;
        assert!(taking.await.is_err());
        permit(&raw, "a", Permission::ALL).await?;
        until_free(&other, "a", LEASE).await?;
        held.check()?;
        held.release().await?;
        Ok(())
    })
}

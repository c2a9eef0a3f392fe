//! Nodes of other programs in a lock's directory, or instead of it.

use std::time::Duration;

use dlock_core::{DynBackend, Error, ErrorKind, Mode};
use dlock_testlab::{Verdict, zookeeper::ZooKeeperServer};
use zookeeper_client::{Acls, CreateMode};

use crate::support::{
    ask, attempt, connect, exclusive, fails, free, granted, lazy, queue, raw, run, says, server,
    start, take, until, url, works, works_fully,
};

/// Nodes in the directory that are not claims: nodes of other programs, and some with names similar
/// to those of claims.
const FOREIGN: [&str; 13] = [
    "foo",
    "lock-0000000001",
    "-lock-0000000002",
    "_c_bad-lock-x",
    "_c_",
    "_c_cfa6e75c-1ef2-4d4e-8db4-4c1f0a4d3e11",
    "_c_cfa6e75c-1ef2-4d4e-8db4-4c1f0a4d3e11-lock-",
    "_c_cfa6e75c-1ef2-4d4e-8db4-4c1f0a4d3e11-__READ__0000000003",
    "_c_cfa6e75c-1ef2-4d4e-8db4-4c1f0a4d3e11-__WRIT__0000000004",
    "_c_cfa6e75c-1ef2-4d4e-8db4-4c1f0a4d3e11-permits-9-of-3-lock-0000000005",
    "_c_ünïcödé-ünïcödé-ünïcödé-ünïcödé-lock-0000000006",
    "ünïcödé-lock-0000000007",
    "_c_cfa6e75c-1ef2-4d4e-8db4-4c1f0a4d3e1é-lock-0000000008",
];

async fn put(server: &ZooKeeperServer, directory: &str) -> Verdict {
    for child in FOREIGN {
        server.create(&format!("{directory}/{child}"), "theirs").await?;
    }
    Ok(())
}

async fn are_left_alone(server: &ZooKeeperServer, directory: &str) -> Verdict {
    let mut expected = FOREIGN.map(|child| format!("{directory}/{child}"));
    expected.sort();
    assert_eq!(server.nodes_under(directory).await?, expected);
    for path in expected {
        assert_eq!(server.data(&path).await?.as_deref(), Some(&b"theirs"[..]), "{path}");
    }
    Ok(())
}

#[test]
fn foreign_nodes_block_nobody_and_are_left_alone() {
    run(async {
        let server = server().await?;
        for directory in ["/dlock", "/dlock/a", "/dlock/a2"] {
            server.create(directory, "").await?;
        }
        put(&server, "/dlock/a").await?;
        put(&server, "/dlock/a2").await?;
        let (client, other) = (connect(&url(&server)).await?, connect(&url(&server)).await?);
        works_fully(&client, &other, "a").await?;
        for directory in ["/dlock/a", "/dlock/a2"] {
            are_left_alone(&server, directory).await?;
        }
        let state = client.inspect(&exclusive("a").name).await?;
        assert!(state.holders.is_empty() && state.waiters.is_empty(), "{state:?}");
        Ok(())
    })
}

#[test]
fn foreign_nodes_created_during_a_wait_change_nothing() {
    run(async {
        let (server, client) = start().await?;
        let other = connect(&url(&server)).await?;
        for mode in [Mode::Exclusive, Mode::Shared, Mode::permits(2, 2)?] {
            let first = if mode == Mode::Shared { Mode::Exclusive } else { mode };
            let (held, waiting) = (ask("a", first), ask("a", mode));
            take(&client, &held).await?;
            queue(&other, &waiting).await?;
            put(&server, "/dlock/a").await?;
            let release = async {
                tokio::time::sleep(Duration::from_millis(100)).await;
                free(&client, &held).await
            };
            let (grant, released) = tokio::join!(granted(&other, &waiting), release);
            released?;
            grant?;
            free(&other, &waiting).await?;
            are_left_alone(&server, "/dlock/a").await?;
            server.delete_recursively("/dlock/a").await?;
        }
        Ok(())
    })
}

/// The name of a node of a mutex, before all others of its directory.
const CLAIM: &str = "_c_cfa6e75c-1ef2-4d4e-8db4-4c1f0a4d3e11-lock-0000000000";

/// Such a node was made by hand, or restored from a backup.
#[test]
fn a_claim_without_a_session_shows_when_it_ends() {
    run(async {
        let server = ZooKeeperServer::start(&lazy()).await?;
        for directory in ["/dlock", "/dlock/a"] {
            server.create(directory, "").await?;
        }
        let (client, raw) = (connect(&url(&server)).await?, raw(&server).await?);
        let (lease, ttl) = (Duration::from_millis(7500), Duration::from_secs(600));
        let made = |mode: CreateMode| mode.with_acls(Acls::anyone_all());
        for (node, remaining) in [
            (made(CreateMode::Persistent), Duration::MAX),
            (made(CreateMode::Container), Duration::MAX),
            // The server does not show its TTL.
            (made(CreateMode::Persistent).with_ttl(ttl), Duration::MAX),
            (made(CreateMode::Ephemeral), lease),
        ] {
            let path = format!("/dlock/a/{CLAIM}");
            raw.create(&path, b"lease=7500ms", &node).await?;
            let next = exclusive("a");
            queue(&client, &next).await?;
            let state = client.inspect(&next.name).await?;
            assert_eq!(state.holders[0].remaining, remaining, "{node:?}");
            assert!(state.waiters[0].remaining <= next.lease, "{state:?}");
            raw.delete(&path, None).await?;
            granted(&client, &next).await?;
            free(&client, &next).await?;
        }
        Ok(())
    })
}

/// Ephemeral nodes can't have children.
#[test]
fn an_ephemeral_node_instead_of_a_directory_is_reported() {
    run(async {
        let (server, client) = start().await?;
        works(&client, "b").await?;
        let theirs = raw(&server).await?;
        let ephemeral = CreateMode::Ephemeral.with_acls(Acls::anyone_all());
        until("the root is there", async || {
            let _ = server.create("/dlock", "").await;
            Ok(theirs.create("/dlock/a", b"theirs", &ephemeral).await.is_ok())
        })
        .await?;
        for request in [exclusive("a"), attempt("a"), ask("a", Mode::Shared)] {
            is_reported(&fails(&client, &request).await?);
        }
        is_reported(&all_fail(&client).await);
        assert_eq!(server.data("/dlock/a").await?.as_deref(), Some(&b"theirs"[..]));
        works(&client, "b").await?;
        theirs.delete("/dlock/a", None).await?;
        works(&client, "a").await
    })
}

#[test]
fn an_ephemeral_node_instead_of_the_root_is_reported() {
    run(async {
        let (server, _) = start().await?;
        let theirs = raw(&server).await?;
        let ephemeral = CreateMode::Ephemeral.with_acls(Acls::anyone_all());
        theirs.create("/theirs", b"", &ephemeral).await?;
        for root in ["/theirs", "/theirs/locks"] {
            is_reported(
                &crate::support::refused(&format!("{}&dlock.root={root}", url(&server))).await?,
            );
        }
        Ok(())
    })
}

#[track_caller]
fn is_reported(error: &Error) {
    says(error, ErrorKind::Protocol, "ephemeral");
}

async fn all_fail(client: &DynBackend) -> Error {
    let requests = [exclusive("a"), exclusive("b")];
    let answer = client.acquire_all(&requests).expect("it takes several at once").await;
    for request in &requests {
        let _ = client.release(&request.as_claim()).await;
    }
    answer.expect_err("one of them can't be taken")
}

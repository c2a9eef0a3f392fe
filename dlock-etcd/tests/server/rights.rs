//! Rights that an administrator removes while a client uses them.

use std::time::Duration;

use dlock_core::{Acquired, Certainty, ConfigIssue, DynBackend, ErrorKind, Level, Mode};
use dlock_testlab::{
    Door, Flow, Proxy, Stop, Verdict,
    etcd::{EtcdServer, Options},
    rights::{UNKNOWN, claims_end_after_a_refusal, claims_of_unknown_outcome_end},
};
use futures_util::{FutureExt as _, future::join_all};
use tokio::time::{sleep, timeout};

use crate::support::{
    SOON, attempt, connect, exclusive, fails, free, keys, queue, renew, run, says, take, until,
};

const ACCESS: ErrorKind = ErrorKind::Config(ConfigIssue::Access);

/// A server with the user `app`, who may use the locks `a` and `b`.
async fn start() -> Result<(EtcdServer, String), Stop> {
    let server = EtcdServer::start(&Options::new().with_root("secret")).await?;
    server.etcdctl(&["role", "add", "app"]).await?;
    for prefix in ["%", "a/", "b/"] {
        grant(&server, prefix).await?;
    }
    add(&server).await?;
    let url = format!("etcd://app:secret@{}", server.address());
    Ok((server, url))
}

/// Adds the user.
async fn add(server: &EtcdServer) -> Verdict {
    server.etcdctl(&["user", "add", "app:secret"]).await?;
    server.etcdctl(&["user", "grant-role", "app", "app"]).await.map(drop)
}

async fn grant(server: &EtcdServer, prefix: &str) -> Verdict {
    let prefix = format!("/dlock/{prefix}");
    let args = ["role", "grant-permission", "app", "readwrite", "--prefix=true", &prefix];
    server.etcdctl(&args).await.map(drop)
}

async fn revoke(server: &EtcdServer, prefix: &str) -> Verdict {
    let prefix = format!("/dlock/{prefix}");
    server.etcdctl(&["role", "revoke-permission", "app", &prefix, "--prefix=true"]).await.map(drop)
}

async fn is_free(client: &DynBackend, lock: &str) -> Verdict {
    until("the lock is free", async || {
        let request = attempt(lock, Mode::Exclusive);
        match client.acquire(&request).await {
            Ok(Acquired::Granted(_)) => free(client, &request).await.map(|()| true),
            _ => Ok(false),
        }
    })
    .await
}

#[test]
fn a_release_that_was_refused_is_repeated() {
    run(async {
        let (server, url) = start().await?;
        let url = format!("{url}?dlock.session_timeout=60s");
        let (client, other) = (connect(&url).await?, connect(&url).await?);
        let (held, queued) = (exclusive("b"), exclusive("b"));
        take(&client, &held).await?;
        queue(&client, &queued).await?;
        revoke(&server, "b/").await?;
        for request in [&held, &queued] {
            let error = client.release(&request.as_claim()).await.err().ok_or("it is released")?;
            says(&error, ACCESS, "grant-permission");
        }
        grant(&server, "b/").await?;
        is_free(&other, "b").await?;
        is_free(&client, "b").await
    });
}

#[test]
fn claims_of_every_kind_end_after_a_refusal() {
    run(async {
        let (server, url) = start().await?;
        let root = format!("etcd://root:secret@{}?dlock.session_timeout=60s", server.address());
        let client = connect(&format!("{url}?dlock.session_timeout=60s")).await?;
        let other = connect(&root).await?;
        grant(&server, "").await?;
        // Another claim keeps the session alive, so no lease ends.
        let held = exclusive("held");
        take(&client, &held).await?;
        claims_end_after_a_refusal(&client, &other, held.lease, async |on| match on {
            true => grant(&server, "").await,
            false => revoke(&server, "").await,
        })
        .await?;
        renew(&client, &held).await?;
        free(&client, &held).await
    });
}

/// The key ends with its lease, after all other keys have moved to another lease.
#[test]
fn a_key_that_can_not_be_deleted_ends_while_other_locks_stay() {
    run(async {
        let (server, url) = start().await?;
        let client = connect(&format!("{url}?dlock.session_timeout=6s")).await?;
        let (stays, held) = (exclusive("a"), exclusive("b"));
        let stays = stays.with_lease(Duration::from_secs(4));
        take(&client, &stays).await?;
        take(&client, &held).await?;
        revoke(&server, "b/").await?;
        let error = client.release(&held.as_claim()).await.err().ok_or("it is released")?;
        says(&error, ACCESS, "grant-permission");
        until("the key ends", async || {
            renew(&client, &stays).await?;
            Ok(keys(&server, "b").await?.is_empty())
        })
        .await?;
        renew(&client, &stays).await?;
        free(&client, &stays).await
    });
}

/// Else the lock would stay until the end of the earlier lease, though the user has the right again.
#[test]
fn the_end_of_a_session_revokes_its_earlier_leases() {
    run(async {
        let (server, url) = start().await?;
        let client = connect(&format!("{url}?dlock.session_timeout=90s")).await?;
        let held = exclusive("b");
        take(&client, &held).await?;
        revoke(&server, "b/").await?;
        let error = client.release(&held.as_claim()).await.err().ok_or("it is released")?;
        says(&error, ACCESS, "grant-permission");
        until("the key is left behind", async || Ok(server.leases().await?.len() == 2)).await?;
        grant(&server, "b/").await?;
        drop(client);
        until("the leases end", async || Ok(server.leases().await?.is_empty())).await
    });
}

/// The server refuses the releases of one holder and of many waiters.
#[test]
fn many_keys_that_can_not_be_deleted_cost_one_lease() {
    run(async {
        let (server, url) = start().await?;
        let client = connect(&format!("{url}?dlock.session_timeout=6s")).await?;
        let all: Vec<_> = (0..20).map(|_| exclusive("b")).collect();
        for request in &all {
            client.acquire(request).await?;
        }
        revoke(&server, "b/").await?;
        let releases = all.iter().map(async |request| client.release(&request.as_claim()).await);
        assert!(join_all(releases).await.iter().all(Result::is_err));
        let mut most = 0;
        until("the keys end", async || {
            most = most.max(server.leases().await?.len());
            Ok(keys(&server, "b").await?.is_empty())
        })
        .await?;
        // The lease of the session, and its former one.
        assert!(most <= 2, "{most} leases");
        grant(&server, "b/").await?;
        is_free(&client, "b").await
    });
}

/// A waiter had the right when it joined the queue.
#[test]
fn a_waiter_outlasts_a_right_and_a_login_that_are_missing() {
    run(async {
        let (server, url) = start().await?;
        let url = format!("{url}?dlock.session_timeout=60s");
        let (client, other) = (connect(&url).await?, connect(&url).await?);
        let (held, next) = (exclusive("a"), exclusive("a"));
        take(&client, &held).await?;
        queue(&other, &next).await?;
        revoke(&server, "a/").await?;
        let error = other.granted(&next).await.err().ok_or("it is granted")?;
        says(&error, ErrorKind::Unavailable, "grant-permission");
        let error = other.acquire(&next).await.err().ok_or("it is granted")?;
        says(&error, ErrorKind::Unavailable, "grant-permission");
        grant(&server, "a/").await?;

        server.etcdctl(&["user", "delete", "app"]).await?;
        let error = other.granted(&next).await.err().ok_or("it is granted")?;
        says(&error, ErrorKind::Unavailable, "password");
        // A new claim outlives the former lease, too.
        let new = exclusive("b");
        let (asked, added) = tokio::join!(client.acquire(&new), add(&server));
        added?;
        if let Err(error) = asked {
            // The user existed before its role.
            says(&error, ACCESS, "grant-permission");
        }
        until("the holder can release", async || {
            Ok(client.release(&held.as_claim()).await.is_ok())
        })
        .await?;
        client.release(&new.as_claim()).await?;
        until("it is granted", async || Ok(other.granted(&next).await.is_ok())).await?;
        free(&other, &next).await
    });
}

/// The answer to the creation is lost, and then the key can't be read.
#[test]
fn a_key_that_can_not_be_searched_for_is_deleted_later() {
    run(async {
        let (server, url) = start().await?;
        let other = connect(&format!("{}?dlock.session_timeout=60s", server.url())).await?;
        let proxy = Proxy::start(&server.address()).await?;
        let to_proxy = url.replace(&server.address(), &proxy.address());
        let client = connect(&format!("{to_proxy}?dlock.session_timeout=60s")).await?;
        // Another claim keeps the session alive.
        let held = exclusive("a");
        take(&client, &held).await?;
        let set_right = async |rights: &str| {
            let prefix = format!("/dlock/{UNKNOWN}/");
            let args = ["role", "grant-permission", "app", rights, "--prefix=true", &prefix];
            server.etcdctl(&args).await.map(drop)
        };
        set_right("readwrite").await?;
        // Without the right to write, etcd would refuse all puts with the lease of the key.
        claims_of_unknown_outcome_end(&client, &other, &proxy, async |on| {
            set_right(if on { "readwrite" } else { "write" }).await
        })
        .await?;
        renew(&client, &held).await?;
        free(&client, &held).await
    });
}

/// etcd refuses all puts with the lease of a key that this user may not write. The creation of
/// another key has an unknown outcome by then, and its epoch has to end. `revoked` are the prefixes
/// whose rights are missing.
async fn a_creation_ends_without_the_right_to_a_key(revoked: &[&str]) -> Verdict {
    let (server, url) = start().await?;
    let proxy = Proxy::start(&server.address()).await?;
    let to_proxy = url.replace(&server.address(), &proxy.address());
    let session = Duration::from_secs(6);
    let client = connect(&format!("{to_proxy}?dlock.session_timeout=6s")).await?;
    let other = connect(&format!("{}?dlock.session_timeout=60s", server.url())).await?;
    let (stays, held, new) = (exclusive("a"), exclusive("b"), exclusive(UNKNOWN));
    for prefix in ["%session/", "%vote", &format!("{UNKNOWN}/")] {
        grant(&server, prefix).await?;
    }
    revoke(&server, "%").await?;
    let stays = stays.with_lease(session * 2 / 3);
    take(&client, &stays).await?;
    take(&client, &held).await?;
    proxy.replies(Flow::Drop);
    let mut taking = std::pin::pin!(client.acquire(&new));
    until("the claim is made", async || match taking.as_mut().now_or_never() {
        None => Ok(!other.inspect(&new.name).await?.is_free()),
        Some(taken) => Err(Stop::failed(format!("{taken:?} without an answer"))),
    })
    .await?;
    for prefix in revoked {
        revoke(&server, prefix).await?;
    }
    // A new connection would miss the beginning of the server's answer.
    proxy.door(Door::Closed).await?;
    proxy.cut();
    sleep(Duration::from_millis(5)).await;
    proxy.pass().await?;
    let error = client.release(&held.as_claim()).await.err().ok_or("it is released")?;
    says(&error, ACCESS, "grant-permission");
    // Longer than the session lasts without heartbeats.
    for _ in 0..session.as_millis() / 100 {
        renew(&client, &stays).await?;
        sleep(Duration::from_millis(150)).await;
    }
    // Without the right to the marker, the caller has got no answer.
    let _ = timeout(SOON, taking).await?;
    if revoked.contains(&"%session/") {
        grant(&server, "%session/").await?;
    }
    until("it is granted", async || {
        Ok(matches!(client.acquire(&new).await, Ok(Acquired::Granted(_))))
    })
    .await?;
    renew(&client, &stays).await?;
    free(&client, &new).await?;
    free(&client, &stays).await
}

#[test]
fn an_epoch_ends_without_the_right_to_a_key_of_the_session() {
    run(a_creation_ends_without_the_right_to_a_key(&["b/"]));
}

#[test]
fn a_session_lasts_while_its_epoch_can_not_end() {
    run(a_creation_ends_without_the_right_to_a_key(&["b/", "%session/"]));
}

/// The key is created, and then the right is missing that proves the session.
#[test]
fn a_claim_that_can_not_be_proven_is_no_refusal() {
    run(async {
        let (server, url) = start().await?;
        let session = Duration::from_secs(12);
        let url = format!("{url}?dlock.session_timeout={}s", session.as_secs());
        let client = connect(&url).await?;
        grant(&server, "%session/").await?;
        revoke(&server, "%").await?;
        // By then, the last heartbeat does not cover a whole lease.
        sleep(session / 3).await;
        let request = exclusive("a");
        let error = fails(&client, &request).await?;
        says(&error, ErrorKind::Unavailable, "grant-permission");
        assert_eq!(error.certainty(), Certainty::Unknown, "{error:?}");
        free(&client, &request).await
    });
}

#[test]
fn the_doctor_reports_a_root_that_became_read_only() {
    run(async {
        let (server, url) = start().await?;
        let client = connect(&format!("{url}?dlock.session_timeout=60s")).await?;
        for prefix in ["", "%"] {
            let prefix = format!("/dlock/{prefix}");
            let args = ["role", "grant-permission", "app", "read", "--prefix=true", &prefix];
            server.etcdctl(&args).await?;
        }
        let findings = timeout(SOON, client.examine()).await??;
        let rights = findings.iter().find(|finding| finding.about == "rights");
        let level = rights.ok_or("nothing about the rights")?.level;
        assert_eq!(level, Level::Wrong, "{findings:?}");
        Ok(())
    });
}

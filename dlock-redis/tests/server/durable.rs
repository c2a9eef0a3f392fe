//! Grants that replicas must confirm, and the settings behind the guarantee of exclusion.

use std::{
    sync::atomic::{AtomicBool, AtomicUsize, Ordering},
    time::Duration,
};

use dlock_core::{
    Acquired, ConfigIssue, DynBackend, ErrorKind, Exclusion, Level, LockOptions, Locks, Mode,
    Released, Renewal, Renewed,
};
use dlock_testlab::{
    Flow, Proxy, Stop, Verdict,
    redis::{Options, Persistence, RedisMasters, RedisServer},
};
use futures_util::{StreamExt, future::try_join_all, stream::FuturesUnordered};
use tokio::{
    net::TcpListener,
    time::{sleep, timeout},
};

use crate::support::{
    HELLO, SOON, answer, ask, attempt, connect, exclusive, free, granted, queue, refused, run,
    says, start, take, until, works_fully,
};

/// For requests that fail: a grant waits for replicas for three quarters of the response timeout.
/// The rest is for a busy machine.
const BRIEF: &str = "&dlock.response_timeout=6s";

/// Creates a user with all rights but this one. Returns the URL.
async fn set_joe_without(server: &RedisServer, command: &str) -> Result<String, Stop> {
    let user = ["ACL", "SETUSER", "joe", "on", ">p", "~*", "&*", "+@all", command];
    server.command(&user).await?.ok()?;
    Ok(format!("redis://joe:p@{}", server.address()))
}

async fn replica_of(master: &RedisServer) -> Result<RedisServer, Stop> {
    replica_at(master.port()).await
}

/// Starts a replica that reaches its master through a proxy.
async fn replica_behind_proxy(master: &RedisServer) -> Result<(Proxy, RedisServer), Stop> {
    let proxy = Proxy::start(&master.address()).await?;
    let replica = replica_at(proxy.port()).await?;
    until_replicas(master, 1).await?;
    Ok((proxy, replica))
}

/// Starts a replica of the master at this port.
async fn replica_at(master: u16) -> Result<RedisServer, Stop> {
    let line = format!("replicaof 127.0.0.1 {master}");
    RedisServer::start(&Options::new().with_config(&line)).await
}

async fn until_replicas(master: &RedisServer, count: usize) -> Verdict {
    until("the replicas are in sync", async || {
        Ok(master.info("replication").await?.matches("state=online").count() == count)
    })
    .await
}

fn durable(server: &RedisServer, durability: &str) -> String {
    format!("{}?dlock.durability={durability}", server.url())
}

fn brief(server: &RedisServer, durability: &str) -> String {
    durable(server, durability) + BRIEF
}

/// Locks that wait for one attempt only.
async fn locks(url: &str) -> Result<Locks, Stop> {
    let options = LockOptions::new().with_wait(Duration::ZERO);
    Ok(Locks::new(connect(url).await?)?.with_options(options)?)
}

/// A try fails in time, names the reason, and leaves no holder.
async fn is_refused(locks: &Locks, server: &RedisServer) -> Verdict {
    let answer = timeout(SOON, locks.mutex("a")?.lock()).await?;
    let error = answer.err().ok_or("granted, though the replicas know nothing")?;
    says(&error, ErrorKind::Unavailable, "replicas have the lease");
    assert!(error.to_string().contains("dlock.durability"), "{error}");
    until_free(server).await
}

async fn until_free(server: &RedisServer) -> Verdict {
    until("nobody holds it", async || {
        Ok(server.command(&["EXISTS", "dlock:{0}:a"]).await?.int()? == 0)
    })
    .await
}

#[test]
fn without_replicas_nothing_is_granted_or_left_behind() {
    run(async {
        let server = RedisServer::start(&Options::new()).await?;
        let locks = locks(&brief(&server, "1")).await?;
        is_refused(&locks, &server).await?;
        let readers = timeout(SOON, locks.rw("a")?.read().lock()).await?;
        says(&readers.err().ok_or("granted")?, ErrorKind::Unavailable, "replicas have the lease");
        until("nobody holds it", async || Ok(locks.inspect("a").await?.is_free())).await?;
        // Clients without this setting are not affected.
        works_fully(&connect(&server.url()).await?, &connect(&server.url()).await?, "a").await
    })
}

#[test]
fn a_stopped_replica_blocks_grants_until_it_is_back() {
    run(async {
        let (server, other) = start().await?;
        let replica = replica_of(&server).await?;
        until_replicas(&server, 1).await?;
        let client = connect(&durable(&server, "1")).await?;
        works_fully(&client, &other, "a").await?;
        works_fully(&other, &client, "a").await?;

        replica.pause()?;
        let locks = locks(&brief(&server, "1")).await?;
        is_refused(&locks, &server).await?;
        replica.resume()?;
        until_replicas(&server, 1).await?;
        until("it is granted again", async || match locks.mutex("a")?.lock().await {
            Ok(guard) => Ok(guard.release().await.is_ok()),
            Err(_) => Ok(false),
        })
        .await
    })
}

/// Each acquire waits for a slow replica.
#[test]
fn a_client_with_many_acquires_renews_its_locks() {
    const LEASE: Duration = Duration::from_secs(12);
    run(async {
        let (server, _) = start().await?;
        let (proxy, _replica) = replica_behind_proxy(&server).await?;
        let options = LockOptions::new().with_lease(LEASE);
        let locks = Locks::new(connect(&durable(&server, "1")).await?)?.with_options(options)?;
        let guard = locks.mutex("held")?.lock().await?;
        proxy.requests(Flow::Delay(Duration::from_millis(50)));
        let others = (0..300).map(async |at| {
            loop {
                if let Ok(other) = locks.mutex(format!("other/{at}"))?.lock().await {
                    let _ = other.release().await;
                }
            }
        });
        tokio::select! {
            ended = guard.lost() => Err(Stop::failed(format!("the lock was lost: {ended:?}"))),
            ended = try_join_all(others) => ended.map(|_: Vec<()>| ()),
            () = sleep(2 * LEASE + LEASE / 4) => Ok(()),
        }
    })
}

/// The replica is slow, so the server grants about twenty locks in a second. Acquires whose callers
/// have gone are not sent, so the others are served.
#[test]
fn tries_succeed_although_the_server_can_not_serve_all() {
    run(async {
        let (server, _) = start().await?;
        let (proxy, _replica) = replica_behind_proxy(&server).await?;
        let locks = locks(&(durable(&server, "1") + "&dlock.response_timeout=3s")).await?;
        proxy.requests(Flow::Delay(Duration::from_millis(50)));
        let taken = AtomicUsize::new(0);
        let tries = (0..400).map(async |at| {
            loop {
                if let Ok(Some(guard)) = locks.mutex(format!("other/{at}"))?.try_lock().await {
                    taken.fetch_add(1, Ordering::Relaxed);
                    let _ = guard.release().await;
                }
            }
        });
        let succeed = async {
            // By now the first tries have given up.
            sleep(Duration::from_secs(6)).await;
            let before = taken.load(Ordering::Relaxed);
            until("later tries succeed", async || Ok(taken.load(Ordering::Relaxed) >= before + 20))
                .await
        };
        let ended: Verdict = tokio::select! {
            ended = try_join_all(tries) => ended.map(|_: Vec<()>| ()),
            ended = succeed => ended,
        };
        ended?;
        until("a free lock is taken", async || {
            Ok(matches!(locks.mutex("free")?.try_lock().await, Ok(Some(_))))
        })
        .await
    })
}

#[test]
fn a_grant_is_on_the_replica_before_it_is_reported() {
    run(async {
        let (server, other) = start().await?;
        let replica = replica_of(&server).await?;
        until_replicas(&server, 1).await?;
        let client = connect(&durable(&server, "1")).await?;
        for _ in 0..20 {
            let held = exclusive("a");
            server.flush_scripts().await?;
            take(&client, &held).await?;
            let there = replica.command(&["GET", "dlock:{0}:a"]).await?.text()?;
            assert!(there.starts_with(&held.claim.to_string()), "{there}");
            // A lock that another client hands off.
            let waiting = exclusive("a");
            queue(&client, &waiting).await?;
            free(&client, &held).await?;
            granted(&client, &waiting).await?;
            let there = replica.command(&["GET", "dlock:{0}:a"]).await?.text()?;
            assert!(there.starts_with(&waiting.claim.to_string()), "{there}");
            free(&client, &waiting).await?;
        }
        drop(other);
        Ok(())
    })
}

#[test]
fn a_majority_is_the_master_and_half_of_the_replicas() {
    run(async {
        let (server, other) = start().await?;
        let replicas = [replica_of(&server).await?, replica_of(&server).await?];
        until_replicas(&server, 2).await?;
        // The majority of three nodes is the master and one replica.
        let client = connect(&durable(&server, "majority")).await?;
        replicas[0].pause()?;
        works_fully(&client, &other, "a").await?;
        replicas[1].pause()?;
        is_refused(&locks(&brief(&server, "majority")).await?, &server).await?;
        replicas.iter().try_for_each(RedisServer::resume)
    })
}

/// A client that connects during a failover finds a master whose replicas connect later.
#[test]
fn a_majority_counts_replicas_that_connect_later() {
    run(async {
        let (server, _) = start().await?;
        let locks = locks(&brief(&server, "majority")).await?;
        // One server without replicas is its own majority.
        locks.mutex("a")?.lock().await?.release().await?;
        let replicas = [replica_of(&server).await?, replica_of(&server).await?];
        until_replicas(&server, 2).await?;
        replicas.iter().try_for_each(RedisServer::pause)?;
        until("grants wait for a replica", async || match locks.mutex("a")?.lock().await {
            Ok(guard) => Ok(guard.release().await.is_err()),
            Err(error) => Ok(error.to_string().contains("0 of 1 replicas have the lease")),
        })
        .await?;
        until_free(&server).await?;

        // Replicas that have gone still count, also after a reconnect.
        replicas.iter().for_each(RedisServer::kill);
        until_replicas(&server, 0).await?;
        server.kill_clients().await?;
        is_refused(&locks, &server).await
    })
}

/// In a failover the new master may have no replicas yet.
#[test]
fn a_majority_without_replicas_is_refused_behind_sentinels() {
    run(async {
        let (server, other) = start().await?;
        let listener = TcpListener::bind("127.0.0.1:0").await?;
        let all_know = AtomicBool::new(true);
        let test = async {
            let at = listener.local_addr()?;
            let url = format!("redis+sentinel://{at}/m?dlock.durability=majority");
            let error = refused(&url).await?;
            says(&error, ErrorKind::Unavailable, "set a number, such as dlock.durability=1");
            assert_eq!(error.operation(), Some("connect"));
            let _replica = replica_of(&server).await?;
            until_replicas(&server, 1).await?;
            works_fully(&connect(&url).await?, &other, "a").await
        };
        tokio::select! {
            verdict = test => verdict,
            ended = sentinels(&listener, server.port(), server.port(), &all_know) => ended,
        }
    })
}

#[test]
fn a_busy_try_or_a_queued_claim_does_not_wait_for_replicas() {
    run(async {
        let (server, other) = start().await?;
        let client = connect(&brief(&server, "1")).await?;
        let (held, waiting) = (exclusive("a"), exclusive("a"));
        take(&other, &held).await?;
        assert_eq!(timeout(SOON, client.acquire(&attempt("a"))).await??, Acquired::Busy);
        timeout(SOON, queue(&client, &waiting)).await??;
        free(&client, &waiting).await?;
        free(&other, &held).await
    })
}

/// The number of replicas comes from `INFO`, for which a user may lack the right.
#[test]
fn a_majority_of_an_unknown_number_of_nodes_is_refused() {
    run(async {
        let server = RedisServer::start(&Options::new()).await?;
        let url = set_joe_without(&server, "-info").await?;
        let error = refused(&format!("{url}?dlock.durability=majority")).await?;
        says(&error, ErrorKind::Config(ConfigIssue::Access), "+info");
        Ok(())
    })
}

#[test]
fn without_the_wait_right_nothing_is_held() {
    run(async {
        let server = RedisServer::start(&Options::new()).await?;
        let url = set_joe_without(&server, "-wait").await? + "?dlock.durability=1" + BRIEF;
        let error = match locks(&url).await {
            Ok(locks) => locks.mutex("a")?.lock().await.err().ok_or("granted")?,
            Err(_) => return Ok(()),
        };
        says(&error, ErrorKind::Config(ConfigIssue::Access), "+wait");
        until("nobody holds it", async || Ok(server.keys("dlock:{0}:a").await?.is_empty())).await
    })
}

/// Stands for sentinels: the first client is sent to the old master until all know of the new one.
async fn sentinels(listener: &TcpListener, old: u16, new: u16, all_know: &AtomicBool) -> Verdict {
    let mut clients = FuturesUnordered::new();
    let mut first = true;
    loop {
        tokio::select! {
            client = listener.accept() => {
                let is_behind = std::mem::take(&mut first);
                clients.push(answer(client?.0, move |words| {
                    let (port, epoch) =
                        if is_behind && !all_know.load(Ordering::SeqCst) { (old, 1) } else { (new, 2) };
                    match words {
                        [hello, ..] if hello == "HELLO" => HELLO.to_owned(),
                        [_, what, ..] if what == "MASTER" => {
                            format!("%1\r\n$12\r\nconfig-epoch\r\n$1\r\n{epoch}\r\n")
                        }
                        [_, what, ..] if what == "GET-MASTER-ADDR-BY-NAME" => {
                            let port = port.to_string();
                            format!("*2\r\n$9\r\n127.0.0.1\r\n${}\r\n{port}\r\n", port.len())
                        }
                        _ => "+OK\r\n".to_owned(),
                    }
                }));
            }
            Some(_) = clients.next(), if !clients.is_empty() => {}
        }
    }
}

/// Each connection of a client finds the master by itself. One of them may find the old master,
/// which is back without its data. It must not report locks as lost that the new master has
/// granted.
#[test]
fn a_returning_old_master_does_not_report_locks_as_lost() {
    run(async {
        let (old, new) = (start().await?.0, start().await?.0);
        let _replica = replica_of(&new).await?;
        until_replicas(&new, 1).await?;
        let listener = TcpListener::bind("127.0.0.1:0").await?;
        let all_know = AtomicBool::new(false);
        let test = async {
            let url = format!("redis+sentinel://{}/m?dlock.durability=1", listener.local_addr()?);
            let client = connect(&url).await?;
            let (held, shared) = (exclusive("a"), ask("b", Mode::Shared));
            for request in [&held, &shared] {
                take(&client, request).await?;
                let renewal = Renewal::new(request.as_claim(), request.mode, request.lease);
                // Renewals use the connection that writes grants, which knows the new master.
                assert_eq!(client.renew(&[renewal]).await?, [Renewed::Kept]);
                let released = client.release(&request.as_claim()).await;
                says(&released.err().ok_or("released")?, ErrorKind::Unavailable, "failover");
            }
            all_know.store(true, Ordering::SeqCst);
            for request in [&held, &shared] {
                until("it is released", async || {
                    Ok(client.release(&request.as_claim()).await.ok() == Some(Released::Released))
                })
                .await?;
            }
            Ok(())
        };
        tokio::select! {
            verdict = test => verdict,
            ended = sentinels(&listener, old.port(), new.port(), &all_know) => ended,
        }
    })
}

/// A server that has every write on disk before it answers.
async fn durable_server() -> Result<RedisServer, Stop> {
    RedisServer::start(&Options::new().with_persistence(Persistence::AofAlways)).await
}

async fn set(server: &RedisServer, setting: &str, value: &str) -> Verdict {
    server.command(&["CONFIG", "SET", setting, value]).await?.ok().map(|_| ())
}

fn exclusion(client: &DynBackend) -> Exclusion {
    client.guarantees().exclusion
}

#[test]
fn no_appendfsync_on_rewrite_guarantees_nothing() {
    run(async {
        let server = durable_server().await?;
        let url = server.url();
        assert_eq!(exclusion(&connect(&url).await?), Exclusion::Restart);
        set(&server, "no-appendfsync-on-rewrite", "yes").await?;
        let client = connect(&url).await?;
        assert_eq!(exclusion(&client), Exclusion::Nothing);
        let finding = |findings: Vec<dlock_core::Finding>| {
            let found = findings.into_iter().find(|finding| finding.about == "persistence");
            found.ok_or("nothing is said of it")
        };
        let found = finding(client.examine().await?)?;
        assert_eq!(found.level, Level::Warning, "{found:?}");
        assert!(found.found.contains("no-appendfsync-on-rewrite"), "{found:?}");
        let guarded = connect(&format!("{url}?dlock.restart_guard=1h")).await?;
        assert_eq!(exclusion(&guarded), Exclusion::Restart);
        assert!(finding(guarded.examine().await?)?.found.contains("restart_guard"));
        Ok(())
    })
}

#[test]
fn a_guarantee_follows_changed_settings() {
    run(async {
        let mut watched = Vec::new();
        for (setting, bad, good) in [
            ("no-appendfsync-on-rewrite", "yes", "no"),
            ("appendfsync", "everysec", "always"),
            ("appendonly", "no", "yes"),
            ("maxmemory-policy", "allkeys-lru", "noeviction"),
        ] {
            let server = durable_server().await?;
            set(&server, "maxmemory", "100mb").await?;
            let client = connect(&server.url()).await?;
            assert_eq!(exclusion(&client), Exclusion::Restart);
            set(&server, setting, bad).await?;
            watched.push((server, client, setting, good));
        }
        for (server, client, setting, good) in &watched {
            let ended = async || Ok(exclusion(client) == Exclusion::Nothing);
            until("the promise is taken back", ended).await?;
            set(server, setting, good).await?;
        }
        for (_, client, setting, _) in &watched {
            let made = async || Ok(exclusion(client) == Exclusion::Restart);
            until(&format!("the promise is made again: {setting}"), made).await?;
        }
        Ok(())
    })
}

#[test]
fn a_refused_command_is_not_sent_again() {
    run(async {
        let server = RedisServer::start(&Options::new()).await?;
        let line = include_str!("../../src/acl.txt");
        server.command(&line.split_whitespace().collect::<Vec<_>>()).await?.ok()?;
        let url = format!("redis://dlock:password@{}", server.address());
        // One client needs no settings, and the other one queries them once.
        let _guarded = connect(&format!("{url}?dlock.restart_guard=1h")).await?;
        let _other = connect(&url).await?;
        // Longer than the interval between two reads of the settings.
        tokio::time::sleep(Duration::from_secs(12)).await;
        let counts = server.info("commandstats").await?;
        let config = counts.lines().find(|line| line.starts_with("cmdstat_config"));
        assert!(config.is_some_and(|line| line.contains("rejected_calls=1,")), "{config:?}");
        Ok(())
    })
}

#[test]
fn an_evicting_server_guarantees_nothing_with_a_guard() {
    run(async {
        let masters = RedisMasters::start(3, &Options::new()).await?;
        let single = format!("{}?dlock.restart_guard=1h", masters.servers()[0].url());
        assert_eq!(exclusion(&connect(&single).await?), Exclusion::Restart);
        assert_eq!(exclusion(&connect(&masters.url()).await?), Exclusion::Failover);
        set(&masters.servers()[0], "maxmemory", "100mb").await?;
        set(&masters.servers()[0], "maxmemory-policy", "volatile-ttl").await?;
        assert_eq!(exclusion(&connect(&single).await?), Exclusion::Nothing);
        let quorum = connect(&masters.url()).await?;
        assert_eq!(exclusion(&quorum), Exclusion::Nothing);
        // The last known settings of an unreachable server count.
        masters.servers()[0].kill();
        until("it is seen that it is away", async || {
            let findings = quorum.examine().await?;
            Ok(findings.iter().any(|finding| finding.about == "server"))
        })
        .await?;
        assert_eq!(exclusion(&quorum), Exclusion::Nothing);
        Ok(())
    })
}

//! A server that is temporarily unable to serve: it has too many clients or no free memory, loads its
//! data, is a replica, or runs a script of another program. The error names the reason, and the client
//! recovers.

use std::time::Duration;

use dlock_core::{Certainty, DynBackend, Error, ErrorKind, Mode};
use dlock_testlab::{
    Stop, Verdict,
    redis::{Options, RedisServer},
};
use tokio::time::sleep;

use crate::support::{
    ask, attempt, connect, exclusive, free, granted, queue, refused, renew, run, says, start, take,
    until, works,
};

const UNAVAILABLE: ErrorKind = ErrorKind::Unavailable;

/// The error of an acquire that has to fail.
async fn fails(client: &DynBackend) -> Result<Error, Stop> {
    match client.acquire(&attempt("b")).await {
        Err(error) => Ok(error),
        Ok(answer) => Err(Stop::failed(format!("{answer:?}"))),
    }
}

/// Repeats an acquire until its error contains this remedy. All errors before must have the same
/// kind.
async fn until_says(client: &DynBackend, remedy: &str) -> Verdict {
    until(remedy, async || {
        let error = fails(client).await?;
        assert_eq!(error.kind(), UNAVAILABLE, "{error:?}");
        Ok(error.to_string().contains(remedy))
    })
    .await
}

/// The next request that is answered is granted.
async fn until_granted(client: &DynBackend) -> Verdict {
    until("it is granted again", async || {
        let request = attempt("c");
        let granted = client.acquire(&request).await.is_ok();
        let released = client.release(&request.as_claim()).await.is_ok();
        Ok(granted && released)
    })
    .await
}

#[test]
fn the_connection_limit_is_named_and_a_later_client_connects() {
    run(async {
        let server = RedisServer::start(&Options::new().with_config("maxclients 4")).await?;
        let client = connect(&server.url()).await?;
        let mut others = Vec::new();
        for _ in 0..3 {
            others.push(server.connect().await?);
        }
        for scheme in ["redis", "redis+cluster"] {
            let error = refused(&server.url().replace("redis:", &format!("{scheme}:"))).await?;
            says(&error, UNAVAILABLE, "maxclients");
        }
        works(&client, "a").await?;
        drop(others);
        until("somebody gets in", async || Ok(connect(&server.url()).await.is_ok())).await
    })
}

#[test]
fn a_replica_is_refused() {
    run(async {
        let (master, client) = start().await?;
        works(&client, "a").await?;
        let line = format!("replicaof 127.0.0.1 {}", master.port());
        let replica = RedisServer::start(&Options::new().with_config(&line)).await?;
        for option in ["", "?dlock.plain=true", "?dlock.durability=1"] {
            let error = refused(&format!("{}{option}", replica.url())).await?;
            says(&error, UNAVAILABLE, "address of the master");
        }
        // The same without the right to INFO.
        let user = ["ACL", "SETUSER", "joe", "on", ">p", "~*", "&*", "+@all", "-info"];
        replica.command(&user).await?.ok()?;
        let url = format!("redis://joe:p@{}?dlock.response_timeout=2s", replica.address());
        says(&refused(&url).await?, UNAVAILABLE, "address of the master");
        Ok(())
    })
}

#[test]
fn a_master_is_used_again_after_it_was_a_replica() {
    run(async {
        let server = RedisServer::start(&Options::new()).await?;
        let other = RedisServer::start(&Options::new()).await?;
        let url = format!("{}?dlock.response_timeout=2s", server.url());
        let (client, plain) =
            (connect(&url).await?, connect(&format!("{url}&dlock.plain=true")).await?);
        let port = other.port().to_string();
        server.command(&["REPLICAOF", "127.0.0.1", &port]).await?.ok()?;
        for client in [&client, &plain] {
            until_says(client, "address of the master").await?;
            assert!(client.release(&exclusive("a").as_claim()).await.is_err());
        }
        server.command(&["REPLICAOF", "NO", "ONE"]).await?.ok()?;
        for client in [&client, &plain] {
            until_granted(client).await?;
        }
        Ok(())
    })
}

/// A server that takes about a second to load its data.
async fn slow_to_load() -> Result<RedisServer, Stop> {
    let options = Options::new()
        .with_config("key-load-delay 1000")
        .with_config("loading-process-events-interval-bytes 1024");
    let server = RedisServer::start(&options).await?;
    let fill = "for i=1,5000 do redis.call('SET','k'..i,string.rep('x',200)..i) end";
    server.command(&["EVAL", fill, "0"]).await?.ok()?;
    server.command(&["SAVE"]).await?.ok()?;
    Ok(server)
}

#[test]
fn a_loading_server_is_reported_and_used_once_loaded() {
    run(async {
        let server = slow_to_load().await?;
        let url = format!("{}?dlock.response_timeout=2s", server.url());
        let client = connect(&url).await?;
        let meanwhile = async {
            until_says(&client, "loading").await?;
            // Shorter than the server takes to load.
            let brief = format!("{}?dlock.response_timeout=300ms", server.url());
            says(&refused(&brief).await?, UNAVAILABLE, "still loading its data");
            until_granted(&client).await
        };
        let (restarted, meanwhile) = tokio::join!(server.restart(), meanwhile);
        restarted.and(meanwhile)
    })
}

/// A script of another program, until it is ended.
async fn busy(server: &RedisServer) -> Result<dlock_testlab::redis::Resp, Stop> {
    server.command(&["CONFIG", "SET", "busy-reply-threshold", "10"]).await?.ok()?;
    let mut connection = server.connect().await?;
    connection.send(&["EVAL", "while true do end", "0"]).await?;
    until("the script runs", async || {
        Ok(format!("{:?}", server.command(&["PING"]).await?).contains("BUSY"))
    })
    .await?;
    Ok(connection)
}

#[test]
fn a_short_blocking_script_only_delays_a_request() {
    run(async {
        let (server, client) = start().await?;
        let held = exclusive("a");
        take(&client, &held).await?;
        let _script = busy(&server).await?;
        let end = async {
            sleep(Duration::from_millis(300)).await;
            server.command(&["SCRIPT", "KILL"]).await?.ok()
        };
        let (freed, ended) = tokio::join!(free(&client, &held), end);
        ended?;
        freed?;
        works(&client, "a").await
    })
}

#[test]
fn a_long_blocking_script_is_reported() {
    run(async {
        let server = RedisServer::start(&Options::new()).await?;
        let client = connect(&format!("{}?dlock.response_timeout=2s", server.url())).await?;
        let _script = busy(&server).await?;
        let error = fails(&client).await?;
        says(&error, UNAVAILABLE, "SCRIPT KILL");
        assert_eq!(error.certainty(), Certainty::NotApplied);
        says(&refused(&server.url()).await?, UNAVAILABLE, "SCRIPT KILL");
        let examined = client.examine().await.err().ok_or("a server that is busy is examined")?;
        says(&examined, UNAVAILABLE, "SCRIPT KILL");
        server.command(&["SCRIPT", "KILL"]).await?.ok()?;
        until_granted(&client).await
    })
}

#[test]
fn a_server_that_cannot_save_or_replicate_refuses_with_reason() {
    run(async {
        let options = Options::new().with_config("enable-protected-configs yes");
        let server = RedisServer::start(&options).await?;
        let client = connect(&server.url()).await?;
        let held = exclusive("a");
        take(&client, &held).await?;
        server.command(&["CONFIG", "SET", "min-replicas-to-write", "1"]).await?.ok()?;
        says(&fails(&client).await?, UNAVAILABLE, "min-replicas-to-write");
        says(&refused(&server.url()).await?, UNAVAILABLE, "min-replicas-to-write");
        server.command(&["CONFIG", "SET", "min-replicas-to-write", "0"]).await?.ok()?;
        free(&client, &held).await?;

        // Without its directory, the server can't save its data.
        server.command(&["CONFIG", "SET", "save", "3600 1"]).await?.ok()?;
        server.command(&["CONFIG", "SET", "dir", "/proc"]).await?.ok()?;
        server.command(&["BGSAVE"]).await?.ok()?;
        until("it can't save", async || {
            Ok(server.info("persistence").await?.contains("rdb_last_bgsave_status:err"))
        })
        .await?;
        says(&fails(&client).await?, UNAVAILABLE, "can't save");
        says(&refused(&server.url()).await?, UNAVAILABLE, "can't save");
        server.command(&["CONFIG", "SET", "stop-writes-on-bgsave-error", "no"]).await?.ok()?;
        works(&client, "a").await
    })
}

#[test]
fn a_waiter_is_granted_after_the_server_was_busy() {
    run(async {
        let (server, client) = start().await?;
        let other = connect(&server.url()).await?;
        let (held, waiting) = (exclusive("a"), exclusive("a"));
        take(&client, &held).await?;
        queue(&other, &waiting).await?;
        let _script = busy(&server).await?;
        let end = async {
            sleep(Duration::from_millis(200)).await;
            server.command(&["SCRIPT", "KILL"]).await?.ok()?;
            free(&client, &held).await
        };
        let (grant, ended) = tokio::join!(granted(&other, &waiting), end);
        ended?;
        grant.map(|_| ())
    })
}

const REMEDY: &str = "out of memory (maxmemory): add memory, or delete keys";

/// From now on, the server has no free memory.
async fn fill(server: &RedisServer) -> Verdict {
    server.command(&["CONFIG", "SET", "maxmemory", "1"]).await?.ok()?;
    Ok(())
}

async fn make_room(server: &RedisServer) -> Verdict {
    server.command(&["CONFIG", "SET", "maxmemory", "0"]).await?.ok()?;
    Ok(())
}

#[test]
fn a_full_server_grants_nothing_and_stores_nothing() {
    run(async {
        let (server, client) = start().await?;
        works(&client, "used").await?;
        fill(&server).await?;
        let keys = server.keys("*").await?;
        for request in [
            exclusive("a"),
            attempt("a"),
            exclusive("used"),
            ask("a", Mode::Shared),
            ask("a", Mode::permits(2, 3)?),
        ] {
            match client.acquire(&request).await {
                Ok(answer) => return Err(Stop::failed(format!("{answer:?}"))),
                Err(error) => {
                    says(&error, ErrorKind::Unavailable, REMEDY);
                    assert!(error.is_transient());
                    assert_eq!(error.certainty(), Certainty::NotApplied, "{error:?}");
                }
            }
            assert_eq!(server.keys("*").await?, keys, "{request:?}");
        }
        let both = [exclusive("a"), exclusive("b")];
        let answer = client.acquire_all(&both).ok_or("it can't take two at once")?;
        says(&answer.await.err().ok_or("it takes both")?, ErrorKind::Unavailable, REMEDY);
        assert_eq!(server.keys("*").await?, keys);
        make_room(&server).await?;
        works(&client, "a").await
    })
}

#[test]
fn held_locks_are_renewed_and_released_on_a_full_server() {
    run(async {
        let (server, client) = start().await?;
        let held = exclusive("a");
        take(&client, &held).await?;
        fill(&server).await?;
        renew(&client, &held).await?;
        assert_eq!(client.inspect(&held.name).await?.holders.len(), 1);
        free(&client, &held).await?;
        assert!(client.inspect(&held.name).await?.is_free());
        Ok(())
    })
}

#[test]
fn readers_and_permits_are_renewed_on_a_full_server() {
    run(async {
        let (server, client) = start().await?;
        let held = [ask("a", Mode::Shared), ask("b", Mode::permits(2, 3)?)];
        for request in &held {
            take(&client, request).await?;
        }
        fill(&server).await?;
        for request in &held {
            renew(&client, request).await?;
        }
        Ok(())
    })
}

#[test]
fn a_full_server_hands_off_to_waiters() {
    run(async {
        let (server, client) = start().await?;
        let other = connect(&server.url()).await?;
        let (writer, readers) = (exclusive("a"), [ask("a", Mode::Shared), ask("a", Mode::Shared)]);
        let last = exclusive("a");
        take(&client, &writer).await?;
        for reader in &readers {
            queue(&other, reader).await?;
        }
        queue(&client, &last).await?;
        fill(&server).await?;
        free(&client, &writer).await?;
        for reader in &readers {
            granted(&other, reader).await?;
            free(&other, reader).await?;
        }
        granted(&client, &last).await?;
        free(&client, &last).await?;
        assert!(client.inspect(&last.name).await?.is_free());
        Ok(())
    })
}

#[test]
fn a_waiter_on_a_full_server_keeps_its_position() {
    run(async {
        let (server, client) = start().await?;
        let other = connect(&server.url()).await?;
        let held = exclusive("a");
        // The waiter polls a few times meanwhile.
        let lease = Duration::from_secs(2);
        let waiting = exclusive("a").with_lease(lease);
        take(&client, &held).await?;
        queue(&other, &waiting).await?;
        fill(&server).await?;
        let release = async {
            tokio::time::sleep(lease * 3 / 2).await;
            free(&client, &held).await
        };
        let (grant, released) = tokio::join!(granted(&other, &waiting), release);
        released?;
        grant?;
        free(&other, &waiting).await
    })
}

#[test]
fn a_full_server_refuses_a_new_client_with_a_remedy() {
    run(async {
        let (server, _client) = start().await?;
        fill(&server).await?;
        says(&refused(&server.url()).await?, ErrorKind::Unavailable, REMEDY);
        make_room(&server).await?;
        works(&connect(&server.url()).await?, "a").await
    })
}

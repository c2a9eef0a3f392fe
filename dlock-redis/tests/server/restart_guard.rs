//! The restart guard: a server that may have lost its data grants nothing for a while.

use std::time::Duration;

use dlock_core::{
    AcquireRequest, Certainty, ConfigIssue, DynBackend, Error, ErrorKind, Exclusion, Locks,
};
use dlock_testlab::{
    SteppedClock, Stop, Verdict,
    redis::{Options, Persistence, RedisMasters, RedisServer},
};

use crate::support::{
    attempt, connect, exclusive, fails, free, name, queue, refused, run, says, start, take, until,
    works,
};

/// The shortest guard here, and a lease that it outlasts.
const GUARD: Duration = Duration::from_secs(5);

const REMEDY: &str = "dlock.restart_guard=0s";

fn brief() -> AcquireRequest {
    attempt("a").with_lease(GUARD)
}

/// The remaining seconds in an error.
fn left(error: &Error) -> Result<u64, Stop> {
    let text = error.to_string();
    let seconds = text.split("another ").nth(1).and_then(|rest| rest.split('s').next());
    Ok(seconds.ok_or("it does not say how long")?.parse()?)
}

#[test]
fn nothing_is_granted_until_the_guard_has_passed() {
    run(async {
        let (server, _) = start().await?;
        for option in ["", "&dlock.plain=true"] {
            let url = |guard: &str| format!("{}?dlock.restart_guard={guard}{option}", server.url());
            let client = connect(&url("500s")).await?;
            let error = fails(&client, &brief()).await?;
            says(&error, ErrorKind::Unavailable, REMEDY);
            assert_eq!(error.certainty(), Certainty::NotApplied);
            let left = left(&error)?;
            assert!((100..=500).contains(&left), "{error}");
            assert!(server.keys("*").await?.is_empty());
            assert_eq!(client.guarantees().exclusion, Exclusion::Restart);
            works(&connect(&url("0s")).await?, "a").await?;
            server.command(&["FLUSHALL"]).await?;
        }
        Ok(())
    })
}

/// Waits until the guard of this client is over.
async fn until_passed(client: &DynBackend) -> Verdict {
    until("the guard has passed", async || {
        let request = attempt("a").with_lease(GUARD);
        let granted = client.acquire(&request).await.is_ok();
        client.release(&request.as_claim()).await?;
        Ok(granted)
    })
    .await
}

#[test]
fn the_guard_starts_again_with_each_server_start() {
    run(async {
        let (server, _) = start().await?;
        let client = connect(&format!("{}?dlock.restart_guard=5s", server.url())).await?;
        until_passed(&client).await?;
        server.restart().await?;
        until("it is connected", async || Ok(client.inspect(&name("a")).await.is_ok())).await?;
        says(&fails(&client, &brief()).await?, ErrorKind::Unavailable, REMEDY);
        until_passed(&client).await
    })
}

#[test]
fn the_restart_guard_holds_for_requests_during_a_start() {
    run(async {
        let (server, _) = start().await?;
        let url = format!("{}?dlock.restart_guard=5s", server.url());
        let clients = [connect(&url).await?, connect(&(url + "&dlock.plain=true")).await?];
        for client in &clients {
            until_passed(client).await?;
        }
        server.restart().await?;
        for client in &clients {
            says(&fails(client, &brief()).await?, ErrorKind::Unavailable, REMEDY);
        }
        Ok(())
    })
}

#[test]
fn a_lease_longer_than_the_restart_guard_is_refused() {
    run(async {
        let (server, _) = start().await?;
        let client = connect(&format!("{}?dlock.restart_guard=5s", server.url())).await?;
        let error = client.acquire(&exclusive("a")).await.err().ok_or("granted")?;
        says(&error, ErrorKind::Config(ConfigIssue::Lease), "dlock.restart_guard");
        Ok(())
    })
}

#[test]
fn holders_and_waiters_may_release_during_the_guard() {
    run(async {
        let (server, client) = start().await?;
        let (held, waiting) = (exclusive("a"), exclusive("a"));
        take(&client, &held).await?;
        let guarded = connect(&format!("{}?dlock.restart_guard=1h", server.url())).await?;
        says(&fails(&guarded, &brief()).await?, ErrorKind::Unavailable, REMEDY);
        queue(&client, &waiting).await?;
        assert_eq!(guarded.inspect(&held.name).await?.waiters.len(), 1);
        free(&guarded, &waiting).await?;
        free(&guarded, &held).await
    })
}

#[test]
fn a_server_that_persists_every_write_needs_no_guard() {
    run(async {
        let options = Options::new().with_persistence(Persistence::AofAlways);
        let server = RedisServer::start(&options).await?;
        let client = connect(&server.url()).await?;
        works(&client, "a").await?;
        assert_eq!(client.guarantees().exclusion, Exclusion::Restart);
        let held = exclusive("a");
        take(&client, &held).await?;
        server.restart().await?;
        assert_eq!(client.inspect(&held.name).await?.holders.len(), 1);
        free(&client, &held).await
    })
}

#[test]
fn a_volatile_server_without_a_guard_guarantees_nothing() {
    run(async {
        let (_server, client) = start().await?;
        assert_eq!(client.guarantees().exclusion, Exclusion::Nothing);
        works(&client, "a").await
    })
}

/// The information about the server comes from `INFO`, for which a user may lack the right.
#[test]
fn a_guard_without_a_run_id_is_refused() {
    run(async {
        let server = RedisServer::start(&Options::new()).await?;
        let user = ["ACL", "SETUSER", "joe", "on", ">p", "~*", "&*", "+@all", "-info"];
        server.command(&user).await?.ok()?;
        for option in ["", "&dlock.plain=true"] {
            let url = format!("redis://joe:p@{}?dlock.restart_guard=1h{option}", server.address());
            says(&refused(&url).await?, ErrorKind::Config(ConfigIssue::Access), "+info");
        }
        Ok(())
    })
}

/// A minimum time is stored as a lease, too, and a restart may lose it.
#[test]
fn a_minimum_job_time_longer_than_the_guard_is_refused() {
    run(async {
        let (server, _) = start().await?;
        for option in ["", "&dlock.plain=true"] {
            let url = format!("{}?dlock.restart_guard=5s{option}", server.url());
            let job = Locks::new(connect(&url).await?)?.job("nightly")?;
            let error = job.clone().with_at_least(GUARD * 2).unwrap_err();
            says(&error, ErrorKind::Config(ConfigIssue::Lease), "dlock.restart_guard");
            job.with_at_least(GUARD)?;
        }
        Ok(())
    })
}

const AN_HOUR: Duration = Duration::from_secs(3600);
const GUARDED: &str = "dlock.restart_guard=1h";

/// Waits until a client with a guard of a second is granted a lock.
async fn until_granted(client: &DynBackend) -> Result<(), Stop> {
    let request = attempt("a").with_lease(Duration::from_secs(1));
    until("the guard is over", async || Ok(client.acquire(&request).await.is_ok())).await?;
    client.release(&request.as_claim()).await?;
    Ok(())
}

async fn connected(client: &DynBackend) -> Result<(), Stop> {
    let name = name("a");
    until("it is connected", async || Ok(client.inspect(&name).await.is_ok())).await
}

#[test]
fn a_clock_step_forward_does_not_end_the_guard() {
    run(async {
        let clock = SteppedClock::start().await?;
        let server = RedisServer::start(&Options::new().with_clock(&clock)).await?;
        let old = connect(&format!("{}?{GUARDED}", server.url())).await?;
        server.restart().await?;
        clock.forward(2 * AN_HOUR)?;
        until("the uptime is large", async || {
            let info = server.info("server").await?;
            let uptime = info.lines().find_map(|line| line.strip_prefix("uptime_in_seconds:"));
            Ok(uptime.and_then(|text| text.parse().ok()).is_some_and(|up: u64| up > 7000))
        })
        .await?;
        server.kill_clients().await?;
        connected(&old).await?;
        for client in [&old, &connect(&format!("{}?{GUARDED}", server.url())).await?] {
            says(&fails(client, &attempt("a")).await?, ErrorKind::Unavailable, "restart_guard");
        }
        Ok(())
    })
}

#[test]
fn a_clock_step_back_does_not_extend_the_guard() {
    run(async {
        let clock = SteppedClock::start().await?;
        clock.forward(AN_HOUR)?;
        let options = Options::new().with_clock(&clock);
        let server = RedisServer::start(&options).await?;
        let masters = RedisMasters::start(3, &options).await?;
        let url = format!("{}?dlock.restart_guard=1s", server.url());
        let old = connect(&url).await?;
        until_granted(&old).await?;
        clock.reset()?;
        until("the uptime is negative", async || {
            Ok(server.info("server").await?.contains("uptime_in_seconds:-"))
        })
        .await?;
        server.kill_clients().await?;
        until_granted(&old).await?;
        until_granted(&connect(&url).await?).await?;
        let quorum = connect(&format!("{}?dlock.restart_guard=1s", masters.url())).await?;
        until_granted(&quorum).await?;
        connect(&masters.url()).await?;
        Ok(())
    })
}

#[test]
fn an_explicit_guard_applies_to_durable_servers_too() {
    run(async {
        let options = Options::new().with_persistence(Persistence::AofAlways);
        let server = RedisServer::start(&options).await?;
        for option in ["", "&dlock.plain=true"] {
            let client = connect(&format!("{}?{GUARDED}{option}", server.url())).await?;
            says(&fails(&client, &attempt("a")).await?, ErrorKind::Unavailable, "restart_guard");
            assert_eq!(client.guarantees().exclusion, Exclusion::Restart);
        }
        works(&connect(&server.url()).await?, "a").await
    })
}

/// The id of a server's run, as in a mark.
async fn run_id(server: &RedisServer) -> Result<String, Stop> {
    let info = server.info("server").await? + &server.info("replication").await?;
    let field = |name: &str| info.lines().find_map(|line| line.trim().strip_prefix(name));
    let id = field("run_id:").ok_or("it has no run_id")?;
    let replid = field("master_replid:").ok_or("it has no master_replid")?;
    Ok(format!("{id}-{replid}"))
}

/// Many clients that run for a short time only are granted locks in the end.
#[test]
fn a_client_records_the_progress_of_the_restart_guard() {
    run(async {
        let server = RedisServer::start(&Options::new()).await?;
        let url = format!("{}?dlock.restart_guard=80s", server.url());
        let first = connect(&url).await?;
        let key = "dlock:{0}?guard:";
        until("there is a mark", async || Ok(server.command(&["EXISTS", key]).await?.int()? == 1))
            .await?;
        drop(first);
        let mark = server.command(&["GET", key]).await?.text()?;
        let (id, millis) = mark.split_once(' ').ok_or("no mark")?;
        assert_eq!(id, run_id(&server).await?);
        let millis = millis.parse::<u64>()?;
        assert!((10_000..80_000).contains(&millis), "{mark}");
        Ok(())
    })
}

#[test]
fn a_later_client_does_not_wait_for_the_guard_again() {
    run(async {
        let server = RedisServer::start(&Options::new()).await?;
        let url = format!("{}?dlock.restart_guard=1s", server.url());
        let _first = connect(&url).await?;
        let key = "dlock:{0}?guard:";
        until("there is a mark", async || Ok(server.command(&["EXISTS", key]).await?.int()? == 1))
            .await?;
        let mark = server.command(&["GET", key]).await?.text()?;
        let (id, millis) = mark.split_once(' ').ok_or("no mark")?;
        assert_eq!(id, run_id(&server).await?);
        assert!(millis.parse().is_ok_and(|millis: u64| millis >= 1000), "{mark}");
        let second = connect(&url).await?;
        let request = attempt("a").with_lease(Duration::from_secs(1));
        take(&second, &request).await?;
        free(&second, &request).await
    })
}

#[test]
fn a_guard_mark_counts_for_one_server_run_and_its_time() {
    run(async {
        let options = Options::new().with_persistence(Persistence::AofAlways);
        let server = RedisServer::start(&options).await?;
        let url = format!("{}?{GUARDED}", server.url());
        let key = "dlock:{0}?guard:";
        let set = async |mark: &str| server.command(&["SET", key, mark]).await?.ok();
        let id = run_id(&server).await?;
        for (mark, granted) in [
            (format!("{id} 3600000"), true),
            (format!("{id} 60000"), false),
            (format!("{id}0 3600000"), false),
            (format!("{id} -1"), false),
            ("".to_owned(), false),
        ] {
            set(&mark).await?;
            let client = connect(&url).await?;
            match granted {
                true => works_briefly(&client).await?,
                false => says(
                    &fails(&client, &attempt("a")).await?,
                    ErrorKind::Unavailable,
                    "restart_guard",
                ),
            }
        }
        set(&format!("{id} 3600000")).await?;
        let client = connect(&url).await?;
        works_briefly(&client).await?;
        server.restart().await?;
        assert!(server.keys("*guard*").await?.len() == 1, "the server has kept the mark");
        connected(&client).await?;
        for client in [&client, &connect(&url).await?] {
            says(&fails(client, &attempt("a")).await?, ErrorKind::Unavailable, "restart_guard");
        }
        // An invalid mark is ignored.
        server.command(&["DEL", key]).await?.ok()?;
        server.command(&["HSET", key, "a", "b"]).await?.ok()?;
        says(
            &fails(&connect(&url).await?, &attempt("a")).await?,
            ErrorKind::Unavailable,
            "restart_guard",
        );
        Ok(())
    })
}

async fn works_briefly(client: &DynBackend) -> Result<(), Stop> {
    let request = attempt("a");
    take(client, &request).await?;
    free(client, &request).await
}

//! The restart guard with clock steps, and for clients that connect later.

use std::time::Duration;

use dlock_core::{DynBackend, Error, ErrorKind, Exclusion};
use dlock_testlab::{
    SteppedClock, Stop,
    redis::{Options, Persistence, RedisMasters, RedisServer},
};

use crate::support::{attempt, connect, free, name, run, says, take, until, works};

const AN_HOUR: Duration = Duration::from_secs(3600);
const GUARDED: &str = "dlock.restart_guard=1h";

/// The error of an acquire.
async fn fails(client: &DynBackend) -> Result<Error, Stop> {
    match client.acquire(&attempt("a")).await {
        Err(error) => Ok(error),
        Ok(answer) => Err(Stop::failed(format!("{answer:?}"))),
    }
}

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
            says(&fails(client).await?, ErrorKind::Unavailable, "restart_guard");
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
            says(&fails(&client).await?, ErrorKind::Unavailable, "restart_guard");
            assert_eq!(client.guarantees().exclusion, Exclusion::Restart);
        }
        works(&connect(&server.url()).await?, "a").await
    })
}

/// The id of a server's run, as a mark has it.
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
                false => says(&fails(&client).await?, ErrorKind::Unavailable, "restart_guard"),
            }
        }
        set(&format!("{id} 3600000")).await?;
        let client = connect(&url).await?;
        works_briefly(&client).await?;
        server.restart().await?;
        assert!(server.keys("*guard*").await?.len() == 1, "the server has kept the mark");
        connected(&client).await?;
        for client in [&client, &connect(&url).await?] {
            says(&fails(client).await?, ErrorKind::Unavailable, "restart_guard");
        }
        // An invalid mark is ignored.
        server.command(&["DEL", key]).await?.ok()?;
        server.command(&["HSET", key, "a", "b"]).await?.ok()?;
        says(&fails(&connect(&url).await?).await?, ErrorKind::Unavailable, "restart_guard");
        Ok(())
    })
}

async fn works_briefly(client: &DynBackend) -> Result<(), Stop> {
    let request = attempt("a");
    take(client, &request).await?;
    free(client, &request).await
}

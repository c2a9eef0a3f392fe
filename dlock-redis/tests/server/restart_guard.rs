//! The restart guard: a server that may have lost its data grants nothing for a while.

use std::time::Duration;

use dlock_core::{Certainty, ConfigIssue, DynBackend, Error, ErrorKind, Exclusion, Locks};
use dlock_testlab::{
    Stop, Verdict,
    redis::{Options, Persistence, RedisServer},
};

use crate::support::{
    attempt, connect, exclusive, free, name, queue, refused, run, says, start, take, until, works,
};

/// The shortest guard here, and a lease that it outlasts.
const GUARD: Duration = Duration::from_secs(5);

const REMEDY: &str = "dlock.restart_guard=0s";

async fn fails(client: &DynBackend) -> Result<Error, Stop> {
    match client.acquire(&attempt("a").with_lease(GUARD)).await {
        Err(error) => Ok(error),
        Ok(answer) => Err(Stop::failed(format!("{answer:?}"))),
    }
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
            let error = fails(&client).await?;
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
        says(&fails(&client).await?, ErrorKind::Unavailable, REMEDY);
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
            says(&fails(client).await?, ErrorKind::Unavailable, REMEDY);
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
        says(&fails(&guarded).await?, ErrorKind::Unavailable, REMEDY);
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

/// What the server says of itself is in `INFO`, which a user may lack the right to.
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

/// A minimum time is a lease, too, and a restart may forget it.
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

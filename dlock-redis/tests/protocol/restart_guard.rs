//! The restart guard: a server that restarts without its data grants nothing until every lease that
//! it may have lost is over. This includes requests from before the restart.

use std::time::Duration;

use dlock_core::{
    AcquireRequest, Acquired, ConfigIssue, DynBackend, Error, ErrorKind, FencingToken, LockOptions,
    Locks, Mode, Renewal, Renewed,
};
use dlock_testlab::{
    Flow, Stop, Verdict,
    redis::{Options, RedisMasters, RedisServer},
};
use tokio::time::{Instant, sleep, timeout};

use crate::support::{
    SOON, ask, attempt, behind, brief, connect, exclusive, free, millis, queue, run, says, start,
    take, until,
};

const GUARD: Duration = Duration::from_secs(5);
const GUARDED: &str = "dlock.restart_guard=5s";

fn request() -> AcquireRequest {
    attempt("a").with_lease(GUARD)
}

async fn until_granted(client: &DynBackend) -> Verdict {
    until("the guard is over", async || {
        let request = request();
        match client.acquire(&request).await {
            Ok(Acquired::Granted(_)) => free(client, &request).await.map(|()| true),
            _ => Ok(false),
        }
    })
    .await
}

/// Kills the servers during a request of the client, and starts them again. The client is granted
/// nothing before the guard is over, and gets the lock afterwards.
async fn asked_across_a_restart(
    client: &DynBackend,
    servers: &[RedisServer],
    waits_for_an_answer: bool,
) -> Verdict {
    for server in servers {
        match waits_for_an_answer {
            true => server.pause()?,
            false => server.kill(),
        }
    }
    sleep(millis(100)).await;
    let asked = request();
    let restarts = async {
        sleep(millis(100)).await;
        let began = Instant::now();
        for server in servers {
            server.restart().await?;
        }
        Ok::<_, Stop>(began)
    };
    let asks = async { timeout(SOON, client.acquire(&asked)).await };
    let (answer, began) = tokio::join!(asks, restarts);
    let (answer, began) = (answer?, began?);
    let error = answer.err().ok_or("granted by a server that has just forgotten everything")?;
    assert_eq!(error.kind(), ErrorKind::Unavailable, "{error:?}");
    until_granted(client).await?;
    assert!(began.elapsed() >= GUARD, "granted after {:?}", began.elapsed());
    Ok(())
}

#[test]
fn a_restarted_server_grants_nothing_to_a_waiting_attempt() {
    run(async {
        let server = start().await?;
        let client = connect(&format!("{}?{GUARDED}", server.url())).await?;
        let servers = [server];
        asked_across_a_restart(&client, &servers, false).await?;
        asked_across_a_restart(&client, &servers, true).await
    });
}

#[test]
fn restarted_masters_do_not_vote_for_a_waiting_attempt() {
    run(async {
        let masters = RedisMasters::start(3, &Options::new()).await?;
        let client = connect(&format!("{}?{GUARDED}", masters.url())).await?;
        until_granted(&client).await?;
        // One master keeps an older lock, and a majority loses it.
        asked_across_a_restart(&client, &masters.servers()[1..], true).await
    });
}

/// Returns the errors of acquires with this lease.
async fn errors_of(client: &DynBackend, lease: Duration) -> Result<Vec<Error>, Stop> {
    let requests = [brief("a", lease), brief("b", lease)];
    let mut errors = vec![
        client.acquire(&requests[0]).await.err().ok_or("it is granted")?,
        client.acquire(&attempt("a").with_lease(lease)).await.err().ok_or("it is granted")?,
    ];
    if let Some(answer) = client.acquire_all(&requests) {
        errors.push(answer.await.err().ok_or("they are granted")?);
    }
    let options = LockOptions::new().with_lease(lease);
    let locks = Locks::new(client.clone())?.with_options(options)?;
    let answer = timeout(SOON, locks.mutex("a")?.lock()).await?;
    errors.push(answer.err().ok_or("it is granted")?);
    Ok(errors)
}

async fn longer_leases_are_refused(client: &DynBackend) -> Verdict {
    for error in errors_of(client, GUARD + millis(1)).await? {
        says(&error, ErrorKind::Config(ConfigIssue::Lease), "dlock.restart_guard");
    }
    Ok(())
}

#[test]
fn a_lease_longer_than_the_guard_is_refused() {
    run(async {
        let server = start().await?;
        for option in [GUARDED, "dlock.restart_guard=5s&dlock.plain=true"] {
            let client = connect(&format!("{}?{option}", server.url())).await?;
            longer_leases_are_refused(&client).await?;
        }
        let keys = server.keys("*").await?;
        assert!(keys.iter().all(|key| key == "dlock:{0}?guard:"), "{keys:?}");
        Ok(())
    });
}

#[test]
fn a_quorum_refuses_a_lease_longer_than_the_guard() {
    run(async {
        let masters = RedisMasters::start(3, &Options::new()).await?;
        let client = connect(&format!("{}?{GUARDED}", masters.url())).await?;
        longer_leases_are_refused(&client).await
    });
}

#[test]
fn without_the_info_right_a_restart_guard_is_refused() {
    run(async {
        let masters = RedisMasters::start(3, &Options::new()).await?;
        for server in masters.servers() {
            let user = ["ACL", "SETUSER", "joe", "on", ">p", "~*", "&*", "+@all", "-info"];
            server.command(&user).await?.ok()?;
        }
        let single = masters.servers()[0].url();
        for url in [&single, &format!("{single}?dlock.plain=true"), &masters.url()] {
            let url = url.replace("//", "//joe:p@");
            let with = |guard: &str| {
                let mark = if url.contains('?') { '&' } else { '?' };
                format!("{url}{mark}dlock.restart_guard={guard}")
            };
            let refused = timeout(SOON, connect(&with("5s"))).await?;
            let error = refused.err().ok_or("let in with a guard that can't be kept")?;
            says(&error, ErrorKind::Config(ConfigIssue::Access), "+info");
            connect(&with("0s")).await?;
        }
        Ok(())
    });
}

/// The claims that hold a name, and those that wait, by their indices in the list.
async fn state(
    client: &DynBackend,
    name: &str,
    claims: &[&AcquireRequest],
) -> Result<(Vec<usize>, Vec<usize>), Stop> {
    let state = client.inspect(&attempt(name).name).await?;
    let places = |list: &[dlock_core::ClaimState]| -> Vec<usize> {
        let place = |one: &dlock_core::ClaimState| claims.iter().position(|c| c.claim == one.claim);
        list.iter().filter_map(place).collect()
    };
    Ok((places(&state.holders), places(&state.waiters)))
}

#[test]
fn no_request_grants_within_the_guard() {
    run(async {
        let server = start().await?;
        let guarded = connect(&format!("{}?dlock.restart_guard=180s", server.url())).await?;
        let (free_of_guard, holders) =
            (connect(&server.url()).await?, connect(&server.url()).await?);
        // The waiter listens for messages, but its polls do not arrive.
        let (proxy, waiter) = behind(&server, "").await?;
        let held: Vec<_> = ["released", "downgraded"].into_iter().map(exclusive).collect();
        let (expires, cancelled) = (brief("cancelled", millis(300)), exclusive("cancelled"));
        for request in held.iter().chain([&expires]) {
            take(&holders, request).await?;
        }
        queue(&waiter, &cancelled).await?;
        let waiting =
            [exclusive("released"), ask("downgraded", Mode::Shared), exclusive("cancelled")];
        for request in &waiting {
            queue(&waiter, request).await?;
        }
        proxy.requests(Flow::Hold);
        until("the lease ends", async || {
            Ok(holders.inspect(&expires.name).await?.holders.is_empty())
        })
        .await?;

        free(&guarded, &held[0]).await?;
        let shared = Renewal::new(held[1].as_claim(), Mode::Shared, held[1].lease);
        assert_eq!(guarded.renew(&[shared]).await?, [Renewed::Kept]);
        free(&guarded, &cancelled).await?;
        guarded.raise_tokens(&expires.name, FencingToken::new(5)?).await?;
        for name in ["released", "downgraded", "cancelled"] {
            let error = guarded.acquire(&attempt(name)).await.err().ok_or("it is granted")?;
            assert_eq!(error.kind(), ErrorKind::Unavailable, "{error:?}");
        }
        for (request, holds) in waiting.iter().zip([0, 1, 0]) {
            let claims = [request, &held[1]];
            let expected = (vec![1; holds], vec![0]);
            assert_eq!(state(&guarded, request.name.as_str(), &claims).await?, expected);
        }

        // The message is not lost: the next request after the guard grants the lock to the waiter.
        for request in &waiting {
            let passes = attempt(request.name.as_str());
            assert_eq!(free_of_guard.acquire(&passes).await?, Acquired::Busy);
            let (holders, waiters) =
                state(&free_of_guard, request.name.as_str(), &[request]).await?;
            assert_eq!((holders, waiters), (vec![0], vec![]), "{}", request.name);
        }
        Ok(())
    });
}

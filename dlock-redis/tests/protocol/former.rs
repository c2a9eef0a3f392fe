//! Locks that a client of a former version holds: it took H with `SET`, by a token out of a reserve,
//! and compares the last token with the end of that reserve.

use dlock_core::{AcquireRequest, Acquired, FencingToken, Released, Renewed};
use dlock_testlab::{Stop, Verdict, redis::RedisServer};

use crate::support::{
    attempt, connect, exclusive, free, granted, keys, millis, queue, renew, run, start, take, until,
};

const FAR: u64 = 1_000_000_000;
/// How many tokens a client had in reserve.
const RESERVE: u64 = 256;

/// Takes a lock as such a client does, by the first token of a reserve that begins after the last
/// token, and ends here.
async fn took_by_set(server: &RedisServer, request: &AcquireRequest, end: u64) -> Verdict {
    let [holder, last, ..] = keys(request.name.as_str());
    let token = end - RESERVE + 1;
    server.command(&["SET", &last, &end.to_string(), "PX", "600000"]).await?.ok()?;
    let holds = format!("{}?{token}/{end} web-3", request.claim);
    server.command(&["SET", &holder, &holds, "NX", "PX", "180000"]).await?.ok().map(drop)
}

/// The mark of the claim that holds a lock, if one does.
async fn mark(server: &RedisServer, lock: &str) -> Result<Option<char>, Stop> {
    let holder = &keys(lock)[0];
    if server.command(&["EXISTS", holder]).await?.int()? == 0 {
        return Ok(None);
    }
    Ok(server.command(&["GET", holder]).await?.text()?.chars().nth(32))
}

#[test]
fn a_lock_that_a_former_client_holds_is_held_and_passed_on() {
    run(async {
        let server = start().await?;
        let client = connect(&server.url()).await?;
        for waits in [false, true] {
            let (held, waiting) = (exclusive("a"), exclusive("a"));
            let before = exclusive("a");
            let end = take(&client, &before).await? + RESERVE;
            free(&client, &before).await?;
            took_by_set(&server, &held, end).await?;
            let state = client.inspect(&held.name).await?;
            let seen: Vec<_> = state.holders.iter().map(|holder| holder.claim).collect();
            assert_eq!((seen, state.last_token), (vec![held.claim], FencingToken::new(end).ok()));
            assert_eq!(client.acquire(&attempt("a")).await?, Acquired::Busy);
            assert_eq!(mark(&server, "a").await?, Some('?'));
            if waits {
                queue(&client, &waiting).await?;
                assert_eq!(mark(&server, "a").await?, Some('&'), "its client has to look");
            }
            assert_eq!(renew(&client, std::slice::from_ref(&held)).await?, [Renewed::Kept]);
            // As a forced release does.
            assert_eq!(client.release(&held.as_claim()).await?, Released::Released);
            let next = match waits {
                true => granted(&client, &waiting).await?.token.get(),
                false => take(&client, &waiting).await?,
            };
            assert!(next > end, "{next} after {end}");
            free(&client, &waiting).await?;
        }
        Ok(())
    });
}

#[test]
fn a_former_clients_lock_is_proven_before_tokens_rise() {
    run(async {
        let server = start().await?;
        let client = connect(&server.url()).await?;
        for (lock, waits) in [("a", false), ("b", true)] {
            let (held, waiting) = (exclusive(lock), exclusive(lock));
            let end = FAR;
            took_by_set(&server, &held, end).await?;
            if waits {
                queue(&client, &waiting).await?;
            }
            client.raise_tokens(&held.name, FencingToken::new(end + FAR)?).await?;
            assert_eq!(mark(&server, lock).await?, Some(if waits { '!' } else { ':' }));
            let seen = client.inspect(&held.name).await?.holders;
            assert_eq!(seen.len(), 1);
            assert_eq!(seen[0].token.map(FencingToken::get), Some(end - RESERVE + 1));
            free(&client, &held).await?;
            let next = match waits {
                true => granted(&client, &waiting).await?.token.get(),
                false => take(&client, &waiting).await?,
            };
            assert!(next > end + FAR, "{next} after {end}");
            free(&client, &waiting).await?;
        }
        Ok(())
    });
}

/// Somebody was granted the lock since the reserve was made, so the client that took H has nothing.
#[test]
fn a_former_clients_void_lock_ends_with_a_raise_or_its_lease() {
    run(async {
        let server = start().await?;
        let client = connect(&server.url()).await?;
        for raised in [true, false] {
            let (before, late) = (exclusive("a"), exclusive("a"));
            let last = take(&client, &before).await?;
            free(&client, &before).await?;
            took_by_set(&server, &late, last - 1).await?;
            let shown = last.to_string();
            server.command(&["SET", &keys("a")[1], &shown, "PX", "600000"]).await?.ok()?;
            match raised {
                true => client.raise_tokens(&late.name, FencingToken::new(last + 1)?).await?,
                false => {
                    server.command(&["PEXPIRE", &keys("a")[0], "50"]).await?.ok()?;
                    tokio::time::sleep(millis(60)).await;
                }
            }
            until("it is gone", async || Ok(mark(&server, "a").await?.is_none())).await?;
            let next = exclusive("a");
            assert!(take(&client, &next).await? > last);
            free(&client, &next).await?;
        }
        Ok(())
    });
}

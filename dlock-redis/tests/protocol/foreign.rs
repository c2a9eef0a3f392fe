//! A key of another program under one lock of many costs no other lock anything.

use dlock_core::{AcquireRequest, DynBackend, Locks, Mode, Renewed};
use dlock_testlab::{Stop, Verdict, redis::RedisServer};
use futures_util::future::join_all;
use tokio::time::{sleep, timeout};

use crate::support::{
    SOON, ask, brief, connect, exclusive, free, granted, keys, millis, queue, renew, run, start,
    take, until,
};

const MANY: usize = 50;
/// Which of them is harmed.
const HARMED: usize = 17;

/// H, F, Q, W and R in the order of a name's keys.
const H: usize = 0;
const F: usize = 1;
const Q: usize = 2;
const W: usize = 3;
const R: usize = 4;

/// Puts a key of another type, or of none of dlock's values, in the place of one.
async fn harm(server: &RedisServer, name: &str, part: usize) -> Verdict {
    let key = &keys(name)[part];
    server.command(&["DEL", key]).await?.ok()?;
    match part {
        F => server.command(&["SET", key, "theirs"]).await?.ok()?,
        _ => server.command(&["RPUSH", key, "theirs"]).await?.ok()?,
    };
    Ok(())
}

async fn hold_many(client: &DynBackend, mode: Mode) -> Result<Vec<AcquireRequest>, Stop> {
    let mut held = Vec::new();
    for number in 0..MANY {
        let request = ask(&format!("lock {number}"), mode);
        take(client, &request).await?;
        held.push(request);
    }
    Ok(held)
}

/// Only the harmed one is lost.
async fn one_is_lost(mode: Mode, part: usize) -> Verdict {
    let server = start().await?;
    let client = connect(&server.url()).await?;
    let held = hold_many(&client, mode).await?;
    harm(&server, held[HARMED].name.as_str(), part).await?;
    for (at, renewed) in renew(&client, &held).await?.into_iter().enumerate() {
        let expected = if at == HARMED { Renewed::Lost } else { Renewed::Kept };
        assert_eq!(renewed, expected, "{mode:?} {part}: {at}");
    }
    Ok(())
}

#[test]
fn a_foreign_key_costs_only_one_of_many_held_locks() {
    run(one_is_lost(Mode::Exclusive, H));
}

#[test]
fn a_foreign_key_under_one_of_many_readers_costs_only_that_one() {
    run(async {
        for part in [H, F, W, R] {
            one_is_lost(Mode::Shared, part).await?;
        }
        one_is_lost(Mode::permits(2, 3)?, W).await
    });
}

#[test]
fn a_foreign_key_costs_only_one_of_many_waiting_claims() {
    run(async {
        for part in [F, Q, W] {
            let server = start().await?;
            let (one, two) = (connect(&server.url()).await?, connect(&server.url()).await?);
            let held = hold_many(&one, Mode::Exclusive).await?;
            let mut waiting = Vec::new();
            for held in &held {
                // It is asked about a few times in this test.
                let request = brief(held.name.as_str(), millis(1500));
                queue(&two, &request).await?;
                waiting.push(request);
            }
            harm(&server, held[HARMED].name.as_str(), part).await?;
            let waits = join_all(waiting.iter().map(|request| granted(&two, request)));
            let frees = async {
                // Past the leases of who waits.
                sleep(millis(2000)).await;
                for (at, held) in held.iter().enumerate() {
                    if at != HARMED {
                        free(&one, held).await?;
                    }
                }
                Ok::<_, Stop>(())
            };
            let (outcomes, freed) = tokio::join!(waits, frees);
            freed?;
            for (at, outcome) in outcomes.into_iter().enumerate() {
                match at {
                    HARMED => assert!(outcome.is_err(), "{outcome:?}"),
                    _ => free(&two, &waiting[at]).await.and(outcome.map(|_| ()))?,
                }
            }
        }
        Ok(())
    });
}

#[test]
fn locks_that_could_not_be_taken_together_are_not_held() {
    run(async {
        let server = start().await?;
        let locks = Locks::new(connect(&server.url()).await?)?;
        let other = connect(&server.url()).await?;
        for part in [H, F, Q, W, R] {
            harm(&server, "b", part).await?;
            let held = exclusive("b");
            if part == Q || part == W {
                // Those are looked at by who has to wait.
                take(&other, &held).await?;
                harm(&server, "b", part).await?;
            }
            let options = locks.options().with_wait(millis(200));
            let multi = locks.with_options(options)?.multi(["a", "b", "c"])?;
            let answer = timeout(SOON, multi.lock()).await?;
            // A key that nobody looks at is in nobody's way.
            match answer {
                Ok(guard) => guard.release().await.map(|_| ())?,
                Err(_) => assert_ne!(part, R),
            }
            for name in ["a", "c"] {
                until("nobody holds it", async || Ok(locks.inspect(name).await?.is_free())).await?;
                free_again(&other, name).await?;
            }
            server.command(&["FLUSHALL"]).await?.ok()?;
        }
        Ok(())
    });
}

async fn free_again(client: &DynBackend, name: &str) -> Verdict {
    let request = exclusive(name);
    take(client, &request).await?;
    free(client, &request).await
}

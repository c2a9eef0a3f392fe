//! A foreign key under one of many locks does not affect the other locks.

use dlock_core::{AcquireRequest, DynBackend, Locks, Mode, Renewed};
use dlock_testlab::{Stop, Verdict, redis::RedisServer};
use futures_util::future::join_all;
use tokio::time::{sleep, timeout};

use crate::support::{
    SOON, ask, brief, connect, exclusive, free, granted, keys, millis, queue, renew, run, start,
    take, until,
};

const MANY: usize = 50;
/// The index of the lock with the fault.
const DAMAGED: usize = 17;

/// The indices of a name's keys.
const HOLDER: usize = 0;
const TOKENS: usize = 1;
const QUEUE: usize = 2;
const WAITERS: usize = 3;
const READERS: usize = 4;

/// Replaces a key by one of another type, or with a foreign value.
async fn damage(server: &RedisServer, name: &str, part: usize) -> Verdict {
    let key = &keys(name)[part];
    server.command(&["DEL", key]).await?.ok()?;
    match part {
        TOKENS => server.command(&["SET", key, "theirs"]).await?.ok()?,
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

/// Only the lock with the foreign key is lost.
async fn one_is_lost(mode: Mode, part: usize) -> Verdict {
    let server = start().await?;
    let client = connect(&server.url()).await?;
    let held = hold_many(&client, mode).await?;
    damage(&server, held[DAMAGED].name.as_str(), part).await?;
    for (at, renewed) in renew(&client, &held).await?.into_iter().enumerate() {
        let expected = if at == DAMAGED { Renewed::Lost } else { Renewed::Kept };
        assert_eq!(renewed, expected, "{mode:?} {part}: {at}");
    }
    Ok(())
}

#[test]
fn a_foreign_key_affects_only_one_of_many_held_locks() {
    run(one_is_lost(Mode::Exclusive, HOLDER));
}

#[test]
fn a_foreign_key_affects_only_one_of_many_readers() {
    run(async {
        for part in [HOLDER, WAITERS, READERS] {
            one_is_lost(Mode::Shared, part).await?;
        }
        one_is_lost(Mode::permits(2, 3)?, WAITERS).await
    });
}

/// The names of a bucket share their tokens. Those who hold locks need none.
#[test]
fn a_foreign_key_of_the_tokens_ends_no_lock() {
    run(async {
        for mode in [Mode::Exclusive, Mode::Shared] {
            let server = start().await?;
            let client = connect(&server.url()).await?;
            let held = hold_many(&client, mode).await?;
            damage(&server, held[DAMAGED].name.as_str(), TOKENS).await?;
            assert!(renew(&client, &held).await?.iter().all(|answer| *answer == Renewed::Kept));
            for request in &held {
                free(&client, request).await?;
            }
        }
        Ok(())
    });
}

#[test]
fn a_foreign_key_affects_only_one_of_many_waiters() {
    run(async {
        for part in [QUEUE, WAITERS] {
            let server = start().await?;
            let (one, two) = (connect(&server.url()).await?, connect(&server.url()).await?);
            let held = hold_many(&one, Mode::Exclusive).await?;
            let mut waiting = Vec::new();
            for held in &held {
                // It polls a few times in this test.
                let request = brief(held.name.as_str(), millis(1500));
                queue(&two, &request).await?;
                waiting.push(request);
            }
            damage(&server, held[DAMAGED].name.as_str(), part).await?;
            let waits = join_all(waiting.iter().map(|request| granted(&two, request)));
            let frees = async {
                // The leases of the waiters have ended by then.
                sleep(millis(2000)).await;
                for (at, held) in held.iter().enumerate() {
                    if at != DAMAGED {
                        free(&one, held).await?;
                    }
                }
                Ok::<_, Stop>(())
            };
            let (outcomes, freed) = tokio::join!(waits, frees);
            freed?;
            for (at, outcome) in outcomes.into_iter().enumerate() {
                match at {
                    DAMAGED => assert!(outcome.is_err(), "{outcome:?}"),
                    _ => free(&two, &waiting[at]).await.and(outcome.map(|_| ()))?,
                }
            }
        }
        Ok(())
    });
}

#[test]
fn a_failed_multi_lock_holds_no_lock() {
    run(async {
        let server = start().await?;
        let locks = Locks::new(connect(&server.url()).await?)?;
        let other = connect(&server.url()).await?;
        for part in [HOLDER, TOKENS, QUEUE, WAITERS, READERS] {
            let held = exclusive("b");
            if part == QUEUE || part == WAITERS {
                // Claims that have to wait read these keys.
                take(&other, &held).await?;
            }
            damage(&server, "b", part).await?;
            let options = locks.options().with_wait(millis(200));
            let multi = locks.with_options(options)?.multi(["a", "b", "c"])?;
            let answer = timeout(SOON, multi.lock()).await?;
            // A foreign key that no script reads has no effect.
            match answer {
                Ok(guard) => guard.release().await.map(|_| ())?,
                Err(_) => assert_ne!(part, READERS),
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

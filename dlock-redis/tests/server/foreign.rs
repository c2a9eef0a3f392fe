//! Keys of other programs in place of a lock's keys.

use std::time::Duration;

use dlock_core::{AcquireRequest, DynBackend, Error, ErrorKind, Mode, Renewal, Renewed};
use dlock_testlab::{Stop, Verdict, redis::RedisServer};
use tokio::time::{sleep, timeout};

use crate::support::{
    KEYS_OF_A, SOON, ask, attempt, connect, exclusive, free, granted, queue, run, says, start,
    take, works, works_fully,
};

const REMEDY: &str = "delete it, or use another name or dlock.prefix";

/// Commands that make a key of each type.
const OTHERS: [&[&str]; 5] = [
    &["RPUSH", "", "theirs"],
    &["SADD", "", "theirs"],
    &["HSET", "", "their", "value"],
    &["ZADD", "", "1", "theirs"],
    &["SET", "", "hello"],
];

/// The request that meets the key.
#[derive(Clone, Copy, Debug)]
enum Way {
    /// One that takes a free lock.
    Take(Mode),
    /// One that does not wait for it.
    Try,
    /// One that takes a free lock that it has had before.
    Again,
    /// One that joins the queue.
    Wait,
}

/// The key as others see it: how it is stored, and when it ends.
async fn look(server: &RedisServer, key: &str) -> Result<String, Stop> {
    let dump = server.command(&["DUMP", key]).await?.ok()?;
    let end = server.command(&["PEXPIRETIME", key]).await?.ok()?;
    Ok(format!("{dump:?} {end:?}"))
}

/// With this key there, the lock says what is wrong and leaves everything as it was. It works once
/// the key is gone.
async fn in_the_way(server: &RedisServer, way: Way, key: &str, command: &[&str]) -> Verdict {
    let client = connect(&server.url()).await?;
    let held = exclusive("a");
    let request = match way {
        Way::Take(mode) => ask("a", mode),
        Way::Try => attempt("a"),
        Way::Again => {
            works(&client, "a").await?;
            exclusive("a")
        }
        Way::Wait => {
            take(&client, &held).await?;
            exclusive("a")
        }
    };
    let mut command = command.to_vec();
    command[1] = key;
    server.command(&["DEL", key]).await?.ok()?;
    server.command(&command).await?.ok()?;
    server.command(&["PEXPIRE", key, "500000"]).await?.ok()?;
    let (keys, before) = (server.keys("*").await?, look(server, key).await?);
    for _ in 0..2 {
        says(&fails(&client, &request).await?, ErrorKind::Protocol, REMEDY);
        assert_eq!(look(server, key).await?, before, "{way:?} {command:?}");
        assert_eq!(server.keys("*").await?, keys, "{way:?} {command:?}");
    }
    server.command(&["DEL", key]).await?.ok()?;
    if let Way::Wait = way {
        queue(&client, &request).await?;
        free(&client, &request).await?;
        return free(&client, &held).await;
    }
    take(&client, &request).await?;
    free(&client, &request).await
}

async fn fails(client: &DynBackend, request: &AcquireRequest) -> Result<Error, Stop> {
    match client.acquire(request).await {
        Err(error) => Ok(error),
        Ok(answer) => Err(Stop::failed(format!("{answer:?}"))),
    }
}

/// Keys of these types in the place of one of the five.
async fn all_in_the_way(way: Way, part: usize, others: &[&[&str]]) -> Verdict {
    let (server, client) = start().await?;
    for command in others {
        in_the_way(&server, way, KEYS_OF_A[part], command).await?;
        server.command(&["FLUSHALL"]).await?.ok()?;
    }
    works_fully(&client, &client, "a").await
}

const HOLDER: usize = 0;
const LAST_TOKEN: usize = 1;
const QUEUE: usize = 2;
const WAITERS: usize = 3;
const READERS: usize = 4;

/// Types that the queue and the readers do not have.
const NO_SETS: [&[&str]; 4] = [OTHERS[0], OTHERS[1], OTHERS[2], OTHERS[4]];
/// Types that the waiters' key does not have.
const NO_HASHES: [&[&str]; 4] = [OTHERS[0], OTHERS[1], OTHERS[3], OTHERS[4]];
/// Types that the holder and the last token do not have.
const NO_STRINGS: [&[&str]; 4] = [OTHERS[0], OTHERS[1], OTHERS[2], OTHERS[3]];

#[test]
fn a_foreign_holder_is_reported_and_left_unchanged() {
    run(async {
        let reader = Way::Take(Mode::Shared);
        for way in [Way::Take(Mode::Exclusive), Way::Try, Way::Again, reader] {
            all_in_the_way(way, HOLDER, &OTHERS).await?;
        }
        Ok(())
    })
}

#[test]
fn a_foreign_last_token_is_reported_and_left_unchanged() {
    run(async {
        all_in_the_way(Way::Take(Mode::Exclusive), LAST_TOKEN, &NO_STRINGS).await?;
        all_in_the_way(Way::Try, LAST_TOKEN, &NO_STRINGS).await?;
        all_in_the_way(Way::Wait, LAST_TOKEN, &OTHERS).await?;
        all_in_the_way(Way::Take(Mode::Shared), LAST_TOKEN, &OTHERS).await
    })
}

#[test]
fn a_foreign_queue_is_reported_and_left_unchanged() {
    run(async {
        all_in_the_way(Way::Wait, QUEUE, &NO_SETS).await?;
        all_in_the_way(Way::Take(Mode::Shared), READERS, &NO_SETS).await
    })
}

#[test]
fn a_string_instead_of_the_last_token_keeps_its_lifetime() {
    run(all_in_the_way(Way::Take(Mode::Exclusive), LAST_TOKEN, &OTHERS[4..]))
}

#[test]
fn an_acquire_leaves_nothing_beside_a_foreign_last_token() {
    run(all_in_the_way(Way::Again, LAST_TOKEN, &OTHERS))
}

#[test]
fn foreign_claims_are_reported_and_left_unchanged() {
    run(async {
        all_in_the_way(Way::Take(Mode::Shared), WAITERS, &NO_HASHES).await?;
        all_in_the_way(Way::Wait, WAITERS, &NO_HASHES).await
    })
}

/// The key of shared holders does not matter to exclusive claims.
#[test]
fn an_unrelated_foreign_key_keeps_its_lifetime() {
    run(async {
        let (server, client) = start().await?;
        let mut command = OTHERS[0].to_vec();
        command[1] = KEYS_OF_A[READERS];
        server.command(&command).await?.ok()?;
        let before = look(&server, KEYS_OF_A[READERS]).await?;
        take(&client, &exclusive("a")).await?;
        queue(&client, &exclusive("a")).await?;
        assert_eq!(look(&server, KEYS_OF_A[READERS]).await?, before);
        Ok(())
    })
}

#[test]
fn a_foreign_key_of_one_lock_does_not_lose_other_locks() {
    run(async {
        let (server, client) = start().await?;
        let held = [exclusive("a"), exclusive("b"), ask("c", Mode::Shared)];
        for request in &held {
            take(&client, request).await?;
        }
        for (part, kept) in [(HOLDER, false), (LAST_TOKEN, true)] {
            server.command(&["RENAME", KEYS_OF_A[part], "kept"]).await?.ok()?;
            server.command(&["RPUSH", KEYS_OF_A[part], "theirs"]).await?.ok()?;
            let renewals: Vec<_> =
                held.iter().map(|r| Renewal::new(r.as_claim(), r.mode, r.lease)).collect();
            let renewed = client.renew(&renewals).await?;
            assert_eq!(renewed[1..], [Renewed::Kept, Renewed::Kept]);
            assert_eq!(renewed[0] == Renewed::Kept, kept);
            server.command(&["RENAME", "kept", KEYS_OF_A[part]]).await?.ok()?;
        }
        for request in &held {
            free(&client, request).await?;
        }
        Ok(())
    })
}

#[test]
fn a_foreign_key_of_one_lock_does_not_block_other_waiters() {
    run(async {
        let (server, client) = start().await?;
        let other = connect(&server.url()).await?;
        let lease = Duration::from_secs(9);
        let (held, waiting): (Vec<_>, Vec<_>) = ["a", "b"]
            .map(|name| (exclusive(name), exclusive(name).with_lease(lease)))
            .into_iter()
            .unzip();
        for (held, waiting) in held.iter().zip(&waiting) {
            take(&client, held).await?;
            queue(&other, waiting).await?;
        }
        server.command(&["DEL", KEYS_OF_A[LAST_TOKEN]]).await?.ok()?;
        server.command(&["RPUSH", KEYS_OF_A[LAST_TOKEN], "theirs"]).await?.ok()?;
        let release = async {
            // Both are polled meanwhile.
            sleep(lease / 2).await;
            free(&client, &held[1]).await
        };
        let (first, second) = (other.granted(&waiting[0]), granted(&other, &waiting[1]));
        let (error, grant, released) = tokio::join!(timeout(SOON, first), second, release);
        released?;
        grant?;
        // The core retries, and gets the error then.
        let kind = error?.err().ok_or("granted")?.kind();
        assert!([ErrorKind::NotHeld, ErrorKind::Protocol].contains(&kind), "{kind:?}");
        free(&other, &waiting[1]).await
    })
}

#[test]
fn a_holder_without_expiry_is_shown_as_held_forever() {
    run(async {
        let (server, client) = start().await?;
        let held = exclusive("a");
        take(&client, &held).await?;
        server.command(&["PERSIST", KEYS_OF_A[0]]).await?.ok()?;
        let state = client.inspect(&held.name).await?;
        assert_eq!(state.holders[0].remaining, Duration::MAX);
        free(&client, &held).await
    });
}

//! Keys of other programs in place of a lock's keys, and unreadable records.

use std::time::Duration;

use dlock_core::{
    AcquireRequest, DynBackend, Error, ErrorKind, GuardState, LockOptions, Locks, Mode, Renewal,
    Renewed,
};
use dlock_testlab::{
    Stop, Verdict,
    redis::{Options, RedisMasters, RedisServer},
};
use tokio::time::{sleep, timeout};

use crate::support::{
    KEYS_OF_A, SOON, ask, attempt, connect, exclusive, free, granted, queue, run, says, start,
    take, until, works, works_fully,
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
    /// An acquire of a free lock.
    Take(Mode),
    /// A try.
    Try,
    /// An acquire of a free lock that the same client has held before.
    Again,
    /// An acquire that joins the queue.
    Wait,
}

/// Returns the serialized value of the key, and its expiry time.
async fn look(server: &RedisServer, key: &str) -> Result<String, Stop> {
    let dump = server.command(&["DUMP", key]).await?.ok()?;
    let end = server.command(&["PEXPIRETIME", key]).await?.ok()?;
    Ok(format!("{dump:?} {end:?}"))
}

/// Checks that requests fail with a remedy while the key exists, and change nothing, and that they
/// succeed once the key is deleted.
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
    // The tokens stay in any case.
    let all = async || server.keys("dlock:*:*").await;
    let (keys, before) = (all().await?, look(server, key).await?);
    for _ in 0..2 {
        says(&fails(&client, &request).await?, ErrorKind::Protocol, REMEDY);
        assert_eq!(look(server, key).await?, before, "{way:?} {command:?}");
        assert_eq!(all().await?, keys, "{way:?} {command:?}");
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

/// Runs the check with keys of these types in place of one of the five keys.
async fn all_in_the_way(way: Way, part: usize, others: &[&[&str]]) -> Verdict {
    let (server, client) = start().await?;
    for command in others {
        in_the_way(&server, way, KEYS_OF_A[part], command).await?;
        server.command(&["FLUSHALL"]).await?.ok()?;
    }
    works_fully(&client, &client, "a").await
}

const HOLDER: usize = 0;
const TOKENS: usize = 1;
const QUEUE: usize = 2;
const WAITERS: usize = 3;
const READERS: usize = 4;

/// Types that the queue and the readers do not have.
const NO_SETS: [&[&str]; 4] = [OTHERS[0], OTHERS[1], OTHERS[2], OTHERS[4]];
/// Types that the waiters' key does not have.
const NO_HASHES: [&[&str]; 4] = [OTHERS[0], OTHERS[1], OTHERS[3], OTHERS[4]];

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
fn a_foreign_key_of_the_tokens_is_reported_and_left_unchanged() {
    run(async {
        all_in_the_way(Way::Take(Mode::Exclusive), TOKENS, &OTHERS).await?;
        all_in_the_way(Way::Try, TOKENS, &OTHERS).await?;
        all_in_the_way(Way::Again, TOKENS, &OTHERS).await?;
        all_in_the_way(Way::Take(Mode::Shared), TOKENS, &OTHERS).await
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
        for (part, kept) in [(HOLDER, false), (TOKENS, true)] {
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
        server.command(&["DEL", KEYS_OF_A[QUEUE]]).await?.ok()?;
        server.command(&["RPUSH", KEYS_OF_A[QUEUE], "theirs"]).await?.ok()?;
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

const WAITERS_OF_A: &str = KEYS_OF_A[3];
const READERS_OF_A: &str = KEYS_OF_A[4];

/// Commands that damage a record of dlock; `CLAIM` stands for the id of the claim.
const DAMAGE: [&[&str]; 7] = [
    &["HSET", WAITERS_OF_A, "#", "theirs"],
    &["HSET", WAITERS_OF_A, "#", ""],
    &["HSET", WAITERS_OF_A, "CLAIM", "theirs"],
    &["HSET", WAITERS_OF_A, "CLAIM", "1:3:1:180000:0:"],
    &["HSET", WAITERS_OF_A, "CLAIM", "1:3:1:180000:99999999999999999999:"],
    &["HDEL", WAITERS_OF_A, "CLAIM"],
    &["ZADD", READERS_OF_A, "inf", "theirs"],
];

/// The number of these commands that also affect new claims.
const IN_THE_WAY: usize = 2;

async fn damage(server: &RedisServer, command: &[&str], request: &AcquireRequest) -> Verdict {
    let claim = request.claim.to_string();
    let words: Vec<_> = command.iter().map(|word| word.replace("CLAIM", &claim)).collect();
    server.command(&words.iter().map(String::as_str).collect::<Vec<_>>()).await?.ok()?;
    Ok(())
}

async fn renew_all(client: &DynBackend, held: &[AcquireRequest]) -> Result<Vec<Renewed>, Error> {
    let renewals: Vec<_> =
        held.iter().map(|r| Renewal::new(r.as_claim(), r.mode, r.lease)).collect();
    client.renew(&renewals).await
}

#[test]
fn an_unreadable_reader_record_loses_no_other_holder() {
    run(async {
        for (at, command) in DAMAGE.into_iter().enumerate() {
            let (server, client) = start().await?;
            let modes = [Mode::Shared, Mode::Shared, Mode::permits(2, 3)?, Mode::Exclusive];
            let names = ["b", "a", "c", "d"];
            let held: Vec<_> =
                names.iter().zip(modes).map(|(name, mode)| ask(name, mode)).collect();
            for request in &held {
                take(&client, request).await?;
            }
            damage(&server, command, &held[1]).await?;
            for _ in 0..2 {
                let renewed = renew_all(&client, &held).await?;
                for other in [0, 2, 3] {
                    assert_eq!(renewed[other], Renewed::Kept, "{command:?}: {renewed:?}");
                }
            }
            if at < IN_THE_WAY {
                let error = client.acquire(&ask("a", Mode::Shared)).await.err().ok_or("granted")?;
                says(&error, ErrorKind::Protocol, "something that is not dlock's");
            }
            for other in [0, 2, 3] {
                free(&client, &held[other]).await?;
            }
        }
        Ok(())
    });
}

#[test]
fn an_unreadable_waiter_record_ends_no_other_wait() {
    run(async {
        let of_h: &[&str] = &["SET", KEYS_OF_A[0], "CLAIM:0", "PX", "180000"];
        for command in DAMAGE[..3].iter().copied().chain([of_h]) {
            let (server, client) = start().await?;
            let other = connect(&server.url()).await?;
            // Readers hold it, so that their count is read.
            let (damaged, good) = (ask("a", Mode::Shared), exclusive("b"));
            take(&client, &damaged).await?;
            take(&client, &good).await?;
            // Both are polled at the same time, with one command.
            let lease = Duration::from_secs(60);
            let waits = ["a", "b"].map(|name| exclusive(name).with_lease(lease));
            for request in &waits {
                queue(&other, request).await?;
            }
            damage(&server, command, &waits[0]).await?;
            let refused = async {
                // A poll reports that the claim's position is lost.
                let error = other.granted(&waits[0]).await.err().ok_or("granted")?;
                let kinds = [ErrorKind::NotHeld, ErrorKind::Protocol];
                assert!(kinds.contains(&error.kind()), "{command:?}: {error:?}");
                free(&client, &good).await
            };
            let (refused, grant) = tokio::join!(refused, granted(&other, &waits[1]));
            refused?;
            grant.map_err(|error| Stop::failed(format!("{command:?}: {error:?}")))?;
            free(&other, &waits[1]).await?;
        }
        Ok(())
    });
}

#[test]
fn a_quorum_renews_other_locks_beside_an_unknown_one() {
    run(async {
        let masters = RedisMasters::start(3, &Options::new()).await?;
        let client = connect(&format!("{}?dlock.restart_guard=0s", masters.url())).await?;
        let lease = Duration::from_secs(30);
        let locks = Locks::new(client.clone())?;
        let locks = locks.with_options(LockOptions::new().with_lease(lease))?;
        let (damaged, good) = (locks.mutex("a")?.lock().await?, locks.mutex("b")?.lock().await?);
        let held = [exclusive("x"), exclusive("y")];
        for request in &held {
            take(&client, request).await?;
        }
        for master in masters.servers() {
            until("each master has heard of all", async || {
                Ok(master.keys("dlock:*").await?.len() == 8)
            })
            .await?;
        }
        // One master has lost one lock, and another one is unreachable, so only one of three
        // confirms it.
        for key in masters.servers()[0].keys("dlock:*").await? {
            if key.ends_with(":a") || key.ends_with(":x") {
                masters.servers()[0].command(&["DEL", &key]).await?.ok()?;
            }
        }
        masters.servers()[2].kill();
        assert_eq!(renew_all(&client, &held).await?, [Renewed::Unknown, Renewed::Kept]);
        let error = renew_all(&client, &held[..1]).await.err().ok_or("it is known")?;
        says(&error, ErrorKind::Unavailable, "masters do not answer");
        until("one lock is in doubt", async || Ok(damaged.state() == GuardState::Doubtful)).await?;
        assert_ne!(good.state(), GuardState::Lost);
        Ok(())
    });
}

//! An unreadable record does not affect locks of other names.

use std::time::Duration;

use dlock_core::{
    AcquireRequest, DynBackend, Error, ErrorKind, GuardState, LockOptions, Locks, Mode, Renewal,
    Renewed,
};
use dlock_testlab::{
    Stop, Verdict,
    redis::{Options, RedisMasters, RedisServer},
};

use crate::support::{
    KEYS_OF_A, ask, connect, exclusive, free, granted, queue, run, says, start, take, until,
};

const WAITERS: &str = KEYS_OF_A[3];
const READERS: &str = KEYS_OF_A[4];

/// Commands that damage a record of dlock; `CLAIM` stands for the id of the claim.
const DAMAGE: [&[&str]; 7] = [
    &["HSET", WAITERS, "#", "theirs"],
    &["HSET", WAITERS, "#", ""],
    &["HSET", WAITERS, "CLAIM", "theirs"],
    &["HSET", WAITERS, "CLAIM", "1:3:1:180000:0:"],
    &["HSET", WAITERS, "CLAIM", "1:3:1:180000:99999999999999999999:"],
    &["HDEL", WAITERS, "CLAIM"],
    &["ZADD", READERS, "inf", "theirs"],
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
                // A poll reports that its position is lost.
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
        // One master has lost one lock, another is unreachable, so one of three says yes.
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
        assert_eq!(good.state(), GuardState::Held);
        Ok(())
    });
}

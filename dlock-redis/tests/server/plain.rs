//! The plain form: together with programs that use the same protocol without dlock, the requests
//! that it refuses, and foreign keys.

use std::time::Duration;

use dlock_core::{
    Certainty, ConfigIssue, DynBackend, Error, ErrorKind, Fairness, Fencing, LockOptions, Locks,
    Mode, Note, Owner, Permits, Prefixed, Released, Renewal, Renewed, WakeUp,
};
use dlock_testlab::{
    Stop,
    redis::{Options, RedisServer, Reply},
};
use tokio::time::sleep;

use crate::support::{
    LEASE, ask, attempt, connect, exclusive, free, granted, queue, renew, run, says, take, until,
    works,
};

/// The release of other programs.
const RELEASE: &str =
    "if redis.call('GET',KEYS[1])==ARGV[1] then return redis.call('DEL',KEYS[1]) else return 0 end";

async fn start() -> Result<(RedisServer, DynBackend), Stop> {
    let server = RedisServer::start(&Options::new()).await?;
    let client = connect(&plain(&server)).await?;
    Ok((server, client))
}

fn plain(server: &RedisServer) -> String {
    format!("{}?dlock.plain=true", server.url())
}

/// The acquire of other programs. Returns whether they have the lock.
async fn theirs(server: &RedisServer, name: &str, millis: &str) -> Result<bool, Stop> {
    let reply = server.command(&["SET", name, "theirs", "NX", "PX", millis]).await?.ok()?;
    Ok(reply != Reply::Bulk(None))
}

#[test]
fn a_holder_excludes_others() {
    run(async {
        let (server, client) = start().await?;
        let note = Some(Note::new("web-3")?);
        let held = exclusive("a").with_note(note);
        take(&client, &held).await?;
        // The note is not stored.
        assert_eq!(client.inspect(&held.name).await?.holders[0].note, None);
        assert_eq!(server.keys("*").await?, ["a"]);
        assert_eq!(server.command(&["GET", "a"]).await?.text()?, held.claim.to_string());
        let left = server.command(&["PTTL", "a"]).await?.int()?;
        assert!((1..=1 + i64::try_from(LEASE.as_millis())?).contains(&left), "{left}");
        assert!(!theirs(&server, "a", "1000").await?);
        free(&client, &held).await?;
        assert!(server.keys("*").await?.is_empty());

        assert!(theirs(&server, "a", "900000").await?);
        assert_eq!(client.acquire(&attempt("a")).await?, dlock_core::Acquired::Busy);
        let state = client.inspect(&held.name).await?;
        assert_eq!(state.holders.len(), 1);
        assert!(state.holders[0].remaining > LEASE, "{state:?}");
        let gone = server.command(&["EVAL", RELEASE, "1", "a", "theirs"]).await?.int()?;
        assert_eq!(gone, 1);
        assert!(client.inspect(&held.name).await?.is_free());
        works(&client, "a").await
    })
}

#[test]
fn a_release_or_renewal_changes_only_its_own_value() {
    run(async {
        let (server, client) = start().await?;
        let held = exclusive("a");
        take(&client, &held).await?;
        server.command(&["SET", "a", "theirs", "PX", "30000"]).await?.ok()?;
        let renewal = Renewal::new(held.as_claim(), held.mode, 10 * LEASE);
        assert_eq!(client.renew(&[renewal]).await?, [Renewed::Lost]);
        assert_eq!(client.release(&held.as_claim()).await?, Released::AlreadyLost);
        assert_eq!(server.command(&["GET", "a"]).await?.text()?, "theirs");
        assert!(server.command(&["PTTL", "a"]).await?.int()? <= 30_000);
        // The reverse: dlock holds the lock.
        server.command(&["DEL", "a"]).await?.ok()?;
        take(&client, &held).await?;
        let theirs = server.command(&["EVAL", RELEASE, "1", "a", "theirs"]).await?.int()?;
        assert_eq!(theirs, 0);
        free(&client, &held).await
    })
}

#[test]
fn renewals_extend_every_held_lock() {
    run(async {
        let (_server, client) = start().await?;
        // On a busy machine, the first lease may have ended when the last lock is acquired.
        let lease = Duration::from_secs(5);
        let held: Vec<_> = (0..700).map(|n| exclusive(&n.to_string()).with_lease(lease)).collect();
        for request in &held {
            take(&client, request).await?;
        }
        let renewals: Vec<_> =
            held.iter().map(|r| Renewal::new(r.as_claim(), r.mode, LEASE)).collect();
        let renewed = client.renew(&renewals).await?;
        let kept = renewed.iter().filter(|answer| **answer == Renewed::Kept).count();
        sleep(lease).await;
        let again = client.renew(&renewals).await?;
        assert_eq!(renewed, again);
        assert!(kept > 0, "none of them is kept");
        Ok(())
    })
}

#[test]
fn a_waiter_polls_until_the_lock_is_free() {
    run(async {
        let (server, client) = start().await?;
        // One that is released, and one whose lease ends.
        for back in [true, false] {
            assert!(theirs(&server, "a", "900000").await?);
            let waiting = exclusive("a");
            queue(&client, &waiting).await?;
            let release = async {
                sleep(Duration::from_millis(100)).await;
                match back {
                    true => server.command(&["EVAL", RELEASE, "1", "a", "theirs"]).await?.ok()?,
                    false => server.command(&["PEXPIRE", "a", "200"]).await?.ok()?,
                };
                Ok::<_, Stop>(())
            };
            let (grant, released) = tokio::join!(granted(&client, &waiting), release);
            released?;
            grant?;
            free(&client, &waiting).await?;
        }
        Ok(())
    })
}

#[test]
fn a_repeated_acquire_is_the_same_hold() {
    run(async {
        let (_server, client) = start().await?;
        let held = exclusive("a");
        take(&client, &held).await?;
        take(&client, &held).await?;
        free(&client, &held).await?;
        assert_eq!(client.release(&held.as_claim()).await?, Released::AlreadyLost);
        Ok(())
    })
}

#[test]
fn mutexes_are_renewed_handed_off_and_combined() {
    run(async {
        let (server, client) = start().await?;
        let options = LockOptions::new().with_lease(Duration::from_secs(2));
        let locks = Locks::new(client)?.with_options(options)?;
        let guard = locks.mutex("a")?.lock().await?;
        sleep(options.lease() * 5 / 4).await;
        assert!(!theirs(&server, "a", "1").await?);
        guard.release().await?;
        let both = locks.multi(["b", "a"])?.lock().await?;
        assert_eq!(server.keys("*").await?, ["a", "b"]);
        both.release().await?;
        let entry = locks.reentrant("c")?.lock_as(&Owner::new()).await?;
        entry.release().await?;
        assert!(server.keys("*").await?.is_empty());
        Ok(())
    })
}

#[test]
fn a_prefix_precedes_the_key() {
    run(async {
        let (server, client) = start().await?;
        let locks = Locks::new(Prefixed::new(client, "app:")?)?;
        let guard = locks.mutex("{a} b")?.lock().await?;
        assert_eq!(server.keys("*").await?, ["app:{a} b"]);
        guard.release().await?;
        Ok(())
    })
}

#[test]
fn the_plain_form_guarantees_little_and_refuses_other_kinds() {
    run(async {
        let (server, client) = start().await?;
        let given = client.guarantees();
        assert_eq!(given.fencing, Fencing::None);
        assert_eq!(given.fairness, Fairness::None);
        assert_eq!(given.wake_up, WakeUp::Poll);
        assert_eq!(given.permits, Permits::Refused);
        let locks = Locks::new(client.clone())?;
        let unsupported = ErrorKind::Unsupported;
        says(&locks.fair("a").err().ok_or("a fair lock")?, unsupported, "use a mutex");
        says(&locks.semaphore("a", 2).err().ok_or("a semaphore")?, unsupported, "permits");
        let rw = locks.rw("a")?;
        says(&rw.read().lock().await.err().ok_or("a reader")?, unsupported, "dlock.plain");
        for mode in [Mode::Shared, Mode::permits(1, 2)?] {
            let error = client.acquire(&ask("a", mode)).await.err().ok_or("not exclusive")?;
            says(&error, unsupported, "dlock.plain");
            assert_eq!(error.certainty(), Certainty::NotApplied);
        }
        assert!(server.keys("*").await?.is_empty());
        Ok(())
    })
}

#[test]
fn a_key_that_is_no_lock_is_reported_and_left_unchanged() {
    run(async {
        let (server, client) = start().await?;
        server.command(&["RPUSH", "a", "theirs"]).await?.ok()?;
        let remedy = "delete it, or use another name";
        let request = exclusive("a");
        let verbs: [(&str, Result<(), Error>); 3] = [
            ("acquire", client.acquire(&request).await.map(|_| ())),
            ("release", client.release(&request.as_claim()).await.map(|_| ())),
            ("inspect", client.inspect(&request.name).await.map(|_| ())),
        ];
        for (verb, answer) in verbs {
            says(&answer.err().ok_or(verb)?, ErrorKind::Protocol, remedy);
        }
        assert_eq!(server.command(&["LLEN", "a"]).await?.int()?, 1);
        server.command(&["DEL", "a"]).await?.ok()?;
        works(&client, "a").await
    })
}

#[test]
fn a_key_without_expiry_is_held_forever() {
    run(async {
        let (server, client) = start().await?;
        server.command(&["SET", "a", "theirs"]).await?.ok()?;
        assert_eq!(client.acquire(&attempt("a")).await?, dlock_core::Acquired::Busy);
        let state = client.inspect(&exclusive("a").name).await?;
        assert_eq!(state.holders[0].remaining, Duration::MAX);
        renew(&client, &exclusive("a")).await.err().ok_or("not ours")?;
        Ok(())
    })
}

#[test]
fn a_full_server_grants_nothing_and_accepts_releases() {
    run(async {
        let (server, client) = start().await?;
        let held = exclusive("a");
        take(&client, &held).await?;
        server.command(&["CONFIG", "SET", "maxmemory", "1"]).await?.ok()?;
        let error = client.acquire(&attempt("b")).await.err().ok_or("granted")?;
        says(&error, ErrorKind::Unavailable, "maxmemory");
        assert_eq!(error.certainty(), Certainty::NotApplied);
        renew(&client, &held).await?;
        free(&client, &held).await?;
        assert!(server.keys("*").await?.is_empty());
        Ok(())
    })
}

#[test]
fn lost_rights_are_reported_and_nothing_is_held() {
    run(async {
        let (server, _) = start().await?;
        for without in ["-set", "-time"] {
            let user = ["ACL", "SETUSER", "joe", "reset", "on", ">p", "~*", "+@all"];
            server.command(&user).await?.ok()?;
            let url = format!("redis://joe:p@{}?dlock.plain=true", server.address());
            let locks = Locks::new(connect(&url).await?)?;
            server.command(&["ACL", "SETUSER", "joe", without]).await?.ok()?;
            let error = locks.mutex("a")?.lock().await.err().ok_or(without)?;
            says(&error, ErrorKind::Config(ConfigIssue::Access), "lacks rights");
            until("nobody holds it", async || Ok(server.keys("*").await?.is_empty())).await?;
        }
        Ok(())
    })
}

//! Requests that the plain form refuses, and foreign keys in its way.

use std::time::Duration;

use dlock_core::{
    Certainty, ConfigIssue, ErrorKind, Fairness, Fencing, Locks, Mode, Permits, WakeUp,
};

use crate::{
    plain::start,
    support::{ask, attempt, connect, exclusive, free, renew, run, says, take, until, works},
};

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
        let verbs: [(&str, Answer); 3] = [
            ("acquire", client.acquire(&request).await.map(|_| ())),
            ("release", client.release(&request.as_claim()).await.map(|_| ())),
            ("inspect", client.inspect(&request.name).await.map(|_| ())),
        ];
        for (verb, answer) in verbs {
            let error = answer.err().ok_or(verb)?;
            says(&error, ErrorKind::Protocol, remedy);
            assert_eq!(error.operation(), Some(verb));
        }
        assert_eq!(server.command(&["LLEN", "a"]).await?.int()?, 1);
        server.command(&["DEL", "a"]).await?.ok()?;
        works(&client, "a").await
    })
}

type Answer = Result<(), dlock_core::Error>;

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

//! The plain table schemes.

#![expect(clippy::unwrap_used, reason = "each case is the body of two tests")]

use std::{
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use dlock_core::{ConfigIssue, ErrorKind, GuardState, LockOptions, Released, Renew};
use dlock_testkit::{Stop, Verdict};
use tokio::{task::JoinSet, time::sleep};

use crate::support::{LEASE, SHORT, Server, locks, noted_locks, run};

const ROW: &str = "dlock.plain=row";
const VERSION: &str = "dlock.plain=version";

/// Each case on both servers, in both schemes or in one.
macro_rules! on_both {
    ($($name:ident: $($scheme:ident)+;)+) => {
        mod postgres {
            $(#[test] fn $name() {
                super::run("postgres", async {
                    $(super::$name(super::Server::postgres().await?, super::$scheme).await?;)+
                    Ok(())
                });
            })+
        }
        mod mysql {
            $(#[test] fn $name() {
                super::run("mysql", async {
                    $(super::$name(super::Server::mysql().await?, super::$scheme).await?;)+
                    Ok(())
                });
            })+
        }
    };
}

on_both! {
    a_lock_is_a_row_that_others_can_read: ROW VERSION;
    a_row_of_another_program_is_respected_until_its_lease_ends: ROW VERSION;
    many_clients_never_overlap: ROW VERSION;
    a_held_lock_is_renewed_and_a_removed_row_is_a_loss: ROW VERSION;
    versions_are_tokens_and_stay: VERSION;
    only_the_mutex_is_served: ROW VERSION;
    names_are_exact: ROW VERSION;
    lost_connections_are_made_again: ROW VERSION;
}

mod guarantees {
    use dlock_core::{Exclusion, Fencing, FencingToken};

    use super::*;

    async fn promised(server: &Server, options: &str) -> Result<(Exclusion, Fencing), Stop> {
        let given = locks(&server.url(options), LEASE).await?.guarantees();
        Ok((given.exclusion, given.fencing))
    }

    const KEPT: (Exclusion, Fencing) = (Exclusion::Restart, Fencing::Durable);
    const LOST: (Exclusion, Fencing) = (Exclusion::Nothing, Fencing::Volatile);

    #[test]
    fn versions_promise_no_more_than_postgres_keeps() {
        run("postgres", async {
            let server = Server::durable_postgres().await?;
            assert_eq!(promised(&server, VERSION).await?, KEPT);
            let relaxed = "dlock.plain=version&dlock.durability=relaxed";
            assert_eq!(promised(&server, relaxed).await?, LOST);
            server.query("ALTER TABLE dlock_plain SET UNLOGGED").await?;
            assert_eq!(promised(&server, VERSION).await?, LOST);
            // It does not sync.
            assert_eq!(promised(&Server::postgres().await?, VERSION).await?, LOST);
            Ok(())
        });
    }

    async fn ends_with_the_last_version(server: Server) -> Verdict {
        let lock = locks(&server.url(VERSION), LEASE).await?.mutex("a")?;
        lock.lock().await?.release().await?;
        server.query("UPDATE dlock_plain SET version = 9223372036854775806").await?;
        let last = lock.lock().await?;
        assert_eq!(last.token(), FencingToken::MAX);
        last.release().await?;
        for _ in 0..2 {
            let error = lock.try_lock().await.err().ok_or_else(|| Stop::failed("granted"))?;
            assert_eq!(error.kind(), ErrorKind::Config(ConfigIssue::Token), "{error}");
        }
        Ok(())
    }

    #[test]
    fn last_version_is_granted_only_once() {
        run("postgres", async { ends_with_the_last_version(Server::postgres().await?).await });
        run("mysql", async { ends_with_the_last_version(Server::mysql().await?).await });
    }

    #[test]
    fn a_name_that_is_not_text_is_left_out_of_the_list() {
        run("mysql", async {
            let server = Server::mysql().await?;
            let client = locks(&server.url(VERSION), LEASE).await?;
            let _held = client.mutex("é")?.lock().await?;
            let bad = "(X'62FF', 'cron', 'held', 1, 9000000000000000)";
            server.query(&format!("INSERT INTO dlock_plain VALUES {bad}")).await?;
            let listed = client.list("", 9).await?;
            assert_eq!(listed.iter().map(|name| name.as_str()).collect::<Vec<_>>(), ["é"]);
            Ok(())
        });
    }

    #[test]
    fn versions_promise_no_more_than_mysql_keeps() {
        run("mysql", async {
            assert_eq!(promised(&Server::durable_mysql().await?, VERSION).await?, KEPT);
            assert_eq!(promised(&Server::mysql().await?, VERSION).await?, LOST);
            Ok(())
        });
    }
}

async fn row(server: &Server, name: &str) -> Result<Option<Vec<String>>, Stop> {
    let columns = format!("holder, state, version, expiry - {}", server.now());
    let select = format!("SELECT {columns} FROM dlock_plain WHERE name = '{name}'");
    Ok(server.query(&select).await?.pop())
}

async fn a_lock_is_a_row_that_others_can_read(server: Server, scheme: &str) -> Verdict {
    let client = noted_locks(&server.url(scheme), LEASE).await?;
    let lock = client.mutex("job")?;
    let guard = lock.lock().await?;
    let seen = row(&server, "job").await?.ok_or_else(|| Stop::failed("no row"))?;
    assert_eq!(seen[0].len(), 32, "the claim: {seen:?}");
    assert_eq!(&seen[1..3], ["held", "1"]);
    let left: i64 = seen[3].parse()?;
    assert!((25_000_000..=30_000_001).contains(&left), "{seen:?}");
    let state = client.inspect("job").await?;
    assert_eq!(state.holders[0].claim.to_string(), seen[0]);
    assert_eq!(state.holders[0].note, None, "there is no place for it");

    assert!(locks(&server.url(scheme), LEASE).await?.mutex("job")?.try_lock().await?.is_none());
    assert_eq!(guard.release().await?, Released::Released);
    let after = row(&server, "job").await?;
    match scheme {
        ROW => assert_eq!(after, None),
        _ => assert_eq!(after.map(|row| row[1].clone()), Some("free".to_owned())),
    }
    assert!(client.inspect("job").await?.holders.is_empty());
    Ok(())
}

async fn a_row_of_another_program_is_respected_until_its_lease_ends(
    server: Server,
    scheme: &str,
) -> Verdict {
    let client = locks(&server.url(scheme), LEASE).await?;
    let insert = format!(
        "INSERT INTO dlock_plain (name, holder, state, version, expiry) \
         VALUES ('job', 'cron@web1', 'held', 41, {} + 1500000)",
        server.now()
    );
    server.query(&insert).await?;
    assert!(client.mutex("job")?.try_lock().await?.is_none());
    assert_eq!(client.inspect("job").await?.holders.len(), 1);
    // And then it is taken, although nobody gave it back.
    let guard = client.mutex("job")?.lock().await?;
    if scheme == VERSION {
        assert_eq!(guard.token().get(), 42);
    }
    // The late release of the other program finds nothing of its own.
    server.query("DELETE FROM dlock_plain WHERE name = 'job' AND holder = 'cron@web1'").await?;
    guard.release().await?;
    Ok(())
}

async fn many_clients_never_overlap(server: Server, scheme: &str) -> Verdict {
    const CLIENTS: usize = 6;
    const ROUNDS: usize = 15;
    let inside = Arc::new(AtomicU64::new(0));
    let mut tasks: JoinSet<Result<(), Stop>> = JoinSet::new();
    for _ in 0..CLIENTS {
        let lock = locks(&server.url(scheme), LEASE).await?.mutex("hot")?;
        let inside = Arc::clone(&inside);
        tasks.spawn(async move {
            for _ in 0..ROUNDS {
                let guard = lock.lock().await?;
                assert_eq!(inside.fetch_add(1, Ordering::SeqCst), 0, "two are inside");
                sleep(Duration::from_millis(1)).await;
                inside.fetch_sub(1, Ordering::SeqCst);
                guard.release().await?;
            }
            Ok(())
        });
    }
    while let Some(done) = tasks.join_next().await {
        done??;
    }
    Ok(())
}

async fn a_held_lock_is_renewed_and_a_removed_row_is_a_loss(
    server: Server,
    scheme: &str,
) -> Verdict {
    let client = locks(&server.url(scheme), SHORT).await?;
    let guard = client.mutex("job")?.lock().await?;
    sleep(SHORT * 2).await;
    assert_eq!(guard.state(), GuardState::Held);
    server.query("DELETE FROM dlock_plain").await?;
    guard.lost().await;
    assert_eq!(guard.release().await?, Released::AlreadyLost);

    let forgets = LockOptions::new().with_lease(SHORT).with_renew(Renew::Never);
    let _left = client.with_options(forgets)?.mutex("left")?.lock().await?;
    let other = locks(&server.url(scheme), SHORT).await?;
    other.mutex("left")?.lock().await?.release().await?;
    Ok(())
}

async fn versions_are_tokens_and_stay(server: Server, scheme: &str) -> Verdict {
    let mut last = 0;
    for _ in 0..3 {
        let client = locks(&server.url(scheme), LEASE).await?;
        for _ in 0..5 {
            let guard = client.mutex("job")?.lock().await?;
            assert_eq!(guard.token().get(), last + 1);
            last += 1;
            guard.release().await?;
        }
    }
    Ok(())
}

async fn only_the_mutex_is_served(server: Server, scheme: &str) -> Verdict {
    let client = locks(&server.url(scheme), LEASE).await?;
    assert!(client.fair("x").is_err());
    assert!(client.semaphore("x", 2).is_err());
    let error = client.rw("x")?.read().lock().await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unsupported, "{error}");
    assert!(error.to_string().contains("dlock.plain"), "{error}");

    let mistake = locks(&server.url("dlock.plain=insert"), LEASE).await.unwrap_err();
    assert_eq!(mistake.kind(), ErrorKind::Config(ConfigIssue::OptionValue), "{mistake}");
    let bare = server.url(scheme).replace("dlock.create_schema=true&", "");
    server.query("DROP TABLE dlock_plain").await?;
    let missing = locks(&bare, LEASE).await.unwrap_err();
    assert_eq!(missing.kind(), ErrorKind::Config(ConfigIssue::SchemaMissing), "{missing}");
    Ok(())
}

async fn names_are_exact(server: Server, scheme: &str) -> Verdict {
    let client = locks(&server.url(scheme), LEASE).await?;
    let mut held = Vec::new();
    for name in ["a", "A", "ä", "a\u{308}", "a'b", "a\\", "\"a\""] {
        held.push(
            client.mutex(name)?.try_lock().await?.ok_or_else(|| {
                Stop::failed(format!("{name:?} is the same as one of those before"))
            })?,
        );
    }
    Ok(())
}

async fn lost_connections_are_made_again(server: Server, scheme: &str) -> Verdict {
    let client = locks(&server.url(scheme), LEASE).await?;
    let guard = client.mutex("job")?.lock().await?;
    server.end_sessions().await?;
    assert_eq!(guard.release().await?, Released::Released);
    server.end_sessions().await?;
    client.mutex("job")?.lock().await?.release().await?;
    Ok(())
}

//! PostgreSQL's advisory locks.

use std::{
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use dlock_core::{ConfigIssue, ErrorKind, GuardState, LockOptions, Released, Renew};
use dlock_testlab::{Stop, postgres::PgBouncer};
use tokio::{task::JoinSet, time::sleep};

use crate::support::{LEASE, SHORT, Server, locks, noted_locks, run};

const ADVISORY: &str = "dlock.advisory=true";
/// The key of the name "a".
const KEY_OF_A: i64 = -3_883_536_647_512_444_663;

/// How many advisory locks the server knows.
async fn held(server: &Server) -> Result<String, Stop> {
    let rows = server.query("SELECT count(*) FROM pg_locks WHERE locktype = 'advisory'").await?;
    Ok(rows[0][0].clone())
}

#[test]
fn many_locks_are_on_one_connection_and_others_see_them() {
    run("postgres", async {
        let server = Server::postgres().await?;
        let (client, other) = (
            noted_locks(&server.url(ADVISORY), LEASE).await?,
            locks(&server.url(ADVISORY), LEASE).await?,
        );
        let a = client.mutex("a")?.lock().await?;
        let b = client.mutex("b")?.lock().await?;
        assert_eq!(held(&server).await?, "2");
        let pids = "SELECT count(DISTINCT pid) FROM pg_locks WHERE locktype = 'advisory'";
        assert_eq!(server.query(pids).await?[0][0], "1");
        assert!(other.mutex("a")?.try_lock().await?.is_none());
        // Of the same client, too, although the session would be let in.
        assert!(client.mutex("a")?.try_lock().await?.is_none());
        let seen = other.inspect("a").await?.holders;
        assert_eq!(seen.len(), 1);
        assert_eq!(seen[0].note, None, "there is no place for it");
        assert_eq!(client.inspect("a").await?.holders[0].token, Some(a.token()));

        assert_eq!(a.release().await?, Released::Released);
        let again = other.mutex("a")?.lock().await?;
        assert!(again.token().get() > b.token().get(), "by the clock");
        drop((again, b));
        Ok(())
    });
}

#[test]
fn another_program_shares_the_lock_by_sql() {
    run("postgres", async {
        let server = Server::postgres().await?;
        let client = locks(&server.url(ADVISORY), LEASE).await?;
        let guard = client.mutex("a")?.lock().await?;
        let taken = server.query(&format!("SELECT pg_try_advisory_lock({KEY_OF_A})")).await?;
        assert_eq!(taken[0][0], "f");
        guard.release().await?;
        let taken = server.query(&format!("SELECT pg_try_advisory_lock({KEY_OF_A})")).await?;
        assert_eq!(taken[0][0], "t");
        Ok(())
    });
}

#[test]
fn tokens_grow_and_holders_never_overlap() {
    run("postgres", async {
        let server = Server::postgres().await?;
        let (inside, last) = (Arc::new(AtomicU64::new(0)), Arc::new(AtomicU64::new(0)));
        let mut tasks: JoinSet<Result<(), Stop>> = JoinSet::new();
        for _ in 0..6 {
            let lock = locks(&server.url(ADVISORY), LEASE).await?.mutex("hot")?;
            let (inside, last) = (Arc::clone(&inside), Arc::clone(&last));
            tasks.spawn(async move {
                for _ in 0..15 {
                    let guard = lock.lock().await?;
                    assert_eq!(inside.fetch_add(1, Ordering::SeqCst), 0, "two are inside");
                    let token = guard.token().get();
                    assert!(last.swap(token, Ordering::SeqCst) < token, "tokens grow");
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
    });
}

#[test]
fn a_lost_connection_loses_all_its_locks() {
    run("postgres", async {
        let server = Server::postgres().await?;
        let client = locks(&server.url(ADVISORY), SHORT).await?;
        let a = client.mutex("a")?.lock().await?;
        let b = client.mutex("b")?.lock().await?;
        sleep(SHORT * 2).await;
        assert_eq!((a.state(), b.state()), (GuardState::Held, GuardState::Held));
        server.end_sessions().await?;
        a.lost().await;
        b.lost().await;
        assert_eq!(a.release().await?, Released::AlreadyLost);
        // A new session starts with nothing.
        let other = locks(&server.url(ADVISORY), SHORT).await?;
        let now = other.mutex("a")?.lock().await?;
        assert!(client.mutex("a")?.try_lock().await?.is_none());
        assert!(client.mutex("b")?.try_lock().await?.is_some());
        now.release().await?;
        Ok(())
    });
}

#[test]
fn a_release_after_the_loss_frees_no_other_lock() {
    run("postgres", async {
        let server = Server::postgres().await?;
        let client = locks(&server.url(ADVISORY), LEASE).await?;
        let old = client.mutex("a")?.lock().await?;
        server.end_sessions().await?;
        let other = locks(&server.url(ADVISORY), LEASE).await?;
        let new = other.mutex("a")?.lock().await?;
        assert!(new.token() > old.token());
        drop(old.release().await);
        assert!(client.mutex("a")?.try_lock().await?.is_none());
        assert_eq!(new.release().await?, Released::Released);
        Ok(())
    });
}

#[test]
fn a_lock_without_renewal_is_released_when_its_lease_ends() {
    run("postgres", async {
        let server = Server::postgres().await?;
        let client = locks(&server.url(ADVISORY), LEASE).await?;
        let forgets = LockOptions::new().with_lease(SHORT).with_renew(Renew::Never);
        let _left = client.with_options(forgets)?.mutex("a")?.lock().await?;
        locks(&server.url(ADVISORY), LEASE).await?.mutex("a")?.lock().await?.release().await?;
        Ok(())
    });
}

#[test]
fn a_dropped_wait_and_a_dead_client_leave_no_lock() {
    run("postgres", async {
        let server = Server::postgres().await?;
        let holder = locks(&server.url(ADVISORY), LEASE).await?;
        let guard = holder.mutex("a")?.lock().await?;
        let client = locks(&server.url(ADVISORY), LEASE).await?;
        for _ in 0..20 {
            let lock = client.mutex("a")?;
            drop(tokio::time::timeout(Duration::from_millis(5), lock.lock()).await);
        }
        guard.release().await?;
        let _held = client.mutex("a")?.lock().await?;
        drop((_held, client, holder));
        while held(&server).await? != "0" {
            sleep(Duration::from_millis(20)).await;
        }
        Ok(())
    });
}

#[test]
fn unsupported_kinds_and_options_are_refused_with_a_remedy() {
    run("postgres", async {
        let server = Server::postgres().await?;
        let client = locks(&server.url(ADVISORY), LEASE).await?;
        assert!(client.fair("x").is_err());
        let error = client.rw("x")?.read().lock().await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Unsupported, "{error}");
        for options in
            ["dlock.advisory=true&dlock.pooler=true", "dlock.advisory=true&dlock.plain=row"]
        {
            let error = locks(&server.url(options), LEASE).await.unwrap_err();
            assert_eq!(error.kind(), ErrorKind::Config(ConfigIssue::OptionValue), "{error}");
        }
        let Server::Postgres(direct) = &server else { return Ok(()) };
        let config =
            ["default_pool_size = 1", "ignore_startup_parameters = extra_float_digits,options"];
        let pooler = PgBouncer::start(direct, &config).await?;
        let url = format!("{}?dlock.create_schema=true&dlock.advisory=true", pooler.url());
        let error = locks(&url, LEASE).await.unwrap_err();
        assert!(error.to_string().contains("pooler"), "{error}");
        Ok(())
    });
}

#[test]
fn names_are_not_listed_and_the_server_is_not_examined() {
    run("postgres", async {
        let server = Server::postgres().await?;
        let client = locks(&server.url(ADVISORY), LEASE).await?;
        let error = client.list("", 9).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Unsupported, "{error}");
        assert!(error.to_string().contains("inspect each"), "{error}");
        let findings = client.examine().await?;
        assert!(findings.iter().any(|finding| finding.about == "mode"), "{findings:?}");
        Ok(())
    });
}

/// A right that is missing for a while costs no other lock, and no lock stays held by nobody.
#[test]
fn a_refused_unlock_costs_no_other_lock_of_its_session() {
    run("postgres", async {
        let server = Server::postgres().await?;
        let set_right = async |on: bool| {
            let (verb, to) = if on { ("GRANT", "TO") } else { ("REVOKE", "FROM") };
            let right = "EXECUTE ON FUNCTION pg_advisory_unlock(bigint)";
            server.query(&format!("{verb} {right} {to} PUBLIC")).await.map(drop)
        };
        let client = locks(&server.url(ADVISORY), LEASE).await?;
        let other = locks(&server.url(ADVISORY), LEASE).await?;
        let (a, b) = (client.mutex("a")?.lock().await?, client.mutex("b")?.lock().await?);
        let dropped = client.mutex("dropped")?.lock().await?;
        set_right(false).await?;
        let error = a.release().await.err().ok_or_else(|| Stop::failed("it was refused"))?;
        assert_eq!(error.kind(), ErrorKind::Config(ConfigIssue::Access), "{error}");
        drop(dropped);
        // The session would be let in.
        assert!(client.mutex("a")?.try_lock().await?.is_none());
        assert!(other.mutex("a")?.try_lock().await?.is_none());
        assert!(other.mutex("b")?.try_lock().await?.is_none());
        b.check()?;
        set_right(true).await?;
        for name in ["a", "dropped"] {
            other.mutex(name)?.lock().await?.release().await?;
        }
        assert!(other.mutex("b")?.try_lock().await?.is_none());
        // Without other locks, the end of the session frees the last one.
        set_right(false).await?;
        assert_eq!(b.release().await?, Released::Released);
        other.mutex("b")?.lock().await?.release().await?;
        Ok(())
    });
}

/// An error of the server proves that the session is alive.
#[test]
fn a_refused_renewal_costs_no_lock() {
    run("postgres", async {
        let server = Server::postgres().await?;
        let client = locks(&server.url(ADVISORY), SHORT).await?;
        let (a, b) = (client.mutex("a")?.lock().await?, client.mutex("b")?.lock().await?);
        let right = "EXECUTE ON FUNCTION pg_catalog.statement_timestamp()";
        server.query(&format!("REVOKE {right} FROM PUBLIC")).await?;
        sleep(SHORT * 2).await;
        assert_eq!((a.state(), b.state()), (GuardState::Held, GuardState::Held));
        assert_eq!(held(&server).await?, "2");
        Ok(())
    });
}

/// A statement for the whole table would end at its timeout on a table of this size, and delete
/// nothing.
#[test]
fn old_tokens_are_deleted_a_few_at_a_time() {
    run("postgres", async {
        let server = Server::postgres().await?;
        drop(locks(&server.url(ADVISORY), LEASE).await?);
        server
            .query(
                "INSERT INTO dlock_advisory SELECT 'old ' || n, 1 FROM generate_series(1, 5000) n; \
                 CREATE FUNCTION slow() RETURNS trigger LANGUAGE plpgsql AS \
                 $$ BEGIN PERFORM pg_sleep(0.001); RETURN old; END $$; \
                 CREATE TRIGGER slow BEFORE DELETE ON dlock_advisory FOR EACH ROW \
                 EXECUTE FUNCTION slow()",
            )
            .await?;
        let url = server.url("dlock.advisory=true&dlock.retention=1s");
        let client = locks(&url.replace("=30s", "=6s"), LEASE).await?;
        let guard = client.mutex("a")?.lock().await?;
        while !server
            .query("SELECT 1 FROM dlock_advisory WHERE name LIKE 'old %'")
            .await?
            .is_empty()
        {
            sleep(Duration::from_millis(50)).await;
        }
        guard.check()?;
        guard.release().await?;
        Ok(())
    });
}

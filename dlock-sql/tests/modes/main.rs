//! The modes in which other programs take part: the plain table schemes, and PostgreSQL's advisory
//! locks, each together with a program that uses only SQL.

#![expect(clippy::unwrap_used, reason = "each case is the body of several tests")]

mod support;

use std::{
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use dlock_core::{
    Clock, ConfigIssue, ErrorKind, Exclusion, Fencing, FencingToken, GuardState, LockOptions,
    Locks, MultiMutex, Released, Renew, Renewal, Renewed,
};
use dlock_testlab::{
    Stop, Verdict,
    client::{exclusive, lock, take},
    postgres::{Options, PgBouncer, PostgresServer},
};
use tokio::{
    task::JoinSet,
    time::{sleep, timeout},
};

use crate::support::{LEASE, SHORT, Server, connect, locks, noted_locks, run};

const ROW: &str = "dlock.plain=row";
const VERSION: &str = "dlock.plain=version";
const ADVISORY: &str = "dlock.advisory=true";

/// Each claim in the modes of PostgreSQL, and in those of MySQL.
macro_rules! in_modes {
    ($($name:ident: $($postgres:ident)+, $($mysql:ident)*;)+) => {
        mod postgres {
            $(#[test] fn $name() {
                super::run("postgres", async {
                    $(super::$name(super::Server::postgres().await?, super::$postgres).await?;)+
                    Ok(())
                });
            })+
        }
        mod mysql {
            $(#[test] fn $name() {
                super::run("mysql", async {
                    $(super::$name(super::Server::mysql().await?, super::$mysql).await?;)*
                    Ok(())
                });
            })+
        }
    };
}

/// Checks that the store says why this lock, whose claim it does not know, can't be revoked.
async fn assert_not_revoked(locks: &Locks, name: &str) -> Verdict {
    let error = locks.force_release(name).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unsupported, "{error}");
    assert!(error.to_string().contains("by which claim"), "{error}");
    Ok(())
}

/// Returns the number of locks that the server has as held.
async fn held(server: &Server, mode: &str) -> Result<String, Stop> {
    let count = match mode {
        ADVISORY => "SELECT count(*) FROM pg_locks WHERE locktype = 'advisory'",
        _ => "SELECT count(*) FROM dlock_plain WHERE state = 'held'",
    };
    Ok(server.query(count).await?.concat().concat())
}

in_modes! {
    clients_never_overlap_and_tokens_grow: ROW VERSION ADVISORY, ROW VERSION;
    a_held_lock_is_renewed_and_a_forgotten_one_ends: ROW VERSION ADVISORY, ROW VERSION;
    a_dropped_wait_and_a_dropped_client_leave_no_lock: ROW VERSION ADVISORY, ROW VERSION;
    other_kinds_and_values_are_refused: ROW VERSION ADVISORY, ROW VERSION;
    a_lock_is_a_row_that_others_can_read: ROW VERSION, ROW VERSION;
    a_row_of_another_program_is_respected_until_its_lease_ends: ROW VERSION, ROW VERSION;
    a_removed_row_is_a_loss: ROW VERSION, ROW VERSION;
    versions_are_tokens_and_stay: VERSION, VERSION;
    names_are_exact: ROW VERSION, ROW VERSION;
    lost_connections_are_made_again: ROW VERSION, ROW VERSION;
    an_acquire_sent_again_promises_no_more_than_its_lease: ROW VERSION ADVISORY, ROW VERSION;
    a_multi_lock_takes_the_locks_of_both_modes: ROW ADVISORY, ROW;
}

/// A mode and the tables have separate locks.
async fn a_multi_lock_takes_the_locks_of_both_modes(server: Server, mode: &str) -> Verdict {
    let (mut parts, mut others) = (Vec::new(), Vec::new());
    for options in ["dlock.connections=2", mode] {
        parts.push(locks(&server.url(options), LEASE).await?.mutex("a")?);
        others.push(locks(&server.url(options), LEASE).await?.mutex("a")?);
    }
    let both = MultiMutex::across(parts)?.lock().await?;
    for (other, mode) in others.iter().zip(["the tables", mode]) {
        assert!(other.try_lock().await?.is_none(), "{mode}");
    }
    both.release().await?;
    Ok(())
}

async fn clients_never_overlap_and_tokens_grow(server: Server, mode: &str) -> Verdict {
    let (inside, last) = (Arc::new(AtomicU64::new(0)), Arc::new(AtomicU64::new(0)));
    let mut tasks: JoinSet<Result<(), Stop>> = JoinSet::new();
    // In the scheme of rows, tokens have no order.
    let grow = mode != ROW;
    for _ in 0..6 {
        let lock = locks(&server.url(mode), LEASE).await?.mutex("hot")?;
        let (inside, last) = (Arc::clone(&inside), Arc::clone(&last));
        tasks.spawn(async move {
            for _ in 0..15 {
                let guard = lock.lock().await?;
                assert_eq!(inside.fetch_add(1, Ordering::SeqCst), 0, "two are inside");
                let token = guard.token().get();
                let before = last.swap(token, Ordering::SeqCst);
                assert!(!grow || before < token, "{before} before {token}");
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

async fn a_held_lock_is_renewed_and_a_forgotten_one_ends(server: Server, mode: &str) -> Verdict {
    let client = locks(&server.url(mode), SHORT).await?;
    let held = client.mutex("job")?.lock().await?;
    let forgets = LockOptions::new().with_lease(SHORT).with_renew(Renew::Never);
    let _left = client.with_options(forgets)?.mutex("left")?.lock().await?;
    let other = locks(&server.url(mode), LEASE).await?;
    other.mutex("left")?.lock().await?.release().await?;
    sleep(SHORT).await;
    assert_ne!(held.state(), GuardState::Lost);
    assert_eq!(held.release().await?, Released::Released);
    Ok(())
}

async fn a_dropped_wait_and_a_dropped_client_leave_no_lock(server: Server, mode: &str) -> Verdict {
    let holder = locks(&server.url(mode), LEASE).await?;
    let guard = holder.mutex("a")?.lock().await?;
    let client = locks(&server.url(mode), LEASE).await?;
    for _ in 0..20 {
        let lock = client.mutex("a")?;
        drop(timeout(Duration::from_millis(5), lock.lock()).await);
    }
    guard.release().await?;
    let guard = client.mutex("a")?.lock().await?;
    drop((guard, client, holder));
    while held(&server, mode).await? != "0" {
        sleep(Duration::from_millis(20)).await;
    }
    Ok(())
}

async fn other_kinds_and_values_are_refused(server: Server, mode: &str) -> Verdict {
    let client = locks(&server.url(mode), LEASE).await?;
    assert!(client.fair("x").is_err());
    assert!(client.semaphore("x", 2).is_err());
    let error = client.rw("x")?.read().lock().await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unsupported, "{error}");
    let (option, _) = mode.split_once('=').ok_or("an option")?;
    assert!(error.to_string().contains(option), "{error}");
    let value = ErrorKind::Config(ConfigIssue::OptionValue);
    let mistakes: &[&str] = match mode {
        ADVISORY => {
            &["dlock.advisory=true&dlock.pooler=true", "dlock.advisory=true&dlock.plain=row"]
        }
        _ => &["dlock.plain=insert"],
    };
    for mistake in mistakes {
        let error = locks(&server.url(mistake), LEASE).await.unwrap_err();
        assert_eq!(error.kind(), value, "{error}");
    }
    if mode == ADVISORY {
        return Ok(());
    }
    let bare = server.url(mode).replace("dlock.create_schema=true&", "");
    server.query("DROP TABLE dlock_plain").await?;
    let missing = locks(&bare, LEASE).await.unwrap_err();
    assert_eq!(missing.kind(), ErrorKind::Config(ConfigIssue::SchemaMissing), "{missing}");
    Ok(())
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
    assert_not_revoked(&client, "job").await?;
    // After that it can be acquired, although it was not released.
    let guard = client.mutex("job")?.lock().await?;
    if scheme == VERSION {
        assert_eq!(guard.token().get(), 42);
    }
    // The late release of the other program does not affect the new holder.
    server.query("DELETE FROM dlock_plain WHERE name = 'job' AND holder = 'cron@web1'").await?;
    guard.release().await?;
    Ok(())
}

async fn a_removed_row_is_a_loss(server: Server, scheme: &str) -> Verdict {
    let guard = locks(&server.url(scheme), SHORT).await?.mutex("job")?.lock().await?;
    server.query("DELETE FROM dlock_plain").await?;
    guard.lost().await;
    assert_eq!(guard.release().await?, Released::AlreadyLost);
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

async fn an_acquire_sent_again_promises_no_more_than_its_lease(
    server: Server,
    mode: &str,
) -> Verdict {
    let client = connect(&server.url(mode)).await?;
    let request = exclusive("a");
    for is_last in [false, true] {
        take(&client, &request).await?;
        let mut renewal = Renewal::new(request.as_claim(), request.mode, request.lease / 2);
        renewal.is_last = is_last;
        assert_eq!(client.renew(&[renewal]).await?, [Renewed::Kept]);
        let renewed = Clock::Boot.now();
        let until = take(&client, &request).await?.since.saturating_add(request.lease);
        let state = client.inspect(&request.name).await?;
        let ends = match mode {
            // Only the client knows the lease, and a plain row has no room for the mark of the last
            // renewal.
            ADVISORY if is_last => renewed.saturating_add(request.lease / 2),
            _ => Clock::Boot.now().saturating_add(state.holders[0].remaining),
        };
        assert!(until <= ends, "{mode}, {is_last}: {until:?} is after {ends:?}");
    }
    Ok(())
}

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
        // This server does not sync its commits.
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

/// The key of the name "a".
const KEY_OF_A: i64 = -3_883_536_647_512_444_663;

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
        assert_eq!(held(&server, ADVISORY).await?, "2");
        let pids = "SELECT count(DISTINCT pid) FROM pg_locks WHERE locktype = 'advisory'";
        assert_eq!(server.query(pids).await?[0][0], "1");
        assert!(other.mutex("a")?.try_lock().await?.is_none());
        // For the same client, too, although its session could acquire the lock again.
        assert!(client.mutex("a")?.try_lock().await?.is_none());
        let state = other.inspect("a").await?;
        let seen = state.holders;
        assert_eq!(seen.len(), 1);
        assert_eq!(seen[0].note, None, "there is no place for it");
        assert_eq!(seen[0].token, None, "the holder may be another program");
        assert_eq!(state.last_token, Some(a.token()));
        assert_eq!(client.inspect("a").await?.holders[0].token, Some(a.token()));
        assert_not_revoked(&other, "a").await?;
        assert!(a.check().is_ok());

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
fn a_lost_connection_loses_all_its_locks() {
    run("postgres", async {
        let server = Server::postgres().await?;
        let client = locks(&server.url(ADVISORY), SHORT).await?;
        let a = client.mutex("a")?.lock().await?;
        let b = client.mutex("b")?.lock().await?;
        server.end_sessions().await?;
        a.lost().await;
        b.lost().await;
        assert_eq!(a.release().await?, Released::AlreadyLost);
        // A new session holds no locks.
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
fn advisory_locks_behind_a_pooler_are_refused() {
    run("postgres", async {
        let server = Server::postgres().await?;
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

/// If a right is missing for a while, no other lock is lost, and no lock stays held without a
/// holder.
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
        // The session could acquire the lock again.
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
        assert!([&a, &b].iter().all(|guard| guard.state() != GuardState::Lost));
        assert_eq!(held(&server, ADVISORY).await?, "2");
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

/// Each client lives for one lock.
#[test]
fn short_lived_clients_delete_old_tokens() {
    run("postgres", async {
        let server = Server::postgres().await?;
        drop(locks(&server.url(ADVISORY), LEASE).await?);
        let old = "INSERT INTO dlock_advisory SELECT x || n, 1 \
                   FROM generate_series(1, 1000) n, (VALUES ('a'), ('z')) AS t (x)";
        server.query(old).await?;
        let url = server.url("dlock.advisory=true&dlock.retention=1s");
        let mut clients = 0;
        while !server.query("SELECT 1 FROM dlock_advisory WHERE token = 1").await?.is_empty() {
            clients += 1;
            assert!(clients <= 200, "old tokens are left");
            let lock = locks(&url, LEASE).await?.mutex("m")?;
            lock.lock().await?.release().await?;
        }
        Ok(())
    });
}

#[test]
fn an_acquire_sent_again_counts_only_in_a_live_session() {
    run("postgres", async {
        let server = Server::postgres().await?;
        let client = connect(&server.url(ADVISORY)).await?;
        let request = exclusive("a");
        let first = take(&client, &request).await?;
        assert_eq!(take(&client, &request).await?.token, first.token);
        server.end_sessions().await?;
        let again = lock(&client, &request).await?;
        assert!(again.token > first.token, "it is a new lock: {again:?}");
        assert_eq!(held(&server, ADVISORY).await?, "1");
        Ok(())
    });
}

/// Without the end of the session, the holder would notice the loss at its next renewal, after a
/// third of the lease.
#[test]
fn an_idle_session_keeps_its_locks() {
    run("postgres", async {
        let options = Options::new().with_config("idle_session_timeout = 300ms");
        let server = Server::Postgres(PostgresServer::start(&options).await?);
        let url = server.url("dlock.advisory=true");
        let (holder, other) = (locks(&url, LEASE).await?, locks(&url, LEASE).await?);
        let held = holder.mutex("a")?.lock().await?;
        sleep(Duration::from_secs(3)).await;
        if other.mutex("a")?.try_lock().await?.is_some() {
            return Err(Stop::violation("two hold it"));
        }
        held.check()?;
        held.release().await?;
        Ok(())
    });
}

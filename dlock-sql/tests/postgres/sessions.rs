//! Settings of sessions, from the start or changed later: of an application's pool, of a pooler's
//! connections, of a role.

use std::sync::{
    Arc,
    atomic::{AtomicUsize, Ordering::SeqCst},
};

use dlock_core::{Acquired, ConfigIssue, DynBackend, Error, ErrorKind, Exclusion, Level, Mode};
use dlock_sql::{Postgres, PostgresConfig};
use dlock_testlab::{
    Stop, Verdict,
    postgres::{Options, PostgresServer},
};
use sqlx::{Connection as _, PgPool, postgres::PgPoolOptions};

use crate::support::{
    ask, attempt, connect, exclusive, free, granted, queue, renew, run, says, start, start_pooler,
    take, until, works, works_fully,
};

pub(crate) async fn pool(server: &PostgresServer) -> Result<PgPool, Stop> {
    Ok(PgPoolOptions::new().max_connections(1).connect(&server.url()).await?)
}

pub(crate) async fn open(pool: &PgPool) -> Result<DynBackend, Error> {
    Postgres::open(PostgresConfig::from_pool(pool.clone())?.with_connections(1)).await
}

/// Runs this statement on the connection of the pool, and returns the connection.
pub(crate) async fn leave(pool: &PgPool, sql: &'static str) -> Verdict {
    let mut conn = pool.acquire().await?;
    sqlx::raw_sql(sql).execute(&mut *conn).await?;
    Ok(())
}

/// Creates a schema with tables of dlock's, and one without.
async fn other_schemas(server: &PostgresServer) -> Verdict {
    let make = "CREATE SCHEMA tenant AUTHORIZATION dlock; CREATE SCHEMA bare AUTHORIZATION dlock";
    server.run_sql(make).await?;
    let schema = PostgresConfig::SCHEMA;
    server.query_at(&server.url(), &format!("SET search_path = tenant; {schema}")).await?;
    Ok(())
}

/// Checks that both clients use the same locks.
async fn meets(client: &DynBackend, other: &DynBackend) -> Verdict {
    let (theirs, waits) = (exclusive("théirs"), exclusive("théirs"));
    take(other, &theirs).await?;
    assert_eq!(client.acquire(&attempt("théirs")).await?, Acquired::Busy);
    assert_eq!(client.list("", 9).await?, std::slice::from_ref(&theirs.name));
    queue(client, &waits).await?;
    assert_eq!(other.inspect(&theirs.name).await?.waiters.len(), 1);
    free(other, &theirs).await?;
    granted(client, &waits).await?;
    free(client, &waits).await?;
    works_fully(client, other, "ours").await?;
    let wrong = client.examine().await?;
    let wrong: Vec<_> = wrong.iter().filter(|found| found.level == Level::Wrong).collect();
    assert!(wrong.is_empty(), "{wrong:?}");
    Ok(())
}

fn during(what: &str) -> impl Fn(Stop) -> Stop {
    move |stop| Stop::failed(format!("{what}: {stop:?}"))
}

/// The settings that another program can leave in a session.
const LEFT: [&str; 9] = [
    "SET search_path = tenant",
    "SET search_path = bare",
    "CREATE TEMP TABLE IF NOT EXISTS dlock_lock (x integer)",
    "SET ROLE pg_monitor",
    "SET synchronous_commit = off",
    "SET client_encoding = LATIN1",
    "SET default_transaction_read_only = on",
    "SET standard_conforming_strings = off; SET backslash_quote = off",
    "SET default_transaction_isolation = serializable; SET row_security = off",
];

#[test]
fn all_connections_of_a_pool_use_the_same_tables() {
    run(async {
        let (server, other) = start().await?;
        other_schemas(&server).await?;
        server.run_sql("GRANT pg_monitor TO dlock").await?;
        for left in LEFT {
            let pool = pool(&server).await?;
            let client = open(&pool).await?;
            let held = exclusive("held");
            take(&client, &held).await?;
            leave(&pool, left).await?;
            free(&client, &held).await.map_err(during(left))?;
            leave(&pool, left).await?;
            meets(&client, &other).await.map_err(during(left))?;
        }
        let elsewhere = server.query("SELECT count(*) FROM tenant.dlock_lock").await?;
        assert_eq!(elsewhere.concat(), ["0"]);
        Ok(())
    });
}

/// Returns a setting of the pool's connection.
async fn setting(pool: &PgPool, name: &str) -> Result<String, Stop> {
    let show = sqlx::AssertSqlSafe(format!("SHOW {name}"));
    Ok(sqlx::query_scalar(show).fetch_one(pool).await?)
}

/// No write is as short as this limit.
#[test]
fn a_session_with_a_short_statement_timeout_is_replaced() {
    run(async {
        let (server, _) = start().await?;
        let pool = pool(&server).await?;
        let client = open(&pool).await?;
        let slow = "CREATE FUNCTION slow() RETURNS trigger LANGUAGE plpgsql AS \
                    $$ BEGIN PERFORM pg_sleep(0.2); RETURN NEW; END $$; \
                    CREATE TRIGGER slow BEFORE INSERT OR UPDATE ON dlock_lock FOR EACH ROW \
                    EXECUTE FUNCTION slow()";
        server.run_sql(slow).await?;
        let held = exclusive("held");
        take(&client, &held).await?;
        leave(&pool, "SET statement_timeout = 100").await?;
        free(&client, &held).await?;
        assert_eq!(setting(&pool, "statement_timeout").await?, "0", "the session is in use");
        Ok(())
    });
}

#[test]
fn a_session_with_a_short_lock_timeout_is_replaced() {
    run(async {
        let (server, _) = start().await?;
        let pool = pool(&server).await?;
        let client = open(&pool).await?;
        let held = exclusive("held");
        take(&client, &held).await?;
        leave(&pool, "SET lock_timeout = 1").await?;
        let mut theirs = sqlx::PgConnection::connect(&server.url()).await?;
        let lock = "BEGIN; SELECT FROM dlock_lock FOR UPDATE";
        sqlx::raw_sql(lock).execute(&mut theirs).await?;
        let commits = async {
            let is_new = async || Ok(setting(&pool, "lock_timeout").await? == "0");
            until("the session is replaced", is_new).await?;
            sqlx::raw_sql("COMMIT").execute(&mut theirs).await?;
            Ok::<_, Stop>(())
        };
        tokio::try_join!(free(&client, &held), commits)?;
        Ok(())
    });
}

/// An application that never commits.
#[test]
fn a_pool_whose_sessions_are_in_a_transaction_is_refused() {
    run(async {
        let (server, _) = start().await?;
        let options = PgPoolOptions::new().max_connections(2).after_connect(|conn, _| {
            Box::pin(async move { sqlx::raw_sql("BEGIN").execute(conn).await.map(drop) })
        });
        let error = open(&options.connect(&server.url()).await?).await.err();
        let error = error.ok_or_else(|| Stop::failed("in a transaction"))?;
        says(&error, ErrorKind::Config(ConfigIssue::Access), "in a transaction");
        Ok(())
    });
}

/// A client that is opened while the pool's connection has another search path uses the tables that
/// new connections find, or is refused.
#[test]
fn a_pool_that_first_used_other_tables_is_harmless() {
    run(async {
        let (server, other) = start().await?;
        other_schemas(&server).await?;
        let mut opened = 0;
        for away in 0..12 {
            let left = Arc::new(AtomicUsize::new(away));
            let before = left.clone();
            let options = PgPoolOptions::new().max_connections(1).before_acquire(move |conn, _| {
                let is_away = before.fetch_update(SeqCst, SeqCst, |n| n.checked_sub(1)).is_ok();
                let path = if is_away { "SET search_path = tenant" } else { "RESET search_path" };
                Box::pin(async move { sqlx::raw_sql(path).execute(conn).await.map(|_| true) })
            });
            let opening = open(&options.connect(&server.url()).await?).await;
            left.store(0, SeqCst);
            if let Ok(client) = opening {
                opened += 1;
                meets(&client, &other).await.map_err(during(&format!("{away} times")))?;
            }
        }
        assert!(opened > 1, "nothing was opened");
        let elsewhere = server.query("SELECT count(*) FROM tenant.dlock_lock").await?;
        assert_eq!(elsewhere.concat(), ["0"]);
        Ok(())
    });
}

/// Clients of a pooler share its connections, so the settings of one client affect another one.
#[test]
fn all_connections_of_a_pooler_use_the_same_tables() {
    run(async {
        let (server, bouncer) = start_pooler(&["default_pool_size = 1"]).await?;
        other_schemas(&server).await?;
        server.run_sql("GRANT pg_monitor TO dlock").await?;
        let other = connect(&server.url()).await?;
        let client = connect(&format!("{}?dlock.pooler=true", bouncer.url())).await?;
        // A pooler keeps the settings of clients apart only if the server reports them.
        for left in &LEFT[..5] {
            server.query_at(&bouncer.url(), left).await?;
            meets(&client, &other).await.map_err(during(left))?;
        }
        let elsewhere = server.query("SELECT count(*) FROM tenant.dlock_lock").await?;
        assert_eq!(elsewhere.concat(), ["0"]);
        Ok(())
    });
}

/// A lock is not written with the weaker `synchronous_commit` that an application left behind.
#[test]
fn a_used_pooler_connection_commits_like_a_new_one() {
    run(async {
        let (server, bouncer) = start_pooler(&["default_pool_size = 1"]).await?;
        let tell = "CREATE TABLE commits (how text); \
                    CREATE FUNCTION tell() RETURNS trigger LANGUAGE plpgsql SECURITY DEFINER AS \
                    $$ BEGIN INSERT INTO public.commits \
                    VALUES (current_setting('synchronous_commit')); RETURN NEW; END $$; \
                    CREATE TRIGGER tell BEFORE INSERT OR UPDATE ON dlock_lock FOR EACH ROW \
                    EXECUTE FUNCTION tell()";
        server.run_sql(tell).await?;
        let new = "SHOW synchronous_commit";
        let client = connect(&format!("{}?dlock.pooler=true", bouncer.url())).await?;
        let usual = server.query_at(&server.url(), new).await?;
        let left = if usual.concat() == ["off"] { "local" } else { "off" };
        server.query_at(&bouncer.url(), &format!("SET synchronous_commit = {left}")).await?;
        assert_eq!(server.query_at(&bouncer.url(), new).await?.concat(), [left]);
        // A claim that only joins a queue does not wait for the disk.
        works(&client, "a").await?;
        for mode in [Mode::Shared, Mode::permits(2, 3)?] {
            let request = ask("a", mode);
            take(&client, &request).await?;
            renew(&client, &request).await?;
            free(&client, &request).await?;
        }
        let seen = server.query("SELECT DISTINCT how FROM commits").await?;
        assert_eq!(seen, usual);
        Ok(())
    });
}

/// The settings of a used pooler connection do not affect a store that is opened through it.
#[test]
fn a_changed_session_of_a_pooler_opens_the_same_store() {
    run(async {
        let (server, bouncer) = start_pooler(&["default_pool_size = 1"]).await?;
        other_schemas(&server).await?;
        let other = connect(&server.url()).await?;
        for left in &LEFT[..2] {
            for create in ["", "&dlock.create_schema=true"] {
                server.query_at(&bouncer.url(), left).await?;
                let url = format!("{}?dlock.pooler=true{create}", bouncer.url());
                meets(&connect(&url).await?, &other).await.map_err(during(left))?;
            }
        }
        let bare = "SELECT count(*) FROM pg_tables WHERE schemaname = 'bare'";
        assert_eq!(server.query(bare).await?.concat(), ["0"]);
        Ok(())
    });
}

/// The first session of a pool may differ from the others.
#[test]
fn a_pool_with_a_changed_first_session_uses_the_others() {
    run(async {
        let (server, other) = start().await?;
        let pool = pool(&server).await?;
        leave(&pool, "SET synchronous_commit = off").await?;
        let client = open(&pool).await?;
        assert_eq!(client.guarantees().exclusion, Exclusion::Nothing);
        leave(&pool, "RESET synchronous_commit").await?;
        meets(&client, &other).await
    });
}

/// New connections of the client find other tables than its first ones.
#[test]
fn a_later_connection_uses_the_same_tables() {
    run(async {
        let (server, client) = start().await?;
        other_schemas(&server).await?;
        let other = connect(&server.url()).await?;
        let held = exclusive("held");
        take(&client, &held).await?;
        server.run_sql("ALTER ROLE dlock SET search_path = tenant").await?;
        server.terminate_backends().await?;
        assert_eq!(client.acquire(&attempt("held")).await?, Acquired::Busy);
        free(&client, &held).await?;
        meets(&client, &other).await?;
        let elsewhere = server.query("SELECT count(*) FROM tenant.dlock_lock").await?;
        assert_eq!(elsewhere.concat(), ["0"]);
        Ok(())
    });
}

/// No statement depends on these settings.
#[test]
fn settings_of_the_pool_change_nothing() {
    run(async {
        let (server, other) = start().await?;
        for settings in [
            "SET standard_conforming_strings = off; SET escape_string_warning = on; \
             SET backslash_quote = off",
            "SET bytea_output = escape; SET DateStyle = 'SQL, DMY'; SET IntervalStyle = iso_8601; \
             SET TimeZone = 'Pacific/Apia'; SET extra_float_digits = -15",
            "SET transform_null_equals = on; SET array_nulls = off; SET quote_all_identifiers = on",
            "SET default_transaction_isolation = serializable; SET default_transaction_deferrable = on",
            "SET row_security = off; SET plan_cache_mode = force_generic_plan; SET jit = on",
            "SET enable_indexscan = off; SET enable_hashjoin = off; SET enable_seqscan = off",
            "SET search_path = public, pg_catalog",
        ] {
            let options = PgPoolOptions::new().max_connections(2).after_connect(move |conn, _| {
                Box::pin(async move { sqlx::raw_sql(settings).execute(conn).await.map(drop) })
            });
            let client = open(&options.connect(&server.url()).await?).await?;
            meets(&client, &other).await.map_err(during(settings))?;
        }
        Ok(())
    });
}

#[test]
fn a_pool_promises_what_its_sessions_keep() {
    run(async {
        let server = PostgresServer::start(&Options::new().with_fsync(true)).await?;
        let other = connect(&format!("{}?dlock.create_schema=true", server.url())).await?;
        assert_eq!(other.guarantees().exclusion, Exclusion::Restart);
        let after = |sql: &'static str| {
            PgPoolOptions::new().max_connections(1).after_connect(move |conn, _| {
                Box::pin(async move { sqlx::raw_sql(sql).execute(conn).await.map(drop) })
            })
        };
        let relaxed = after("SET synchronous_commit = off").connect(&server.url()).await?;
        assert_eq!(open(&relaxed).await?.guarantees().exclusion, Exclusion::Nothing);
        let latin = after("SET client_encoding = LATIN1").connect(&server.url()).await?;
        let error = open(&latin).await.err().ok_or_else(|| Stop::failed("it reads other names"))?;
        says(&error, ErrorKind::Config(ConfigIssue::Access), "client_encoding");
        Ok(())
    });
}

/// All new sessions differ from earlier ones, so none is usable.
#[test]
fn a_pool_that_changes_all_sessions_is_reported() {
    run(async {
        let (server, _) = start().await?;
        server.run_sql("GRANT pg_monitor TO dlock").await?;
        let changes = std::sync::Arc::new(std::sync::atomic::AtomicBool::new(false));
        let changed = changes.clone();
        let options = PgPoolOptions::new().max_connections(1).before_acquire(move |conn, _| {
            let changed = changed.load(std::sync::atomic::Ordering::SeqCst);
            Box::pin(async move {
                if changed {
                    sqlx::raw_sql("SET ROLE pg_monitor").execute(conn).await?;
                }
                Ok(true)
            })
        });
        let options = options.after_connect({
            let changed = changes.clone();
            move |conn, _| {
                let changed = changed.load(std::sync::atomic::Ordering::SeqCst);
                Box::pin(async move {
                    if changed {
                        sqlx::raw_sql("SET ROLE pg_monitor").execute(conn).await?;
                    }
                    Ok(())
                })
            }
        });
        let client = open(&options.connect(&server.url()).await?).await?;
        changes.store(true, std::sync::atomic::Ordering::SeqCst);
        let error = client.acquire(&attempt("a")).await.err();
        let error = error.ok_or_else(|| Stop::failed("as somebody else"))?;
        says(&error, ErrorKind::Config(ConfigIssue::Access), "pg_monitor");
        Ok(())
    });
}

//! Tables that would run code of another user with the rights of dlock's user.

use std::time::Duration;

use dlock_core::{ConfigIssue, ErrorKind};
use dlock_sql::PostgresConfig;
use dlock_testlab::{Stop, Verdict, postgres::PostgresServer};
use sqlx::{Connection as _, PgConnection};
use tokio::time::timeout;

use crate::support::{connect, create, refused, run, says, server, until, works};

const FOREIGN: ErrorKind = ErrorKind::Config(ConfigIssue::ForeignStore);

/// Creates a user with the right to create objects in `public`, and functions of it that count each
/// use. Returns its URL.
async fn mallory(server: &PostgresServer) -> Result<String, Stop> {
    server.run_sql("create role mallory login password 'secret'").await?;
    server.run_sql("grant create, usage on schema public to mallory").await?;
    let url = server.url_of("mallory", "secret", "dlock");
    let functions = "create sequence trap; grant all on trap to public; \
                     create function mine() returns trigger language plpgsql as $$ begin \
                     perform nextval('public.trap'); return new; end $$; \
                     create function yes(bigint) returns boolean immutable language plpgsql as $$ \
                     begin perform nextval('public.trap'); return true; end $$";
    server.query_at(&url, functions).await?;
    Ok(url)
}

async fn nothing_ran(server: &PostgresServer, what: &str) -> Verdict {
    let ran = server.query("select 1 from public.trap where is_called").await?;
    assert!(ran.is_empty(), "{what}");
    Ok(())
}

/// Each of these objects can run code of mallory with the rights of dlock's user.
#[test]
fn tables_of_an_untrusted_user_are_refused() {
    let trigger = |table| {
        format!(
            "create trigger t before insert or update on {table} for each statement \
             execute function mine()"
        )
    };
    let given = "alter table dlock_lock owner to dlock; alter table dlock_schema owner to dlock";
    for (sql, by_admin, part) in [
        (trigger("dlock_lock"), "", "belongs to mallory"),
        // The version of the schema would be written into it.
        (format!("drop table dlock_lock; {}", trigger("dlock_schema")), "", "belongs to mallory"),
        (trigger("dlock_lock"), given, "runs mine"),
        ("alter table dlock_lock add check (yes(base))".to_owned(), given, "runs yes"),
        ("alter table dlock_lock alter seen set default yes(1)::int".to_owned(), given, "runs yes"),
        ("create index i on dlock_lock (yes(base))".to_owned(), given, "runs yes"),
        ("create table child () inherits (dlock_lock)".to_owned(), given, "plain table"),
        ("create rule r as on delete to dlock_lock do nothing".to_owned(), given, "plain table"),
        // If a delete cascades to a table, the AFTER triggers of that table run as the user that
        // deletes.
        (
            "create table r (name text collate \"C\" references dlock_lock on delete cascade)"
                .to_owned(),
            given,
            "plain table",
        ),
        // The partition still belongs to mallory.
        (
            "drop table dlock_lock; create table dlock_lock (name text collate \"C\" primary key, \
             base bigint, seen bigint, cut bigint, snap text, log text) partition by hash (name); \
             create table part partition of dlock_lock for values with (modulus 1, remainder 0); \
             grant all on dlock_lock to dlock"
                .to_owned(),
            given,
            "part belongs to mallory",
        ),
    ] {
        run(async move {
            let server = server().await?;
            let mallory = mallory(&server).await?;
            for sql in
                [PostgresConfig::SCHEMA, "grant all on dlock_lock, dlock_schema to dlock", &sql]
            {
                server.query_at(&mallory, sql).await?;
            }
            if !by_admin.is_empty() {
                server.run_sql(by_admin).await?;
            }
            for url in [create(&server), server.url(), server.admin_url()] {
                let error = refused(&url).await?;
                if sql.starts_with("drop") && !url.contains("create_schema") {
                    continue;
                }
                says(&error, FOREIGN, part);
            }
            nothing_ran(&server, &sql).await
        });
    }
}

/// A superuser, or a role as which the user may act.
#[test]
fn tables_and_triggers_of_a_trusted_role_are_used() {
    run(async {
        let server = server().await?;
        server.run_sql("create role owners; create role worker login password 'secret'").await?;
        server
            .run_sql("grant owners to worker; grant create, usage on schema public to owners")
            .await?;
        server.run_sql(&format!("set role owners; {}", PostgresConfig::SCHEMA)).await?;
        server
            .run_sql(
                "create function audit() returns trigger language plpgsql as $$ begin \
                 return new; end $$; \
                 create trigger audit before update on dlock_lock for each row \
                 execute function audit()",
            )
            .await?;
        works(&connect(&server.url_of("worker", "secret", "dlock")).await?, "a").await?;
        server.run_sql("grant all on dlock_lock, dlock_schema to dlock").await?;
        says(&refused(&server.url()).await?, FOREIGN, "belongs to owners");
        server.run_sql("alter table dlock_lock owner to postgres").await?;
        server.run_sql("alter table dlock_schema owner to postgres").await?;
        works(&connect(&server.url()).await?, "a").await
    });
}

/// Another user creates one of the tables between the check and the creation.
#[test]
fn a_table_created_by_another_user_meanwhile_is_not_written() {
    /// `schema.sql` waits for this lock.
    const CREATING: &str = "select pg_advisory_xact_lock(5506123690123455334)";
    for options in ["", "&dlock.plain=row", "&dlock.advisory=true"] {
        run(async move {
            let server = server().await?;
            let url = mallory(&server).await?;
            let mut other = PgConnection::connect(&url).await?;
            sqlx::raw_sql("begin").execute(&mut other).await?;
            sqlx::raw_sql(CREATING).execute(&mut other).await?;
            let connecting = tokio::spawn({
                let url = format!("{}{options}", create(&server));
                async move { refused(&url).await }
            });
            until("dlock waits to create its tables", async || {
                let waits = "select 1 from pg_locks where locktype = 'advisory' and not granted";
                Ok(!server.query(waits).await?.is_empty())
            })
            .await?;
            for (table, columns) in [
                ("dlock_schema", "id int primary key, version bigint"),
                ("dlock_plain", "name text"),
                ("dlock_advisory", "name text"),
            ] {
                let sql = format!(
                    "create table {table} ({columns}); grant all on {table} to dlock; \
                     create trigger t before insert or update on {table} for each statement \
                     execute function mine()"
                );
                sqlx::raw_sql(sqlx::AssertSqlSafe(sql)).execute(&mut other).await?;
            }
            sqlx::raw_sql("commit").execute(&mut other).await?;
            let error = timeout(Duration::from_secs(60), connecting).await???;
            says(&error, FOREIGN, "belongs to mallory");
            nothing_ran(&server, options).await
        });
    }
}

/// The owner of the schema can replace dlock's table at any time.
#[test]
fn a_schema_of_an_untrusted_user_is_refused() {
    for options in ["", "&dlock.plain=row", "&dlock.advisory=true"] {
        run(async move {
            let server = server().await?;
            mallory(&server).await?;
            let schema = "create schema theirs authorization mallory; \
                          grant create, usage on schema theirs to dlock";
            server.run_sql(schema).await?;
            let url = format!("{}&options[search_path]=theirs{options}", create(&server));
            says(&refused(&url).await?, FOREIGN, "belongs to mallory, which can");
            server.run_sql("alter schema theirs owner to postgres").await?;
            works(&connect(&url).await?, "a").await
        });
    }
}

/// The owner of a domain can add checks to it at any time.
#[test]
fn a_column_with_a_type_of_an_untrusted_user_is_refused() {
    run(async {
        let server = server().await?;
        let url = mallory(&server).await?;
        let domain = "create domain word as text collate \"C\" check (yes(length(value)))";
        server.query_at(&url, domain).await?;
        for (table, options) in
            [("dlock_plain", "?dlock.plain=row"), ("dlock_advisory", "?dlock.advisory=true")]
        {
            let sql = match table {
                "dlock_plain" => PostgresConfig::PLAIN_SCHEMA,
                _ => PostgresConfig::ADVISORY_SCHEMA,
            };
            server
                .query_at(
                    &url,
                    &sql.replace(
                        "pg_catalog.text NOT NULL COLLATE pg_catalog.\"C\" PRIMARY",
                        "word NOT NULL PRIMARY",
                    ),
                )
                .await?;
            server.run_sql(&format!("alter table {table} owner to dlock")).await?;
            let error = refused(&format!("{}{options}", server.url())).await?;
            says(&error, FOREIGN, "type word");
        }
        nothing_ran(&server, "a domain").await
    });
}

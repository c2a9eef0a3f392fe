//! Which tables are taken for dlock's.

use dlock_core::{ConfigIssue, ErrorKind};
use dlock_sql::PostgresConfig;
use tokio::task::JoinSet;

use crate::support::{connect, create, refused, run, says, server, start, works};

const MISSING: ErrorKind = ErrorKind::Config(ConfigIssue::SchemaMissing);
const FOREIGN: ErrorKind = ErrorKind::Config(ConfigIssue::ForeignStore);

#[test]
fn tables_are_made_only_when_asked_for() {
    run(async {
        let server = server().await?;
        says(&refused(&server.url()).await?, MISSING, "dlock.create_schema=true");
        works(&connect(&create(&server)).await?, "a").await?;
        works(&connect(&server.url()).await?, "a").await
    });
}

#[test]
fn tables_made_by_hand_will_do() {
    run(async {
        let server = server().await?;
        for _ in 0..2 {
            server.query_at(&server.url(), PostgresConfig::SCHEMA).await?;
        }
        works(&connect(&server.url()).await?, "a").await
    });
}

#[test]
fn many_may_make_them_at_once() {
    run(async {
        let server = server().await?;
        let mut opening = JoinSet::new();
        for _ in 0..12 {
            let url = create(&server);
            opening.spawn(async move { connect(&url).await });
        }
        while let Some(opened) = opening.join_next().await {
            works(&opened??, "a").await?;
        }
        Ok(())
    });
}

#[test]
fn a_schema_of_ones_own_is_found_by_the_search_path() {
    run(async {
        let (server, client) = start().await?;
        server.query_at(&server.url(), "create schema other").await?;
        let url = format!("{}?options[search_path]=other", server.url());
        says(&refused(&url).await?, MISSING, "search path");
        let other = connect(&format!("{url}&dlock.create_schema=true")).await?;
        let held = crate::support::exclusive("a");
        crate::support::take(&client, &held).await?;
        // Another table, another lock.
        works(&other, "a").await?;
        crate::support::free(&client, &held).await
    });
}

#[test]
fn other_versions_are_refused_with_what_to_do() {
    run(async {
        let (server, _) = start().await?;
        server.run_sql("update dlock_schema set version = 2").await?;
        let newer = ErrorKind::Config(ConfigIssue::SchemaNewer);
        says(&refused(&create(&server)).await?, newer, "same version of dlock everywhere");
        server.run_sql("update dlock_schema set version = 0").await?;
        says(&refused(&create(&server)).await?, MISSING, "create them again");
        server.run_sql("delete from dlock_schema").await?;
        says(&refused(&create(&server)).await?, FOREIGN, "a schema of their own");
        Ok(())
    });
}

#[test]
fn tables_of_others_are_refused_and_left_alone() {
    run(async {
        for table in [
            "create table dlock_lock (name text primary key, owner text)",
            "create table dlock_lock (name text primary key, base bigint, seen bigint, \
             cut bigint, snap text, log text)",
            "create view dlock_lock as select 1 as name",
        ] {
            let server = server().await?;
            server.query_at(&server.url(), table).await?;
            says(&refused(&create(&server)).await?, FOREIGN, "a schema of their own");
            let found = server.query("select to_regclass('dlock_schema')").await?;
            assert_eq!(found, [[""]], "{table}");
        }
        Ok(())
    });
}

#[test]
fn a_missing_table_is_reported_and_its_return_is_noticed() {
    run(async {
        let (server, client) = start().await?;
        works(&client, "a").await?;
        server.run_sql("alter table dlock_lock rename to away").await?;
        let error = client.acquire(&crate::support::exclusive("a")).await;
        says(&error.expect_err("no table"), MISSING, "PostgresConfig::SCHEMA");
        server.run_sql("alter table away rename to dlock_lock").await?;
        works(&client, "a").await
    });
}

/// Each would run code of mallory with the rights of dlock's user, or did.
#[test]
fn tables_of_an_untrusted_user_are_refused() {
    let function = "create function mine() returns trigger language plpgsql as $$ begin \
                    perform nextval('trap'); return new; end $$; \
                    create function yes(bigint) returns boolean language plpgsql as $$ begin \
                    perform nextval('trap'); return true; end $$";
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
    ] {
        run(async move {
            let server = server().await?;
            server.run_sql("create role mallory login password 'secret'").await?;
            server.run_sql("grant create, usage on schema public to mallory").await?;
            let mallory = server.url_of("mallory", "secret", "dlock");
            let index =
                function.replace("returns boolean language", "returns boolean immutable language");
            for sql in [
                "create sequence trap; grant all on trap to public",
                PostgresConfig::SCHEMA,
                "grant all on dlock_lock, dlock_schema to dlock",
                &index,
                &sql,
            ] {
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
            let ran = server.query("select 1 from trap where is_called").await?;
            assert!(ran.is_empty(), "{sql}");
            Ok(())
        });
    }
}

/// A role that may do anything anyway, or that the user may act as.
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

//! The choice of the tables.

use dlock_core::{ConfigIssue, ErrorKind};
use dlock_sql::PostgresConfig;
use tokio::task::JoinSet;

use crate::support::{connect, create, refused, run, says, server, start, works};

const MISSING: ErrorKind = ErrorKind::Config(ConfigIssue::SchemaMissing);
const FOREIGN: ErrorKind = ErrorKind::Config(ConfigIssue::ForeignStore);

#[test]
fn tables_are_created_only_if_configured() {
    run(async {
        let server = server().await?;
        says(&refused(&server.url()).await?, MISSING, "dlock.create_schema=true");
        works(&connect(&create(&server)).await?, "a").await?;
        works(&connect(&server.url()).await?, "a").await
    });
}

#[test]
fn tables_created_by_hand_are_used() {
    run(async {
        let server = server().await?;
        for _ in 0..2 {
            server.query_at(&server.url(), PostgresConfig::SCHEMA).await?;
        }
        works(&connect(&server.url()).await?, "a").await
    });
}

#[test]
fn many_clients_may_create_the_tables_at_once() {
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
fn a_separate_schema_is_found_by_the_search_path() {
    run(async {
        let (server, client) = start().await?;
        server.query_at(&server.url(), "create schema other").await?;
        let url = format!("{}?options[search_path]=other", server.url());
        says(&refused(&url).await?, MISSING, "search path");
        let other = connect(&format!("{url}&dlock.create_schema=true")).await?;
        let held = crate::support::exclusive("a");
        crate::support::take(&client, &held).await?;
        // The same name in another table is another lock.
        works(&other, "a").await?;
        crate::support::free(&client, &held).await
    });
}

#[test]
fn other_versions_are_refused_with_a_remedy() {
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

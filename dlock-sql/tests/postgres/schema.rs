//! The choice of the tables, and tables of other versions and programs.

use dlock_core::{ConfigIssue, ErrorKind, Locks, MultiMutex};

use crate::support::{
    connect, create, exclusive, free, refused, run, says, server, start, take, works,
};

const MISSING: ErrorKind = ErrorKind::Config(ConfigIssue::SchemaMissing);
const FOREIGN: ErrorKind = ErrorKind::Config(ConfigIssue::ForeignStore);

#[test]
fn a_separate_schema_is_found_by_the_search_path() {
    run(async {
        let (server, client) = start().await?;
        server.query_at(&server.url(), "create schema other").await?;
        let url = format!("{}?options[search_path]=other", server.url());
        says(&refused(&url).await?, MISSING, "search path");
        let other = connect(&format!("{url}&dlock.create_schema=true")).await?;
        let held = exclusive("a");
        take(&client, &held).await?;
        // The same name in another table is another lock.
        works(&other, "a").await?;
        free(&client, &held).await
    });
}

#[test]
fn a_multi_lock_takes_the_locks_of_both_schemas() {
    run(async {
        let (server, client) = start().await?;
        server.query_at(&server.url(), "create schema other").await?;
        let url = format!("{}?options[search_path]=other&dlock.create_schema=true", server.url());
        let (mut parts, mut others) = (Vec::new(), Vec::new());
        for url in [server.url(), url.clone()] {
            parts.push(Locks::new(connect(&url).await?)?.mutex("a")?);
            others.push(Locks::new(connect(&url).await?)?.mutex("a")?);
        }
        let both = MultiMutex::across(parts)?.lock().await?;
        for (other, schema) in others.iter().zip(["public", "other"]) {
            assert!(other.try_lock().await?.is_none(), "{schema}");
        }
        both.release().await?;

        let name = |mode: &str| format!("{}{mode}", client.store());
        let other = connect(&url).await?;
        assert_eq!(other.store(), name(" (schema other)"));
        let plain = connect(&format!("{url}&dlock.plain=row")).await?;
        assert_eq!(plain.store(), name(" (schema other) (plain)"));
        // An advisory lock is the same one in all schemas.
        let advisory = connect(&format!("{url}&dlock.advisory=true")).await?;
        assert_eq!(advisory.store(), name(" (advisory)"));
        Ok(())
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

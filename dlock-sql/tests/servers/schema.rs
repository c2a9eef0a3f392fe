//! Tables that are missing, and tables that are created.

use dlock_core::{ConfigIssue, ErrorKind};
use dlock_testlab::client::{SOON, fails, refused, says, works};
use tokio::task::JoinSet;

use crate::support::{Config, Store, client_of, config, empty_server, exclusive, run, set_up};

const MISSING: ErrorKind = ErrorKind::Config(ConfigIssue::SchemaMissing);

const TABLES: &str = "SELECT COUNT(*) FROM information_schema.tables \
                      WHERE table_name IN ('dlock_lock', 'dlock_schema')";

#[test]
fn tables_are_created_only_if_configured() {
    run(async {
        let server = empty_server().await?;
        server.run_sql("CREATE TABLE theirs (x INT)").await?;
        let config = config(&server.url())?;
        let error = refused(Store::open(config.clone())).await?;
        says(&error, MISSING, "dlock.create_schema=true");
        assert_eq!(server.query(TABLES).await?.concat(), ["0"]);
        works(&Store::open(config.with_create_schema(true)).await?, "a").await?;
        works(&client_of(&server).await?, "a").await
    });
}

#[test]
fn tables_created_by_hand_are_used() {
    run(async {
        let server = empty_server().await?;
        for _ in 0..2 {
            server.query_at(&server.url(), Config::SCHEMA).await?;
            works(&client_of(&server).await?, "a").await?;
        }
        Ok(())
    });
}

#[test]
fn many_clients_may_create_the_tables_at_once() {
    run(async {
        let server = empty_server().await?;
        let config = config(&server.url())?.with_create_schema(true).with_response_timeout(SOON);
        let mut opening = JoinSet::new();
        for _ in 0..12 {
            opening.spawn(Store::open(config.clone()));
        }
        while let Some(opened) = opening.join_next().await {
            works(&opened??, "a").await?;
        }
        Ok(())
    });
}

#[test]
fn a_missing_table_is_reported_and_its_return_is_noticed() {
    run(async {
        let server = set_up().await?;
        let client = client_of(&server).await?;
        works(&client, "a").await?;
        server.run_sql("ALTER TABLE dlock_lock RENAME TO away").await?;
        says(&fails(&client, &exclusive("a")).await?, MISSING, "Config::SCHEMA");
        server.run_sql("ALTER TABLE away RENAME TO dlock_lock").await?;
        works(&client, "a").await
    });
}

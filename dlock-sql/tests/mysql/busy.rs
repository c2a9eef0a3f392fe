//! Rows and tables that another program locks.

use std::time::Duration;

use dlock_core::{Certainty, ErrorKind};
use dlock_sql::Mysql;
use sqlx::{Connection, Executor, MySqlConnection};

use crate::support::{
    LONG, ask, assert_unavailable, config, connect, free, lock, server, with_mariadb,
};

#[test]
fn a_row_locked_for_too_long_is_unavailable_and_unchanged() {
    with_mariadb(async {
        let server = server().await?;
        let first = ask("x");
        let patient = connect(&server).await?;
        lock(&patient, &first).await?;
        free(&patient, &first).await?;

        let config = config(&server.url())?.with_response_timeout(Duration::from_secs(5));
        let client = Mysql::open(config).await?;
        let mut other = MySqlConnection::connect(&server.url()).await?;
        for grip in [
            "BEGIN; SELECT * FROM dlock_lock WHERE name = 'x' FOR UPDATE",
            "LOCK TABLES dlock_lock READ",
        ] {
            other.execute(sqlx::raw_sql(grip)).await?;
            let request = ask("x");
            let error = client.acquire(&request).await.expect_err("locked");
            assert_unavailable(&error, "another program locks dlock's table");
            assert_eq!(error.certainty(), Certainty::NotApplied);
            other.execute("ROLLBACK").await?;
            other.execute("UNLOCK TABLES").await?;
            lock(&client, &request).await?;
            free(&client, &request).await?;
        }
        Ok(())
    });
}

#[test]
fn a_row_locked_for_a_while_only_takes_longer() {
    with_mariadb(async {
        let server = server().await?;
        let client = connect(&server).await?;
        let (first, second) = (ask("x"), ask("x"));
        lock(&client, &first).await?;
        let mut other = MySqlConnection::connect(&server.url()).await?;
        let grip = "BEGIN; SELECT * FROM dlock_lock WHERE name = 'x' FOR UPDATE";
        other.execute(sqlx::raw_sql(grip)).await?;
        let release = tokio::spawn(client.release(&first.as_claim()));
        tokio::time::sleep(Duration::from_millis(300)).await;
        assert!(!release.is_finished());
        other.execute("ROLLBACK").await?;
        tokio::time::timeout(LONG, release).await???;
        lock(&client, &second).await?;
        Ok(())
    });
}

#[test]
fn a_dropped_table_is_reported() {
    with_mariadb(async {
        let server = server().await?;
        let client = connect(&server).await?;
        server.run_sql("DROP TABLE dlock_lock").await?;
        let error = client.acquire(&ask("x")).await.expect_err("no table");
        assert_eq!(error.kind(), ErrorKind::Config(dlock_core::ConfigIssue::SchemaMissing));
        assert!(error.to_string().contains("MysqlConfig::SCHEMA"), "{error}");
        server.run_sql(dlock_sql::MysqlConfig::SCHEMA).await?;
        lock(&client, &ask("x")).await?;
        Ok(())
    });
}

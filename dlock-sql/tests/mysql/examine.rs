//! The findings about a server.

use dlock_core::{DynBackend, Finding, Level};
use dlock_sql::Mysql;
use dlock_testkit::found::{self, only};
use dlock_testlab::{
    Stop,
    mariadb::{MariadbServer, Options},
};

use crate::support::{config, connect, connect_plainly, server_with, with_mariadb};

/// The findings that are not fine.
async fn amiss(client: &DynBackend) -> Result<Vec<Finding>, Stop> {
    found::amiss(client, 6).await
}

async fn well() -> Result<MariadbServer, Stop> {
    server_with(&Options::new().with_fsync(true).with_max_connections(200)).await
}

#[test]
fn a_durable_server_is_fine() {
    with_mariadb(async {
        let server = well().await?;
        assert_eq!(amiss(&connect(&server).await?).await?, []);
        assert_eq!(amiss(&connect_plainly(&server).await?).await?, []);
        let plain = format!("{}?dlock.create_schema=true&dlock.plain=row", server.url());
        assert_eq!(amiss(&Mysql::open(config(&plain)?).await?).await?, []);
        Ok(())
    });
}

#[test]
fn each_bad_setting_is_found_alone() {
    with_mariadb(async {
        let server = well().await?;
        let client = connect(&server).await?;
        server.run_sql("SET GLOBAL innodb_flush_log_at_trx_commit = 2").await?;
        only(&amiss(&client).await?, "durability", Level::Warning, "trx_commit = 1");
        server.run_sql("SET GLOBAL innodb_flush_log_at_trx_commit = 1").await?;
        server.run_sql("SET GLOBAL max_connections = 12").await?;
        only(&amiss(&client).await?, "connections", Level::Warning, "max_connections");
        server.run_sql("SET GLOBAL max_connections = 200").await?;
        assert_eq!(amiss(&client).await?, []);
        Ok(())
    });
}

#[test]
fn a_missing_table_a_missing_right_and_a_replica_are_wrong() {
    with_mariadb(async {
        let server = well().await?;
        server
            .run_sql(
                "CREATE USER worker@'%' IDENTIFIED BY 'secret'; \
                 GRANT SELECT ON dlock.dlock_schema TO worker@'%'; \
                 GRANT SELECT, INSERT, UPDATE, DELETE ON dlock.dlock_lock TO worker@'%'",
            )
            .await?;
        let client = Mysql::open(config(&server.url_of("worker", "secret", "dlock"))?).await?;
        assert_eq!(amiss(&client).await?, []);
        server.run_sql("REVOKE UPDATE ON dlock.dlock_lock FROM worker@'%'").await?;
        only(&amiss(&client).await?, "tables", Level::Wrong, "GRANT UPDATE");
        server.run_sql("GRANT UPDATE ON dlock.dlock_lock TO worker@'%'").await?;
        server.run_sql("SET GLOBAL read_only = 1").await?;
        only(&amiss(&client).await?, "tables", Level::Wrong, "primary");
        server.run_sql("SET GLOBAL read_only = 0").await?;
        server.run_sql("DROP TABLE dlock_lock").await?;
        only(&amiss(&client).await?, "tables", Level::Wrong, "create_schema");
        Ok(())
    });
}

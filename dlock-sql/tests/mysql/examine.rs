//! The findings about a server, and the guarantees, which follow each setting that they depend on.

use dlock_core::{DynBackend, Exclusion, Fencing, Finding, Level};
use dlock_sql::Mysql;
use dlock_testkit::found::{self, only};
use dlock_testlab::{
    Stop, Verdict,
    mariadb::{MariadbServer, Options},
};
use tokio::time::{sleep, timeout};

use crate::support::{
    SOON, config, connect, connect_plainly, exclusive, free, lock, server_with, with_mariadb,
};

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
        server
            .run_sql(
                "CREATE USER limited@'%' IDENTIFIED BY 'secret'; \
                 GRANT ALL ON dlock.* TO limited@'%' WITH MAX_USER_CONNECTIONS 9",
            )
            .await?;
        let client = Mysql::open(config(&server.url_of("limited", "secret", "dlock"))?).await?;
        only(&amiss(&client).await?, "connections", Level::Warning, "max_user_connections");
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

async fn open(server: &MariadbServer, options: &str) -> Result<DynBackend, Stop> {
    Ok(Mysql::open(config(&format!("{}?dlock.create_schema=true{options}", server.url()))?).await?)
}

/// Uses the client until it promises no exclusion.
async fn until_weaker(client: &DynBackend) -> Verdict {
    let used = async {
        while client.guarantees().exclusion != Exclusion::Nothing {
            let request = exclusive("a");
            lock(client, &request).await?;
            free(client, &request).await?;
            sleep(std::time::Duration::from_millis(50)).await;
        }
        Ok(())
    };
    timeout(SOON, used).await.map_err(|_| Stop::failed("it goes on promising"))?
}

#[test]
fn a_promise_needs_each_setting_that_it_depends_on() {
    with_mariadb(async {
        for (setting, exclusion) in [
            ("log_bin = log\nsync_binlog = 1", Exclusion::Restart),
            ("log_bin = log\nsync_binlog = 0", Exclusion::Nothing),
            ("innodb_doublewrite = 0", Exclusion::Nothing),
            ("innodb_flush_method = O_DIRECT_NO_FSYNC", Exclusion::Nothing),
        ] {
            let options = Options::new().with_fsync(true).with_config(setting);
            let server = server_with(&options).await?;
            let given = open(&server, "").await?.guarantees();
            assert_eq!(given.exclusion, exclusion, "{setting}");
            let plain = open(&server, "&dlock.plain=version").await?.guarantees();
            let kept = exclusion == Exclusion::Restart;
            let fencing = if kept { Fencing::Durable } else { Fencing::Volatile };
            assert_eq!(plain.fencing, fencing, "{setting}");
        }
        Ok(())
    });
}

#[test]
fn a_setting_that_changes_is_seen_while_locks_are_used() {
    with_mariadb(async {
        let server = server_with(&Options::new().with_fsync(true)).await?;
        let (client, plain) =
            (open(&server, "").await?, open(&server, "&dlock.plain=version").await?);
        for client in [&client, &plain] {
            assert_eq!(client.guarantees().exclusion, Exclusion::Restart);
        }
        server.run_sql("SET GLOBAL innodb_flush_log_at_trx_commit = 2").await?;
        until_weaker(&client).await?;
        until_weaker(&plain).await?;
        assert_eq!(plain.guarantees().fencing, Fencing::Volatile);
        Ok(())
    });
}

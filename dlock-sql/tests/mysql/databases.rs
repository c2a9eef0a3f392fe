//! Connections of a pool that use another database.

use dlock_core::{Acquired, DynBackend, Error, Level};
use dlock_sql::{Mysql, MysqlConfig};
use dlock_testlab::{Stop, Verdict, mariadb::MariadbServer};
use sqlx::{MySqlPool, mysql::MySqlPoolOptions};

use crate::support::{
    attempt, connect, exclusive, free, granted, queue, server, take, with_mariadb,
};

/// A pool of one connection with all rights.
async fn pool(server: &MariadbServer) -> Result<MySqlPool, Stop> {
    Ok(MySqlPoolOptions::new().max_connections(1).connect(&server.admin_url()).await?)
}

async fn open(pool: &MySqlPool, returning: bool) -> Result<DynBackend, Error> {
    let config = MysqlConfig::from_pool(pool.clone())?.with_connections(1);
    Mysql::open(config.with_returning(returning)).await
}

async fn leave_in(pool: &MySqlPool, database: &'static str) -> Verdict {
    let mut conn = pool.acquire().await?;
    sqlx::raw_sql(database).execute(&mut *conn).await?;
    Ok(())
}

/// Once with tables of dlock's in the other database, and once without.
#[test]
fn a_connection_in_another_database_uses_the_first_tables() {
    with_mariadb(async {
        let server = server().await?;
        server.run_sql("CREATE DATABASE `ten``ant`; CREATE DATABASE `bare`").await?;
        server.run_sql(&format!("USE `ten``ant`; {}", MysqlConfig::SCHEMA)).await?;
        // Examining this table instead of the first finds the wrong engine.
        server.run_sql("ALTER TABLE `ten``ant`.dlock_lock ENGINE = MyISAM").await?;
        let other = connect(&server).await?;
        for away in ["USE `ten``ant`", "USE `bare`"] {
            for returning in [true, false] {
                let pool = pool(&server).await?;
                let client = open(&pool, returning).await?;
                let (theirs, ours, waits) =
                    (exclusive("theirs"), exclusive("ours"), exclusive("theirs"));
                take(&other, &theirs).await?;
                take(&client, &ours).await?;
                // A prepared statement runs in the database in which it was prepared.
                server.terminate_backends().await?;
                leave_in(&pool, away).await?;
                let wrong = client.examine().await?;
                let wrong: Vec<_> =
                    wrong.iter().filter(|found| found.level == Level::Wrong).collect();
                assert!(wrong.is_empty(), "{wrong:?}");
                assert_eq!(client.acquire(&attempt("theirs")).await?, Acquired::Busy);
                assert_eq!(client.inspect(&theirs.name).await?.holders.len(), 1);
                assert_eq!(client.list("", 9).await?.len(), 2);
                queue(&client, &waits).await?;
                let both = [exclusive("a"), exclusive("b")];
                if let Some(taken) = client.acquire_all(&both) {
                    taken.await?;
                }
                assert_eq!(other.list("", 9).await?.len(), 4);
                for both in &both {
                    free(&client, both).await?;
                }
                free(&other, &theirs).await?;
                granted(&client, &waits).await?;
                free(&client, &waits).await?;
                free(&client, &ours).await?;
                assert!(other.list("", 9).await?.is_empty());
            }
        }
        let elsewhere = server.query("SELECT COUNT(*) FROM `ten``ant`.dlock_lock").await?;
        assert_eq!(elsewhere.concat(), ["0"]);
        Ok(())
    });
}

/// A setting of the server selects the database of dlock's own new connections.
#[test]
fn a_connection_after_another_uses_the_tables_of_the_first() {
    with_mariadb(async {
        let server = server().await?;
        server
            .run_sql(&format!("CREATE DATABASE tenant; USE tenant; {}", MysqlConfig::SCHEMA))
            .await?;
        server
            .run_sql(
                "CREATE USER mover@'%' IDENTIFIED BY 'secret'; \
                 GRANT SELECT, INSERT, UPDATE, DELETE ON dlock.* TO mover@'%'; \
                 GRANT SELECT, INSERT, UPDATE, DELETE ON tenant.* TO mover@'%', dlock@'%'",
            )
            .await?;
        let other = connect(&server).await?;
        for returning in [true, false] {
            let url = server.url_of("mover", "secret", "dlock");
            let config = MysqlConfig::from_url(&url.parse()?)?.with_returning(returning);
            let client = Mysql::open(config).await?;
            let (ours, theirs) = (exclusive("ours"), exclusive("theirs"));
            take(&client, &ours).await?;
            take(&other, &theirs).await?;
            server.run_sql("SET GLOBAL init_connect = 'USE tenant'").await?;
            server.terminate_backends().await?;
            assert_eq!(client.acquire(&attempt("theirs")).await?, Acquired::Busy);
            assert_eq!(client.list("", 9).await?.len(), 2);
            free(&client, &ours).await?;
            free(&other, &theirs).await?;
            server.run_sql("SET GLOBAL init_connect = ''").await?;
        }
        let elsewhere = server.query("SELECT COUNT(*) FROM tenant.dlock_lock").await?;
        assert_eq!(elsewhere.concat(), ["0"]);
        Ok(())
    });
}

/// Idle rows are deleted from the tables of the first database only.
#[test]
fn a_connection_in_another_database_sweeps_the_first_tables() {
    with_mariadb(async {
        let server = server().await?;
        server.run_sql("CREATE DATABASE tenant").await?;
        server.run_sql(&format!("USE tenant; {}", MysqlConfig::SCHEMA)).await?;
        let pool = pool(&server).await?;
        let config = MysqlConfig::from_pool(pool.clone())?.with_connections(1);
        let _client = Mysql::open(config.with_retention(std::time::Duration::from_secs(1))).await?;
        leave_in(&pool, "USE tenant").await?;
        for database in ["dlock", "tenant"] {
            let row = "('x', 1000000, 0, 0, '', 'R 00000000000000000000000000000001 0 1000000;')";
            server.run_sql(&format!("INSERT INTO {database}.dlock_lock VALUES {row}")).await?;
        }
        super::rows::until_left(&server, &[]).await?;
        let elsewhere = server.query("SELECT COUNT(*) FROM tenant.dlock_lock").await?;
        assert_eq!(elsewhere.concat(), ["1"]);
        Ok(())
    });
}

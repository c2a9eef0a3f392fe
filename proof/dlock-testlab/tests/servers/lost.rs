//! Servers start again with older data, or without their last writes.

use dlock_testlab::{
    DataDirectory, Server, Stop, Verdict,
    mariadb::{self, MariadbServer},
    postgres::{self, PostgresServer},
    redis::{Options, Persistence, RedisSentinel, RedisServer},
};

use crate::{with, with_redis};

#[test]
fn redis_comes_back_from_a_snapshot() {
    with_redis(async {
        for persistence in [Persistence::None, Persistence::AofAlways] {
            let server = RedisServer::start(&Options::new().with_persistence(persistence)).await?;
            server.command(&["SET", "a", "1"]).await?.ok()?;
            let snapshot = server.snapshot().await?;
            let address = server.address();
            server.command(&["SET", "b", "2"]).await?.ok()?;
            assert_eq!(server.keys("*").await?, ["a", "b"]);
            server.restart_from(&snapshot).await?;
            assert_eq!(server.keys("*").await?, ["a"], "{persistence:?}");
            // From now on, the server keeps its data as configured.
            server.restart_from(&snapshot).await?;
            server.restart().await?;
            let kept = usize::from(persistence != Persistence::None);
            assert_eq!((server.keys("*").await?.len(), server.address()), (kept, address));

            let other = RedisServer::start(&Options::new()).await?;
            assert!(other.restart_from(&snapshot).await.is_err());
        }
        Ok(())
    });
}

/// Checks an SQL server with a table that had one row at the time of the snapshot.
async fn assert_comes_back<O: DataDirectory + Send + Sync + 'static>(
    server: &Server<O>,
    query: impl AsyncFn(&'static str) -> Result<Vec<Vec<String>>, Stop>,
) -> Verdict {
    let all = "select b from a order by b";
    query("create table a (b int)").await?;
    query("insert into a values (1)").await?;
    let snapshot = server.snapshot().await?;
    for _ in 0..2 {
        query("insert into a values (2)").await?;
        assert_eq!(query(all).await?, [["1"], ["2"]]);
        server.restart_from(&snapshot).await?;
        assert_eq!(query(all).await?, [["1"]]);
    }
    Ok(())
}

#[test]
fn postgres_comes_back_from_a_snapshot() {
    with("postgres", async {
        let options = postgres::Options::new().with_config("work_mem = 1MB");
        let server = PostgresServer::start(&options).await?;
        assert_comes_back(&server, async |sql| server.query(sql).await).await?;
        assert_eq!(server.query("show work_mem").await?, [["1MB"]]);
        assert_eq!(server.query_at(&server.url(), "select current_user").await?, [["dlock"]]);
        Ok(())
    });
}

#[test]
fn mariadb_comes_back_from_a_snapshot() {
    with("mysql", async {
        let server = MariadbServer::start(&mariadb::Options::new()).await?;
        assert_comes_back(&server, async |sql| server.query(sql).await).await?;
        assert_eq!(server.query_at(&server.url(), "select user()").await?, [["dlock@127.0.0.1"]]);
        Ok(())
    });
}

#[test]
fn sentinels_promote_a_replica_that_lags() {
    with_redis(async {
        let sentinel = RedisSentinel::start(&Options::new()).await?;
        let master = sentinel.master_server().await?;
        master.command(&["SET", "early", "1"]).await?.ok()?;
        sentinel.until_in_sync().await?;
        assert_eq!(sentinel.lags().await?.len(), 2);
        for replica in &sentinel.servers()[1..] {
            replica.until_in_sync_with(master).await?;
        }
        sentinel.cut_replicas().await?;
        master.command(&["SET", "late", "1"]).await?.ok()?;
        assert!(sentinel.lags().await?.iter().all(|lag| *lag > 0));
        master.kill();
        let next = sentinel.until_failed_over(&master.address()).await?;
        let next = sentinel.servers().iter().find(|server| server.address() == next).unwrap();
        assert_eq!(next.keys("*").await?, ["early"]);
        // The server returns as a replica, and loses the data that no other server has.
        master.restart().await?;
        sentinel.until_in_sync().await
    });
}

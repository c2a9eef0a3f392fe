//! Servers start again without their data, or with older data.

use dlock_testlab::{
    Proxy, Snapshot, Stop, Verdict,
    mariadb::{self, MariadbServer},
    postgres::{self, PostgresServer},
    redis::{Options, Persistence, RedisSentinel, RedisServer, Reply},
};

use crate::{with, with_redis};

#[test]
fn redis_comes_back_empty_or_from_a_snapshot() {
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
            server.restart_empty().await?;
            assert!(server.keys("*").await?.is_empty(), "{persistence:?}");
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
async fn assert_comes_back(
    query: impl AsyncFn(&'static str) -> Result<Vec<Vec<String>>, Stop>,
    snapshot: impl AsyncFn() -> Result<Snapshot, Stop>,
    restart_from: impl AsyncFn(&Snapshot) -> Verdict,
    restart_empty: impl AsyncFn() -> Verdict,
) -> Verdict {
    let all = "select b from a order by b";
    query("create table a (b int)").await?;
    query("insert into a values (1)").await?;
    let snapshot = snapshot().await?;
    for _ in 0..2 {
        query("insert into a values (2)").await?;
        assert_eq!(query(all).await?, [["1"], ["2"]]);
        restart_from(&snapshot).await?;
        assert_eq!(query(all).await?, [["1"]]);
    }
    restart_empty().await?;
    assert!(query(all).await.is_err());
    query("create table a (b int)").await?;
    assert!(query(all).await?.is_empty());
    restart_from(&snapshot).await?;
    assert_eq!(query(all).await?, [["1"]]);
    Ok(())
}

#[test]
fn postgres_comes_back_empty_or_from_a_snapshot() {
    with("postgres", async {
        let options = postgres::Options::new().with_config("work_mem = 1MB");
        let server = PostgresServer::start(&options).await?;
        assert_comes_back(
            async |sql| server.query(sql).await,
            async || server.snapshot().await,
            async |snapshot| server.restart_from(snapshot).await,
            async || server.restart_empty().await,
        )
        .await?;
        server.restart_empty().await?;
        assert_eq!(server.query("show work_mem").await?, [["1MB"]]);
        assert_eq!(server.query_at(&server.url(), "select current_user").await?, [["dlock"]]);
        Ok(())
    });
}

#[test]
fn mariadb_comes_back_empty_or_from_a_snapshot() {
    with("mysql", async {
        let server = MariadbServer::start(&mariadb::Options::new()).await?;
        assert_comes_back(
            async |sql| server.query(sql).await,
            async || server.snapshot().await,
            async |snapshot| server.restart_from(snapshot).await,
            async || server.restart_empty().await,
        )
        .await?;
        server.restart_empty().await?;
        assert_eq!(server.query_at(&server.url(), "select user()").await?, [["dlock@127.0.0.1"]]);
        Ok(())
    });
}

#[test]
fn a_replica_with_a_cut_link_takes_over_without_late_writes() {
    with_redis(async {
        let master = RedisServer::start(&Options::new()).await?;
        let link = Proxy::start(&master.address()).await?;
        let options = Options::new().replica_of(&link.address());
        let replica = RedisServer::start(&options).await?;
        let way = Proxy::start(&master.address()).await?;
        master.command(&["SET", "early", "1"]).await?.ok()?;
        replica.until_in_sync_with(&master).await?;

        link.half_open();
        let before = replica.replication_offset().await?;
        master.command(&["SET", "late", "1"]).await?.ok()?;
        assert!(master.replication_offset().await? > replica.replication_offset().await?);
        assert_eq!(replica.replication_offset().await?, before);
        master.kill();
        replica.promote().await?;
        assert_eq!(replica.keys("*").await?, ["early"]);

        way.lead_to(&replica.address());
        let mut client = dlock_testlab::redis::Resp::connect(&way.address()).await?;
        assert_eq!(client.command(&["SET", "new", "1"]).await?.text()?, "OK");
        assert_eq!(client.command(&["GET", "late"]).await?, Reply::Bulk(None));
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

#[test]
fn a_standby_with_a_cut_link_takes_over_without_late_commits() {
    with("postgres", async {
        let primary = PostgresServer::start(&postgres::Options::new()).await?;
        let link = Proxy::start(&primary.address()).await?;
        let options = postgres::Options::new().standby_through(&link, &primary);
        let standby = PostgresServer::start(&options).await?;
        primary.run_sql("create table a (b int); insert into a values (1)").await?;
        let position = primary.log_position().await?;
        while standby.log_position().await? < position
            || standby.query("select b from a").await.is_err()
        {}
        assert!(standby.query("insert into a values (3)").await.is_err());

        link.half_open();
        primary.run_sql("insert into a values (2)").await?;
        assert!(primary.log_position().await? > standby.log_position().await?);
        primary.kill();
        standby.promote().await?;
        standby.run_sql("insert into a values (3)").await?;
        assert_eq!(standby.query("select b from a order by b").await?, [["1"], ["3"]]);
        assert!(standby.promote().await.is_err());
        Ok(())
    });
}

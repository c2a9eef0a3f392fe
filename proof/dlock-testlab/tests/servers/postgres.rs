//! PostgreSQL servers.

use std::{net::TcpListener, pin::pin, time::Duration};

use dlock_testlab::{
    Proxy, Stop, Verdict,
    postgres::{Options, PgBouncer, PostgresServer},
};
use tokio::time::{sleep, timeout};

use crate::{
    assert_dies, assert_ends_while_paused, assert_leaves_nothing, assert_restarts,
    assert_waits_for_its_port, gone, until_over,
};

/// Long enough for events that have to happen.
const LONG: Duration = Duration::from_secs(60);
/// Long enough to notice an event that must not happen.
const SHORT: Duration = Duration::from_millis(100);

fn with_postgres(test: impl Future<Output = Verdict>) {
    crate::with("postgres", test);
}

/// A server with a table `a` that has one row.
async fn with_a_row(options: &Options) -> Result<PostgresServer, Stop> {
    let server = PostgresServer::start(options).await?;
    let sql = "create table a (b int); insert into a values (1); grant all on a to dlock";
    server.run_sql(sql).await?;
    Ok(server)
}

/// Returns its processes except the first one.
async fn children(server: &PostgresServer) -> Result<Vec<u32>, Stop> {
    let rows = server.query("select pid from pg_stat_activity where pid <> pg_backend_pid()");
    rows.await?.concat().iter().map(|pid| Ok(pid.parse()?)).collect()
}

#[test]
fn a_server_answers_and_leaves_nothing_behind() {
    with_postgres(async {
        let server = with_a_row(&Options::new()).await?;
        let rows = server.query("select b, 'x\ty', null from a; select 'z\n'").await?;
        assert_eq!(rows, [vec!["1", "x\ty", ""], vec!["z\n"]]);
        assert!(server.query("select b from a where b > 1").await?.is_empty());
        assert_eq!(server.query_at(&server.url(), "select current_user").await?, [["dlock"]]);
        let text = format!("{:?}", server.run_sql("select no").await.unwrap_err());
        assert!(text.contains("\\\"no\\\" does not exist"), "{text}");

        let children = children(&server).await?;
        assert!(!children.is_empty());
        assert_leaves_nothing(server);
        for child in children {
            gone(child).await;
        }
        Ok(())
    });
}

#[test]
fn committed_rows_outlive_a_kill_and_a_stop() {
    with_postgres(async {
        for fsync in [false, true] {
            let server = with_a_row(&Options::new().with_fsync(fsync)).await?;
            let fsync = if fsync { "on" } else { "off" };
            assert_eq!(server.query("show fsync").await?, [[fsync]]);
            let children = children(&server).await?;
            assert_dies(&server);
            for child in children {
                gone(child).await;
            }
            assert!(server.query("select 1").await.is_err());
            server.restart().await?;
            server.run_sql("insert into a values (2)").await?;
            assert_restarts(&server).await?;
            assert_eq!(server.query("select b from a order by b").await?, [["1"], ["2"]]);
        }
        Ok(())
    });
}

#[test]
fn a_paused_server_answers_once_it_resumes() {
    with_postgres(async {
        let server = PostgresServer::start(&Options::new()).await?;
        server.pause()?;
        let mut asked = pin!(server.query("select 1"));
        let early = timeout(SHORT, &mut asked).await;
        assert!(early.is_err());
        server.resume()?;
        assert_eq!(asked.await?, [["1"]]);
        assert_ends_while_paused(&server).await
    });
}

#[test]
fn a_pause_stops_the_process_of_a_client_too() {
    with_postgres(async {
        let server = PostgresServer::start(&Options::new()).await?;
        let proxy = Proxy::start(&server.address()).await?;
        let url = server.admin_url().replace(&server.address(), &proxy.address());
        let talks = "do $$ begin loop raise notice 'on'; perform pg_sleep(0.01); end loop; end $$";
        let pauses = async {
            for _ in 0..3 {
                until_it_talks(&proxy, true).await;
                server.pause()?;
                until_it_talks(&proxy, false).await;
                server.resume()?;
            }
            until_it_talks(&proxy, true).await;
            Ok::<_, Stop>(())
        };
        tokio::select! {
            paused = pauses => paused,
            silent = server.query_at(&url, talks) => panic!("{silent:?}"),
        }
    });
}

/// Waits until bytes arrive from the server, or until none arrive any more.
async fn until_it_talks(proxy: &Proxy, talks: bool) {
    let wait = async {
        loop {
            let before = proxy.reply_bytes();
            sleep(SHORT).await;
            // The server sends few bytes during the login.
            if (proxy.reply_bytes() > before && before > 1000) == talks {
                return;
            }
        }
    };
    timeout(LONG, wait).await.expect("it pauses and goes on");
}

#[test]
fn options_reach_the_server() {
    with_postgres(async {
        let options = Options::new().with_max_connections(7).with_config("work_mem = 1MB");
        let server = PostgresServer::start(&options).await?;
        assert_eq!(server.query("show max_connections; show work_mem").await?, [["7"], ["1MB"]]);
        server.run_sql("create role alice login password 'wonder'; create table a ()").await?;
        let alice = server.url_of("alice", "wonder", "dlock");
        let refused = server.query_at(&alice, "select from a").await.unwrap_err();
        assert!(format!("{refused:?}").contains("permission denied"), "{refused:?}");
        let nobody = server.url_of("alice", "wrong", "dlock");
        assert!(server.query_at(&nobody, "select 1").await.is_err());

        let wrong = PostgresServer::start(&Options::new().with_config("no_such_line = 1")).await;
        let text = format!("{:?}", wrong.unwrap_err());
        assert!(text.contains("no_such_line"), "{text}");
        Ok(())
    });
}

#[test]
fn a_port_that_somebody_has_is_tried_again() {
    with_postgres(async {
        let taken = TcpListener::bind("127.0.0.1:0")?;
        let port = format!("port = {}", taken.local_addr()?.port());
        let never = PostgresServer::start(&Options::new().with_config(&port)).await.unwrap_err();
        assert!(format!("{never:?}").contains("was taken"), "{never:?}");

        let server = PostgresServer::start(&Options::new()).await?;
        assert_waits_for_its_port(&server).await
    });
}

#[test]
fn clients_can_be_disconnected_and_come_through_a_proxy() {
    with_postgres(async {
        let server = with_a_row(&Options::new()).await?;
        let proxy = Proxy::start(&server.address()).await?;
        let url = server.url().replace(&server.address(), &proxy.address());
        assert_eq!(server.query_at(&url, "select b from a").await?, [["1"]]);
        assert_eq!(proxy.connections(), 1);

        let sleeping = server.query_at(&url, "select pg_sleep(1000)");
        let (slept, count) = until_over(sleeping, || server.terminate_backends()).await?;
        assert!(count >= 1);
        assert!(slept.is_err());
        Ok(())
    });
}

#[test]
fn tls_is_spoken_with_a_certificate_that_the_authority_signed() {
    with_postgres(async {
        let server = PostgresServer::start(&Options::new().with_tls()).await?;
        let secure = "select ssl from pg_stat_ssl where pid = pg_backend_pid()";
        let url = server.tls_url().unwrap();
        assert_eq!(server.query_at(&url, secure).await?, [["t"]]);
        let other = PostgresServer::start(&Options::new().with_tls()).await?;
        let ours = server.ca().unwrap().display().to_string();
        let stranger = url.replace(&ours, &other.ca().unwrap().display().to_string());
        assert!(server.query_at(&stranger, secure).await.is_err());
        let plain = PostgresServer::start(&Options::new()).await?;
        assert!(plain.tls_url().is_none() && plain.client_certificate().is_none());
        Ok(())
    });
}

#[test]
fn a_standby_follows_and_refuses_to_write() {
    with_postgres(async {
        let primary = with_a_row(&Options::new()).await?;
        let standby = PostgresServer::start(&Options::new().standby_of(&primary)).await?;
        primary.run_sql("insert into a values (2)").await?;
        let follows = async {
            while standby.query("select b from a").await?.len() < 2 {}
            Ok::<_, Stop>(())
        };
        timeout(LONG, follows).await??;
        let refused = standby.query_at(&standby.url(), "insert into a values (3)").await;
        let text = format!("{:?}", refused.unwrap_err());
        assert!(text.contains("read-only transaction"), "{text}");
        primary.kill();
        standby.restart().await?;
        standby.run_sql("select pg_promote()").await?;
        standby.run_sql("insert into a values (3)").await
    });
}

#[test]
fn a_bouncer_gives_one_connection_to_many_clients() {
    with_postgres(async {
        let server = PostgresServer::start(&Options::new()).await?;
        let bouncer = PgBouncer::start(&server, &["default_pool_size = 1"]).await?;
        let pid = "select pg_backend_pid()";
        let first = server.query_at(&bouncer.url(), pid).await?;
        assert_eq!(server.query_at(&bouncer.url(), pid).await?, first);
        bouncer.restart().await?;
        assert_ne!(server.query_at(&bouncer.url(), pid).await?, first);

        assert_leaves_nothing(bouncer);
        Ok(())
    });
}

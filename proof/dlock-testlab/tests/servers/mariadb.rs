//! MariaDB servers.

use std::{net::TcpListener, pin::pin, time::Duration};

use dlock_testlab::{
    Proxy, Stop, Verdict,
    mariadb::{MariadbServer, Options},
};

use crate::{
    assert_dies, assert_ends_while_paused, assert_leaves_nothing, assert_restarts,
    assert_waits_for_its_port, until_over,
};

fn with_mariadb(test: impl Future<Output = Verdict>) {
    crate::with("mysql", test);
}

/// A server with a table `a` that has one row.
async fn with_a_row(options: &Options) -> Result<MariadbServer, Stop> {
    let server = MariadbServer::start(options).await?;
    let sql = "create table a (b int); insert into a values (1)";
    server.run_sql(sql).await?;
    Ok(server)
}

#[test]
fn a_server_answers_and_leaves_nothing_behind() {
    with_mariadb(async {
        let server = with_a_row(&Options::new()).await?;
        let rows = server.query("select b, 'x\\ty', null from a; select 'z\\n'").await?;
        assert_eq!(rows, [vec!["1", "x\ty", "NULL"], vec!["z\n"]]);
        assert!(server.query("select b from a where b > 1").await?.is_empty());
        assert_eq!(server.query_at(&server.url(), "select user()").await?, [["dlock@127.0.0.1"]]);
        let text = format!("{:?}", server.run_sql("select no").await.unwrap_err());
        assert!(text.contains("Unknown column 'no'"), "{text}");

        assert_leaves_nothing(server);
        Ok(())
    });
}

#[test]
fn committed_rows_outlive_a_kill_and_a_stop() {
    with_mariadb(async {
        for fsync in [false, true] {
            let server = with_a_row(&Options::new().with_fsync(fsync)).await?;
            let flush = if fsync { "1" } else { "2" };
            let says = server.query("select @@innodb_flush_log_at_trx_commit").await?;
            assert_eq!(says, [[flush]]);
            assert_dies(&server);
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
    with_mariadb(async {
        let server = MariadbServer::start(&Options::new()).await?;
        server.pause()?;
        let mut asked = pin!(server.query("select 1"));
        let early = tokio::time::timeout(Duration::from_millis(100), &mut asked).await;
        assert!(early.is_err());
        server.resume()?;
        assert_eq!(asked.await?, [["1"]]);
        assert_ends_while_paused(&server).await
    });
}

#[test]
fn options_reach_the_server() {
    with_mariadb(async {
        let options = Options::new().with_max_connections(17).with_config("read_only = 1");
        let server = with_a_row(&options).await?;
        assert_eq!(server.query("select @@max_connections").await?, [["17"]]);
        server.run_sql("create user alice identified by 'wonder'").await?;
        server.run_sql("grant all on dlock.* to alice").await?;
        let alice = server.url_of("alice", "wonder", "dlock");
        assert_eq!(server.query_at(&alice, "select b from a").await?, [["1"]]);
        let refused = server.query_at(&alice, "insert into a values (2)").await.unwrap_err();
        assert!(format!("{refused:?}").contains("read-only option"), "{refused:?}");
        let nobody = server.url_of("alice", "wrong", "dlock");
        assert!(server.query_at(&nobody, "select 1").await.is_err());

        let wrong = MariadbServer::start(&Options::new().with_config("no_such_line = 1")).await;
        let text = format!("{:?}", wrong.unwrap_err());
        assert!(text.contains("no_such_line"), "{text}");
        Ok(())
    });
}

#[test]
fn a_port_that_somebody_has_is_tried_again() {
    with_mariadb(async {
        let taken = TcpListener::bind("127.0.0.1:0")?;
        let port = format!("port = {}", taken.local_addr()?.port());
        let never = MariadbServer::start(&Options::new().with_config(&port)).await.unwrap_err();
        assert!(format!("{never:?}").contains("was taken"), "{never:?}");

        let server = MariadbServer::start(&Options::new()).await?;
        assert_waits_for_its_port(&server).await
    });
}

#[test]
fn clients_can_be_disconnected_and_come_through_a_proxy() {
    with_mariadb(async {
        let server = with_a_row(&Options::new()).await?;
        let proxy = Proxy::start(&server.address()).await?;
        let url = server.url().replace(&server.address(), &proxy.address());
        assert_eq!(server.query_at(&url, "select b from a").await?, [["1"]]);
        assert_eq!(proxy.connections(), 1);

        let sleeping = server.query_at(&url, "select sleep(1000)");
        let (slept, count) = until_over(sleeping, || server.terminate_backends()).await?;
        assert!(count >= 1);
        assert!(slept.is_err());
        Ok(())
    });
}

#[test]
fn tls_is_spoken_with_a_certificate_that_the_authority_signed() {
    with_mariadb(async {
        let server = MariadbServer::start(&Options::new().with_tls()).await?;
        let secure = "select variable_value <> '' from information_schema.session_status \
                      where variable_name = 'ssl_cipher'";
        let url = server.tls_url().unwrap();
        assert_eq!(server.query_at(&url, secure).await?, [["1"]]);
        let other = MariadbServer::start(&Options::new().with_tls()).await?;
        let ours = server.ca().unwrap().display().to_string();
        let stranger = url.replace(&ours, &other.ca().unwrap().display().to_string());
        assert!(server.query_at(&stranger, secure).await.is_err());
        let plain = MariadbServer::start(&Options::new()).await?;
        assert!(plain.tls_url().is_none() && plain.client_certificate().is_none());
        Ok(())
    });
}

//! Servers that can't be used, users with the least rights, and the message of each refusal.

use std::{error::Error as _, time::Duration};

use dlock_core::{
    Acquired,
    ConfigIssue::{Access, SchemaMissing, UnknownOption},
    Error, ErrorKind, Exclusion, Fencing, Registry, Scope, WakeUp,
};
use dlock_sql::{MYSQL, Mysql};
use dlock_testlab::{
    Verdict,
    mariadb::{MariadbServer, Options},
    rights::claims_end_after_a_refusal,
};
use sqlx::{Connection, MySqlConnection};

use crate::support::{
    assert_unavailable, config, connect, exclusive, free, granted, lock, queue, refused, server,
    server_with, take, with_mariadb,
};

const SOON: Duration = Duration::from_secs(4);

#[test]
fn a_wrong_user_password_or_database_is_refused() {
    with_mariadb(async {
        let server = server().await?;
        for user in ["dlock", "nobody"] {
            let url = server.url_of(user, "wrong", "dlock");
            refused(config(&url)?, Access, "user or password in the URL").await?;
        }
        refused(config(&server.url_of("root", "secret", "none"))?, Access, "create it").await?;
        refused(config(&server.url_of("dlock", "secret", "none"))?, Access, "lacks rights").await
    });
}

#[test]
fn a_server_that_does_not_run_is_unavailable() {
    with_mariadb(async {
        let server = server().await?;
        let config = config(&server.url())?.with_response_timeout(SOON);
        server.kill();
        let error = Mysql::open(config.clone()).await.expect_err("no server");
        assert_unavailable(&error, "check that it runs");
        server.restart().await?;
        Mysql::open(config.with_response_timeout(Duration::from_secs(30))).await?;
        Ok(())
    });
}

#[test]
fn a_server_that_does_not_answer_is_unavailable() {
    with_mariadb(async {
        let server = server().await?;
        let client = Mysql::open(config(&server.url())?.with_response_timeout(SOON)).await?;
        server.pause()?;
        let error = client.acquire(&exclusive("x")).await.expect_err("no answer");
        assert_unavailable(&error, "dlock.response_timeout");
        let open = Mysql::open(config(&server.url())?.with_response_timeout(SOON)).await;
        assert_unavailable(&open.expect_err("no answer"), "dlock.response_timeout");
        server.resume()?;
        let request = exclusive("y");
        lock(&client, &request).await?;
        free(&client, &request).await
    });
}

#[test]
fn a_replica_is_refused() {
    with_mariadb(async {
        let server = server_with(&Options::new().with_config("read_only = 1")).await?;
        refused(config(&server.url())?, Access, "of the primary").await?;
        refused(config(&server.admin_url())?, Access, "of the primary").await
    });
}

#[test]
fn a_server_that_becomes_a_replica_takes_no_locks() {
    with_mariadb(async {
        let server = server().await?;
        let client = Mysql::open(config(&server.url())?.with_response_timeout(SOON)).await?;
        server.run_sql("SET GLOBAL read_only = 1").await?;
        let error = client.acquire(&exclusive("x")).await.expect_err("read-only");
        assert_unavailable(&error, "of the primary");
        server.run_sql("SET GLOBAL read_only = 0").await?;
        take(&client, &exclusive("x")).await?;
        Ok(())
    });
}

#[test]
fn a_full_server_is_unavailable() {
    with_mariadb(async {
        let server = server_with(&Options::new().with_max_connections(10)).await?;
        let mut others = Vec::new();
        for _ in 0..10 {
            others.push(MySqlConnection::connect(&server.url()).await?);
        }
        let config = config(&server.url())?.with_response_timeout(SOON);
        let error = Mysql::open(config).await.expect_err("full");
        assert_unavailable(&error, "max_connections");
        Ok(())
    });
}

#[test]
fn clear_text_is_refused_where_the_server_forbids_it() {
    with_mariadb(async {
        let options = Options::new().with_tls().with_config("require_secure_transport = 1");
        let server = MariadbServer::start(&options).await?;
        // MariaDB 10.11 refuses the login, and 11.8 names the reason.
        refused(config(&server.url())?, Access, "ssl-mode").await
    });
}

#[test]
fn a_locked_account_is_refused() {
    with_mariadb(async {
        let server = server().await?;
        server.run_sql("ALTER USER dlock@'%' ACCOUNT LOCK").await?;
        refused(config(&server.url())?, Access, "account is locked").await
    });
}

#[test]
fn an_old_server_is_refused() {
    with_mariadb(async {
        let server = server_with(&Options::new().with_config("version = 10.5.9-MariaDB")).await?;
        let error = connect(&server).await.expect_err("old");
        assert_eq!(error.kind(), ErrorKind::Unsupported, "{error}");
        assert!(error.to_string().contains("use MariaDB 10.6"), "{error}");
        Ok(())
    });
}

#[test]
fn a_server_that_calls_itself_mysql_is_used_as_such() {
    with_mariadb(async {
        let server = server_with(&Options::new().with_config("version = 8.0.36")).await?;
        let (a, b) = (connect(&server).await?, connect(&server).await?);
        let (first, second) = (exclusive("x"), exclusive("x"));
        take(&a, &first).await?;
        queue(&b, &second).await?;
        free(&a, &first).await?;
        granted(&b, &second).await?;
        Ok(())
    });
}

#[test]
fn the_server_decides_what_is_promised() {
    with_mariadb(async {
        for (flush, exclusion) in [(1, Exclusion::Restart), (2, Exclusion::Nothing)] {
            let line = format!("innodb_flush_log_at_trx_commit = {flush}");
            let server = server_with(&Options::new().with_fsync(true).with_config(&line)).await?;
            let given = connect(&server).await?.guarantees();
            assert_eq!(given.exclusion, exclusion);
            assert_eq!(given.fencing, Fencing::Clock);
            assert_eq!((given.wake_up, given.scope), (WakeUp::Poll, Scope::Network));
        }
        Ok(())
    });
}

/// The statements do not depend on the defaults of the server.
#[test]
fn unusual_servers_are_used() {
    with_mariadb(async {
        let lines = "sql_mode = ANSI,ORACLE,NO_BACKSLASH_ESCAPES,PAD_CHAR_TO_FULL_LENGTH\n\
                     transaction_isolation = READ-UNCOMMITTED\n\
                     autocommit = 0\n\
                     default_storage_engine = MyISAM\n\
                     character_set_server = latin1\n\
                     default_time_zone = +05:00\n\
                     lower_case_table_names = 1\n\
                     log_bin = log\n\
                     binlog_format = STATEMENT";
        let server = MariadbServer::start(&Options::new().with_config(lines)).await?;
        for returning in [true, false] {
            let config = config(&server.url())?.with_create_schema(true).with_returning(returning);
            let (a, b) = (Mysql::open(config.clone()).await?, Mysql::open(config).await?);
            let (first, second) = (exclusive("ä"), exclusive("ä"));
            take(&a, &first).await?;
            queue(&b, &second).await?;
            free(&a, &first).await?;
            granted(&b, &second).await?;
            free(&b, &second).await?;
            let both = [exclusive("b"), exclusive("c")];
            for answer in a.acquire_all(&both).expect("known").await? {
                assert!(matches!(answer, Acquired::Granted(_)), "{answer:?}");
            }
            for request in &both {
                free(&a, request).await?;
            }
        }
        Ok(())
    });
}

#[test]
fn a_url_opens_the_database_and_names_it() {
    with_mariadb(async {
        let server = server().await?;
        let registry = Registry::new().with(MYSQL);
        let url = server.url().replace("mysql://", "mariadb://");
        let backend = registry.connect(url.parse()?, &[]).await?;
        assert_eq!(backend.store(), format!("mysql://{}/dlock", server.address()));
        let wrong = format!("{url}?dlock.nope=1").parse()?;
        let error = registry.connect(wrong, &[]).await.expect_err("unknown");
        assert_eq!(error.kind(), ErrorKind::Config(UnknownOption));
        server.run_sql("DROP TABLE dlock_lock, dlock_schema").await?;
        let error = registry.connect(url.parse()?, &[]).await.expect_err("no tables");
        assert_eq!(error.kind(), ErrorKind::Config(SchemaMissing));
        Ok(())
    });
}

async fn make_user(server: &MariadbServer, name: &str, rights: &[&str]) -> Verdict {
    let mut sql = format!(
        "CREATE USER {name}@'%' IDENTIFIED BY 'secret'; \
         GRANT SELECT ON dlock.dlock_schema TO {name}@'%';"
    );
    for right in rights {
        sql += &format!("GRANT {right} ON dlock.dlock_lock TO {name}@'%';");
    }
    server.run_sql(&sql).await
}

#[test]
fn a_user_with_the_least_rights_can_lock() {
    with_mariadb(async {
        let server = server().await?;
        make_user(&server, "least", &["SELECT", "INSERT", "UPDATE", "DELETE"]).await?;
        let url = server.url_of("least", "secret", "dlock");
        assert!(server.query_at(&url, "CREATE TABLE x (y INT)").await.is_err());
        for returning in [true, false] {
            let config = config(&url)?.with_returning(returning).with_create_schema(true);
            let (a, b) = (Mysql::open(config.clone()).await?, Mysql::open(config).await?);
            let (first, second) = (exclusive("x"), exclusive("x"));
            take(&a, &first).await?;
            queue(&b, &second).await?;
            free(&a, &first).await?;
            granted(&b, &second).await?;
            free(&b, &second).await?;
            for answer in a.acquire_all(&[exclusive("y"), exclusive("z")]).expect("known").await? {
                assert!(matches!(answer, dlock_core::Acquired::Granted(_)), "{answer:?}");
            }
            server.run_sql("DELETE FROM dlock_lock").await?;
        }
        Ok(())
    });
}

#[test]
fn each_missing_right_is_named() {
    with_mariadb(async {
        let server = server().await?;
        let all = ["SELECT", "INSERT", "UPDATE", "DELETE"];
        for missing in ["INSERT", "UPDATE", "DELETE"] {
            let rights: Vec<_> = all.into_iter().filter(|right| *right != missing).collect();
            let user = format!("no_{missing}");
            make_user(&server, &user, &rights).await?;
            let config = config(&server.url_of(&user, "secret", "dlock"))?;
            let remedy = format!("GRANT {missing} ON dlock_lock");
            refused(config, Access, remedy.leak()).await?;
        }
        make_user(&server, "looks", &["SELECT"]).await?;
        let config = config(&server.url_of("looks", "secret", "dlock"))?;
        refused(config, Access, "GRANT INSERT, UPDATE, DELETE ON dlock_lock").await
    });
}

#[test]
fn claims_whose_release_is_refused_end_with_their_leases() {
    with_mariadb(async {
        let server = server().await?;
        make_user(&server, "edited", &["SELECT", "INSERT", "UPDATE", "DELETE"]).await?;
        let client = Mysql::open(config(&server.url_of("edited", "secret", "dlock"))?).await?;
        let other = Mysql::open(config(&server.url())?).await?;
        claims_end_after_a_refusal(&client, &other, Duration::from_secs(3), async |on| {
            let verb = if on { "GRANT" } else { "REVOKE" };
            let whom = if on { "TO" } else { "FROM" };
            let rights = "SELECT, INSERT, UPDATE, DELETE ON dlock.dlock_lock";
            server.run_sql(&format!("{verb} {rights} {whom} edited@'%'")).await
        })
        .await
    });
}

/// An error as people print it, with all its sources.
fn printed(error: &Error) -> String {
    let mut text = format!("{error} {error:?} {error:#?}");
    let mut source = error.source();
    while let Some(error) = source {
        text += &format!("{error} {error:?}");
        source = error.source();
    }
    text
}

#[test]
fn the_password_is_shown_nowhere() {
    with_mariadb(async {
        let server = server().await?;
        let make = "CREATE USER u@'%' IDENTIFIED BY 'hunter2'; GRANT ALL ON dlock.* TO u@'%'";
        server.run_sql(make).await?;
        let right = config(&server.url_of("u", "hunter2", "dlock"))?
            .with_response_timeout(Duration::from_secs(5));
        let mut shown = format!("{right:?} {right:#?}");
        let client = Mysql::open(right.clone()).await?;
        shown += client.store();
        let wrong = config(&server.url_of("u", "hunter2x", "dlock"))?;
        shown += &printed(&Mysql::open(wrong).await.expect_err("wrong"));
        server.kill();
        shown += &printed(&client.acquire(&exclusive("x")).await.expect_err("no server"));
        shown += &printed(&Mysql::open(right).await.expect_err("no server"));
        assert!(!shown.contains("hunter2"), "{shown}");
        Ok(())
    });
}

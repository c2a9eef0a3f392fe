//! Opening a store: refusals, and the guarantees of an open store.

use std::{
    pin::pin,
    task::{Context, Poll, Waker},
};

use dlock_core::{Certainty, ConfigIssue, ErrorKind, Exclusion, Fencing, Registry, Scope, WakeUp};
use dlock_sql::{POSTGRES, Postgres};
use dlock_testlab::{
    Stop,
    postgres::{Options, PostgresServer},
};

use crate::support::{config, connect, create, refused, run, says, server, start, works};

const ACCESS: ErrorKind = ErrorKind::Config(ConfigIssue::Access);

#[test]
fn both_url_schemes_open_the_database() {
    run(async {
        let server = server().await?;
        let registry = Registry::new().with(POSTGRES);
        for scheme in ["postgres", "postgresql"] {
            let url = create(&server).replacen("postgres", scheme, 1);
            let client = registry.connect(url.parse()?, &[]).await?;
            assert_eq!(client.store(), format!("postgres://{}/dlock", server.address()));
        }
        let error =
            registry.connect(format!("{}?dlock.prefix=a", server.url()).parse()?, &[]).await;
        let unknown = ErrorKind::Config(ConfigIssue::UnknownOption);
        says(&error.err().ok_or_else(|| Stop::failed("it is let in"))?, unknown, "dlock.pooler");
        Ok(())
    });
}

#[test]
fn a_refused_login_is_explained() {
    run(async {
        let server = server().await?;
        let wrong = server.url_of("dlock", "secret-but-wrong", "dlock");
        says(&refused(&wrong).await?, ACCESS, "check user and password");
        let nobody = server.url_of("nobody", "secret", "dlock");
        says(&refused(&nobody).await?, ACCESS, "check user and password");
        let nowhere = server.url_of("dlock", "secret", "nowhere");
        says(&refused(&nowhere).await?, ACCESS, "create it, or correct the URL");
        Ok(())
    });
}

#[test]
fn a_stopped_server_is_unavailable() {
    run(async {
        let server = server().await?;
        server.stop().await?;
        let error = refused(&format!("{}?dlock.response_timeout=100ms", server.url())).await?;
        says(&error, ErrorKind::Unavailable, "check that it runs");
        assert_eq!(error.certainty(), Certainty::NotApplied);
        assert!(error.to_string().contains(&server.address()), "{error}");
        Ok(())
    });
}

#[test]
fn a_silent_server_is_unavailable_in_time() {
    run(async {
        let (server, client) = start().await?;
        server.pause()?;
        let error = refused(&format!("{}?dlock.response_timeout=1s", server.url())).await?;
        server.resume()?;
        says(&error, ErrorKind::Unavailable, "dlock.response_timeout");
        assert_eq!(error.certainty(), Certainty::NotApplied);
        works(&client, "a").await
    });
}

#[test]
fn another_protocol_is_not_taken_for_a_server() {
    run(async {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await?;
        let address = listener.local_addr()?;
        let answering = tokio::spawn(async move {
            while let Ok((mut stream, _)) = listener.accept().await {
                use tokio::io::AsyncWriteExt as _;
                let _ = stream.write_all(b"-ERR unknown command\r\n").await;
                tokio::time::sleep(std::time::Duration::from_secs(60)).await;
            }
        });
        let error = refused(&format!("postgres://dlock:secret@{address}/dlock")).await?;
        says(&error, ErrorKind::Protocol, "check the address");
        answering.abort();
        Ok(())
    });
}

#[test]
fn a_standby_is_refused_at_once() {
    run(async {
        let primary = PostgresServer::start(&Options::new()).await?;
        connect(&create(&primary)).await?;
        let standby = PostgresServer::start(&Options::new().standby_of(&primary)).await?;
        let error = refused(&standby.url()).await?;
        says(&error, ErrorKind::Unavailable, "give the address of the primary");
        Ok(())
    });
}

#[test]
fn a_read_only_user_is_refused() {
    run(async {
        let (server, _) = start().await?;
        server.run_sql("alter role dlock set default_transaction_read_only = on").await?;
        says(&refused(&server.url()).await?, ACCESS, "default_transaction_read_only = off");
        Ok(())
    });
}

#[test]
fn a_database_that_can_not_hold_every_name_is_refused() {
    run(async {
        let server = server().await?;
        server
            .run_sql("create database ascii owner dlock encoding 'LATIN1' template template0")
            .await?;
        let url = server.url_of("dlock", "secret", "ascii");
        let error = refused(&format!("{url}?dlock.create_schema=true")).await?;
        says(&error, ErrorKind::Config(ConfigIssue::ForeignStore), "UTF8");
        Ok(())
    });
}

#[test]
fn guarantees_depend_on_the_server_and_the_tables() {
    run(async {
        let server = PostgresServer::start(&Options::new().with_fsync(true)).await?;
        let exclusion = async |options: &str| {
            let client = connect(&format!("{}{options}", create(&server))).await?;
            let given = client.guarantees();
            assert_eq!(given.fencing, Fencing::Clock);
            assert_eq!(given.scope, Scope::Network);
            assert_eq!(given.wake_up, WakeUp::Push);
            works(&client, "a").await?;
            Ok::<_, Stop>(given.exclusion)
        };
        assert_eq!(exclusion("").await?, Exclusion::Restart);
        assert_eq!(exclusion("&dlock.durability=relaxed").await?, Exclusion::Nothing);
        server.run_sql("alter table dlock_lock set unlogged").await?;
        assert_eq!(exclusion("").await?, Exclusion::Nothing);
        server.run_sql("alter table dlock_lock set logged").await?;
        server.run_sql("alter system set fsync = off").await?;
        server.run_sql("select pg_reload_conf()").await?;
        crate::support::until("fsync is off", async || {
            Ok(server.query("show fsync").await? == [["off"]])
        })
        .await?;
        assert_eq!(exclusion("").await?, Exclusion::Nothing);
        Ok(())
    });
}

#[test]
fn opening_outside_a_runtime_is_an_error() {
    let config = config("postgres://u:secret@localhost/d").expect("a configuration");
    let mut opening = pin!(Postgres::open(config));
    let Poll::Ready(result) = opening.as_mut().poll(&mut Context::from_waker(Waker::noop())) else {
        panic!("it waits")
    };
    let error = result.expect_err("nowhere to run");
    says(&error, ErrorKind::Config(ConfigIssue::Runtime), "runtime");
}

#[test]
fn the_password_is_shown_nowhere() {
    run(async {
        let (server, client) = start().await?;
        let config = config(&server.url())?;
        assert!(!format!("{config:?}").contains("secret"), "{config:?}");
        assert!(!client.store().contains("secret"), "{}", client.store());
        server.stop().await?;
        let config = config.with_response_timeout(std::time::Duration::from_millis(50));
        let error = Postgres::open(config).await.err();
        let error = error.ok_or_else(|| Stop::failed("it is let in"))?;
        let mut source: Option<&dyn std::error::Error> = Some(&error);
        while let Some(shown) = source {
            assert!(!format!("{shown} {shown:?}").contains("secret"), "{shown:?}");
            source = shown.source();
        }
        Ok(())
    });
}

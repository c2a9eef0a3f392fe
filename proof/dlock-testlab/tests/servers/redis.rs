//! One server.

use std::{net::TcpListener, pin::pin, time::Duration};

use dlock_testlab::redis::{Options, Persistence, RedisServer, Reply, Resp};
use tokio::process::Command;

use crate::{assert_dies, assert_leaves_nothing, assert_waits_for_its_port, with_redis};

#[test]
fn a_server_answers_and_leaves_nothing_behind() {
    with_redis(async {
        let server = RedisServer::start(&Options::new()).await?;
        server.command(&["SET", "b", "1"]).await?.ok()?;
        server.command(&["SET", "a", "with\r\nlines"]).await?.ok()?;
        assert_eq!(server.keys("*").await?, ["a", "b"]);
        assert_eq!(server.command(&["GET", "a"]).await?.text()?, "with\r\nlines");
        assert_eq!(server.command(&["GET", "c"]).await?, Reply::Bulk(None));
        assert!(matches!(server.command(&["NO"]).await?, Reply::Error(_)));

        assert_leaves_nothing(server);
        Ok(())
    });
}

#[test]
fn a_restart_keeps_what_persistence_says() {
    with_redis(async {
        for (persistence, kept) in [(Persistence::None, 0), (Persistence::AofAlways, 1)] {
            let server = RedisServer::start(&Options::new().with_persistence(persistence)).await?;
            server.command(&["SET", "a", "1"]).await?.ok()?;
            let address = server.address();
            assert_dies(&server);
            assert!(server.command(&["PING"]).await.is_err());
            server.restart().await?;
            assert_eq!(server.address(), address);
            assert_eq!(server.keys("*").await?.len(), kept, "{persistence:?}");
        }
        Ok(())
    });
}

#[test]
fn a_paused_server_answers_once_it_resumes() {
    with_redis(async {
        let server = RedisServer::start(&Options::new()).await?;
        server.pause()?;
        let mut asked = pin!(server.command(&["PING"]));
        let early = tokio::time::timeout(Duration::from_millis(100), &mut asked).await;
        assert!(early.is_err());
        server.resume()?;
        assert_eq!(asked.await?.text()?, "PONG");

        // A paused server can be killed, too.
        server.pause()?;
        server.kill();
        assert!(server.pause().is_err() && server.resume().is_err());
        Ok(())
    });
}

#[test]
fn options_reach_the_server() {
    with_redis(async {
        let options = Options::new()
            .with_password("secret")
            .with_config("maxclients 100")
            .with_config("user alice on >wonder ~a* +@all")
            .with_socket();
        let server = RedisServer::start(&options).await?;
        assert_eq!(server.url(), format!("redis://:secret@{}", server.address()));
        let clients = server.command(&["CONFIG", "GET", "maxclients"]).await?.texts()?;
        assert_eq!(clients, ["maxclients", "100"]);
        assert!(server.socket().unwrap().exists());

        let mut alice = Resp::connect(&server.address()).await?;
        assert!(
            matches!(alice.command(&["GET", "a"]).await?, Reply::Error(why) if why.starts_with("NOAUTH"))
        );
        alice.command(&["AUTH", "alice", "wonder"]).await?.ok()?;
        assert_eq!(alice.command(&["GET", "a"]).await?, Reply::Bulk(None));
        assert!(
            matches!(alice.command(&["GET", "b"]).await?, Reply::Error(why) if why.starts_with("NOPERM"))
        );
        Ok(())
    });
}

#[test]
fn a_port_that_somebody_has_is_tried_again() {
    with_redis(async {
        let taken = TcpListener::bind("127.0.0.1:0")?;
        let port = format!("port {}", taken.local_addr()?.port());
        let never = RedisServer::start(&Options::new().with_config(&port)).await.unwrap_err();
        assert!(format!("{never:?}").contains("was taken"), "{never:?}");

        let server = RedisServer::start(&Options::new()).await?;
        assert_waits_for_its_port(&server).await
    });
}

#[test]
fn a_configuration_that_is_wrong_is_an_error_with_the_log() {
    with_redis(async {
        let wrong = RedisServer::start(&Options::new().with_config("no-such-line 1")).await;
        let text = format!("{:?}", wrong.unwrap_err());
        assert!(text.contains("no-such-line"), "{text}");
        Ok(())
    });
}

#[test]
fn clients_and_scripts_can_be_taken_away() {
    with_redis(async {
        let server = RedisServer::start(&Options::new()).await?;
        let mut normal = server.connect().await?;
        let sha = normal.command(&["SCRIPT", "LOAD", "return 1"]).await?.text()?;
        assert_eq!(normal.command(&["EVALSHA", &sha, "0"]).await?, Reply::Int(1));
        server.flush_scripts().await?;
        let missing = normal.command(&["EVALSHA", &sha, "0"]).await?;
        assert!(matches!(missing, Reply::Error(why) if why.starts_with("NOSCRIPT")));

        let mut subscriber = server.connect().await?;
        subscriber.command(&["SUBSCRIBE", "news"]).await?.ok()?;
        server.command(&["PUBLISH", "news", "hello"]).await?.ok()?;
        assert_eq!(subscriber.receive().await?.texts()?, ["message", "news", "hello"]);
        // The server may not have noticed yet that other connections were closed.
        assert!(server.kill_clients().await? >= 2);
        assert!(normal.command(&["PING"]).await.is_err());
        assert!(subscriber.receive().await.is_err());
        Ok(())
    });
}

#[test]
fn tls_is_spoken_with_a_certificate_that_the_authority_signed() {
    with_redis(async {
        let options = Options::new().with_tls().with_config("tls-auth-clients yes");
        let server = RedisServer::start(&options).await?;
        let (url, ca) = (server.tls_url().unwrap(), server.ca().unwrap());
        let (certificate, key) = server.client_certificate().unwrap();
        let client = || {
            let mut client = Command::new("redis-cli");
            client.args(["-u", &url, "--cacert"]).arg(&ca);
            client
        };
        let Ok(without) = client().arg("PING").output().await else {
            println!("ignored: redis-cli is not installed: apt-get install redis-tools");
            return Ok(());
        };
        assert!(!without.status.success());
        let mut known = client();
        known.arg("--cert").arg(certificate).arg("--key").arg(key);
        let with = known.arg("PING").output().await?;
        assert_eq!(String::from_utf8_lossy(&with.stdout).trim(), "PONG", "{with:?}");
        Ok(())
    });
}

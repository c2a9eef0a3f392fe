//! The proxy can drop the notifications of servers, and nothing else.

use std::time::Duration;

use dlock_testlab::{
    Protocol, Proxy,
    postgres::{self, PostgresServer},
    redis::{Options, RedisServer, Reply, Resp},
    zookeeper::{self, ZooKeeperServer},
};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpStream,
    time::timeout,
};

use crate::{watcher::Watcher, with, with_redis};

/// Long enough for events that have to happen.
const LONG: Duration = Duration::from_secs(60);

#[test]
fn messages_of_redis_get_lost_and_answers_pass() {
    with_redis(async {
        let server = RedisServer::start(&Options::new()).await?;
        let proxy = Proxy::start_for(&server.address(), Protocol::Redis).await?;
        let mut client = Resp::connect(&proxy.address()).await?;
        client.command(&["SUBSCRIBE", "news"]).await?.ok()?;
        let publish = async |text| server.command(&["PUBLISH", "news", text]).await?.ok()?.int();
        assert_eq!(publish("1").await?, 1);
        assert_eq!(client.receive().await?.texts()?, ["message", "news", "1"]);

        proxy.lose_pushes();
        assert_eq!((publish("2").await?, publish("3").await?), (1, 1));
        // After the notifications, on the same connection.
        let pong = client.command(&["PING"]).await?.ok()?.texts()?;
        assert_eq!((pong[0].as_str(), proxy.lost_pushes()), ("pong", 2));
        let more = client.command(&["SUBSCRIBE", "more"]).await?.ok()?.list()?;
        assert_eq!(more[2], Reply::Int(2));

        proxy.pass_pushes();
        assert_eq!(publish("4").await?, 1);
        assert_eq!(client.receive().await?.texts()?, ["message", "news", "4"]);
        assert_eq!((proxy.lost_pushes(), proxy.dropped_bytes()), (2, 0));
        Ok(())
    });
}

#[test]
fn messages_between_the_answers_of_one_connection_get_lost() {
    with_redis(async {
        let server = RedisServer::start(&Options::new()).await?;
        let proxy = Proxy::start_for(&server.address(), Protocol::Redis).await?;
        let mut client = TcpStream::connect(proxy.address()).await?;
        client.write_all(b"HELLO 3\r\nSUBSCRIBE a\r\nPUBLISH a 1\r\nGET key-one\r\n").await?;
        until_said(&mut client, "message", "_\r\n").await?;
        proxy.lose_pushes();
        client.write_all(b"PUBLISH a 2\r\nECHO end\r\n").await?;
        let said = until_said(&mut client, ":1\r\n", "end\r\n").await?;
        assert!(!said.contains("message"), "{said}");
        assert_eq!(proxy.lost_pushes(), 1);
        Ok(())
    });
}

/// Reads until the last text has arrived, after the first one.
async fn until_said(
    client: &mut TcpStream,
    first: &str,
    last: &str,
) -> Result<String, dlock_testlab::Stop> {
    let mut said = Vec::new();
    loop {
        timeout(LONG, client.read_buf(&mut said)).await??;
        let text = String::from_utf8_lossy(&said);
        if text.contains(first) && text.ends_with(last) {
            return Ok(text.into_owned());
        }
    }
}

#[test]
fn notifications_of_postgres_get_lost_and_answers_pass() {
    with("postgres", async {
        let server = PostgresServer::start(&postgres::Options::new()).await?;
        let proxy = Proxy::start_for(&server.address(), Protocol::Postgres).await?;
        let url = server.url().replace(&server.address(), &proxy.address());
        let talk = "listen a; notify a, 'hello'; select 'an' || 'swer'";
        let heard = async || {
            Ok::<_, dlock_testlab::Stop>(server.query_at(&url, talk).await?.concat().concat())
        };
        let all = heard().await?;
        assert!(all.contains("answer") && all.contains("hello"), "{all}");
        proxy.lose_pushes();
        let rest = heard().await?;
        assert!(rest.contains("answer") && !rest.contains("hello"), "{rest}");
        assert_eq!(proxy.lost_pushes(), 1);
        // All bytes together are unchanged, so the client sends no request on a connection that
        // lost its position.
        proxy.pass().await?;
        assert!(heard().await?.contains("hello"));
        Ok(())
    });
}

#[test]
fn events_of_zookeeper_get_lost_and_answers_pass() {
    with("zk", async {
        let server = ZooKeeperServer::start(&zookeeper::Options::new()).await?;
        let proxy = Proxy::start_for(&server.address(), Protocol::ZooKeeper).await?;
        let mut client = Watcher::connect(&proxy.address()).await?;
        for node in ["/a", "/b"] {
            server.create(node, "").await?;
            assert!(client.watch(node).await?);
        }
        server.delete_recursively("/a").await?;
        timeout(LONG, client.event()).await??;
        proxy.lose_pushes();
        server.delete_recursively("/b").await?;
        // The answer arrives after the event.
        assert!(!client.watch("/b").await?);
        assert_eq!(proxy.lost_pushes(), 1);
        Ok(())
    });
}

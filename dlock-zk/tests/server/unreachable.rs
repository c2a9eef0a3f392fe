//! Servers that are down, servers that do not answer, and ports of other programs.

use std::{net::Ipv4Addr, time::Duration};

use dlock_core::{ErrorKind, StoreEvent};
use dlock_testlab::{
    Flow, Proxy, Stop,
    zookeeper::{Options, ZooKeeperServer},
};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpListener,
    task::JoinSet,
    time::{sleep, timeout},
};

use crate::support::{
    connect, exclusive, fails, free, refused, renew, run, says, server, take, until,
    until_it_works, url, works,
};

const UNAVAILABLE: ErrorKind = ErrorKind::Unavailable;

/// A port without a listener.
async fn nobody() -> Result<String, Stop> {
    Ok(TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await?.local_addr()?.to_string())
}

/// Answers every request with these bytes, and closes the connection if `hangs_up` is set. Ends
/// when it is dropped.
async fn stranger(answer: &'static [u8], hangs_up: bool) -> Result<(String, JoinSet<()>), Stop> {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await?;
    let address = listener.local_addr()?.to_string();
    let mut tasks = JoinSet::new();
    tasks.spawn(async move {
        let mut connections = JoinSet::new();
        while let Ok((mut connection, _)) = listener.accept().await {
            connections.spawn(async move {
                let mut request = [0; 512];
                while connection.read(&mut request).await.is_ok_and(|length| length > 0) {
                    if connection.write_all(answer).await.is_err() || hangs_up {
                        break;
                    }
                }
            });
        }
    });
    Ok((address, tasks))
}

#[test]
fn an_address_without_a_server_is_reported_at_once() {
    run(async {
        let (one, two) = (nobody().await?, nobody().await?);
        for hosts in [one.clone(), format!("{one},{two}"), "localhost:1,[::1]:1".to_owned()] {
            let url = format!("zk://{hosts}?dlock.session_timeout=60s");
            let error = timeout(Duration::from_secs(5), refused(&url)).await??;
            says(&error, UNAVAILABLE, "no server can be reached");
        }
        Ok(())
    })
}

#[test]
fn an_unknown_host_name_is_reported() {
    run(async {
        let error = refused("zk://zookeeper.invalid?dlock.session_timeout=5s").await?;
        says(&error, UNAVAILABLE, "no server can be reached");
        Ok(())
    })
}

#[test]
fn a_server_without_room_for_a_connection_names_its_limit() {
    run(async {
        let options = Options::new().with_config("maxClientCnxns=2");
        let server = ZooKeeperServer::start(&options).await?;
        let mut connections = Vec::new();
        // The connections on which a client asks for the settings count as well, for a moment.
        until("the limit is named", async || {
            assert!(connections.len() < 9, "there is no limit");
            match connect(&url(&server)).await {
                Ok(client) => connections.push(client),
                Err(error) => return Ok(error.to_string().contains("maxClientCnxns")),
            }
            Ok(false)
        })
        .await
    })
}

#[test]
fn a_silent_server_is_given_up_in_time() {
    run(async {
        let (silent, _task) = stranger(b"", false).await?;
        for (hosts, session) in [(silent.clone(), "5s"), (format!("{silent},{silent}"), "60s")] {
            let url = format!("zk://{hosts}?dlock.session_timeout={session}");
            says(&refused(&url).await?, UNAVAILABLE, "check that they run");
        }
        Ok(())
    })
}

#[test]
fn a_server_other_than_zookeeper_is_reported() {
    run(async {
        for answer in [
            &b"-ERR unknown command\r\n"[..],
            b"HTTP/1.1 400 Bad Request\r\nConnection: close\r\n\r\n",
            b"\0\0\0\x04\0\0\0\0",
            b"\0\0\0\0",
            b"\xff\xff\xff\xff",
            b"\xff\xff\xff\x00\0\0\0\0",
            b"\x7f\xff\xff\xff",
            // An answer of the right length, with invalid contents.
            b"\0\0\0\x25AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA",
            b"\0\0\0\x25\0\0\0\0\xff\xff\xff\xff\x01\x01\x01\x01\x01\x01\x01\x01\xff\xff\xff\xff...........",
            b"",
        ] {
            for hangs_up in [true, false] {
                let (address, _task) = stranger(answer, hangs_up).await?;
                let url = format!("zk://{address}?dlock.session_timeout=2s");
                let error = refused(&url).await?;
                let kinds = [UNAVAILABLE, ErrorKind::Protocol];
                assert!(kinds.contains(&error.kind()), "{answer:?}: {error:?}");
            }
        }
        Ok(())
    })
}

#[test]
fn some_hosts_that_are_dead_or_silent_are_passed_over() {
    run(async {
        let server = server().await?;
        let (dead, (silent, _task)) = (nobody().await?, stranger(b"", false).await?);
        let (other, _other) = stranger(b"-ERR\r\n", true).await?;
        let alive = server.address();
        for hosts in [
            format!("{dead},{alive}"),
            format!("{alive},{dead}"),
            format!("{silent},{alive}"),
            format!("{other},{alive}"),
            format!("{dead},{other},{silent},{alive}"),
        ] {
            let url = format!("zk://{hosts}?dlock.session_timeout=10s");
            works(&connect(&url).await?, "a").await?;
        }
        Ok(())
    })
}

/// A held lock, too: after an outage shorter than the session timeout, the lock is still held.
#[test]
fn a_silent_server_is_reported_in_time_and_used_again() {
    run(async {
        let server = server().await?;
        let proxy = Proxy::start(&server.address()).await?;
        let url = format!("zk://{}?dlock.session_timeout=20s", proxy.address());
        let client = connect(&url).await?;
        let held = exclusive("held");
        take(&client, &held).await?;
        proxy.replies(Flow::Hold);
        says(&fails(&client, &exclusive("a")).await?, UNAVAILABLE, "check that the servers run");
        let state = client.inspect(&held.name).await;
        says(&state.err().ok_or("it is answered")?, UNAVAILABLE, "check that");
        proxy.replies(Flow::Pass);
        until_it_works(&client).await?;
        renew(&client, &held).await?;
        free(&client, &held).await
    })
}

#[test]
fn a_server_is_used_again_after_an_outage_past_the_session() {
    run(async {
        let server = server().await?;
        let url = format!("zk://{}?dlock.session_timeout=2s", server.address());
        let client = connect(&url).await?;
        let mut losses = client.events().ok_or("it tells of no losses")?;
        let held = exclusive("held");
        take(&client, &held).await?;
        server.kill();
        let lost = timeout(crate::support::SOON, losses.recv()).await??;
        assert_eq!(lost, StoreEvent::Ended(held.claim));
        for _ in 0..3 {
            says(&fails(&client, &exclusive("a")).await?, UNAVAILABLE, "check that");
            sleep(Duration::from_millis(200)).await;
        }
        server.restart().await?;
        until_it_works(&client).await
    })
}

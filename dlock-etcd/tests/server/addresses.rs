//! A host name that stands for several addresses, and IPv6 addresses.

use std::net::{Ipv6Addr, SocketAddr};

use dlock_core::ErrorKind;
use dlock_testlab::{
    Door, Proxy, Stop, Verdict,
    etcd::{Ensemble, Options},
    rerun_with_addresses, server_of_rerun,
};
use tokio::net::{TcpListener, TcpSocket, TcpStream};

use crate::support::{connect, exclusive, free, renew, run, server, take, until, works};

/// An address that drops the packets of new connections, since its queue of them is full.
struct Swallows {
    _listener: TcpListener,
    _queue: Vec<TcpStream>,
}

impl Swallows {
    async fn at(address: SocketAddr) -> Result<Self, Stop> {
        let socket = TcpSocket::new_v4()?;
        socket.bind(address)?;
        let (listener, mut queue) = (socket.listen(1)?, Vec::new());
        let connect = || tokio::time::timeout(FULL, TcpStream::connect(address));
        while let Ok(connected) = connect().await {
            queue.push(connected?);
        }
        Ok(Self { _listener: listener, _queue: queue })
    }
}

/// A connection that takes longer than this has found a full queue.
const FULL: std::time::Duration = std::time::Duration::from_millis(300);

#[test]
fn addresses_that_do_not_answer_are_passed_over() {
    const TEST: &str = "addresses::addresses_that_do_not_answer_are_passed_over";
    run(async {
        let Some(address) = server_of_rerun() else {
            let server = server().await?;
            let addresses = ["127.0.0.2", "127.0.0.3", "127.0.0.4", "127.0.0.5"];
            return rerun_with_addresses(TEST, &server.address(), &addresses).await;
        };
        let port = TcpListener::bind(("127.0.0.5", 0)).await?.local_addr()?.port();
        let at = |last| SocketAddr::from(([127, 0, 0, last], port));
        // One drops packets, one is connected and silent, one refuses connections, and one is well.
        let (_swallows, _silent) = (Swallows::at(at(2)).await?, TcpListener::bind(at(3)).await?);
        let _well = Proxy::start_at(at(5), &address).await?;
        for _ in 0..3 {
            let url = format!("etcd://localhost:{port}?dlock.session_timeout=15s");
            works(&connect(&url).await?, "a").await?;
        }
        Ok(())
    });
}

/// The members of a cluster with one name, as a headless service of Kubernetes has.
#[test]
fn a_lock_outlives_each_member_that_one_name_stands_for() {
    const TEST: &str = "addresses::a_lock_outlives_each_member_that_one_name_stands_for";
    run(async {
        if server_of_rerun().is_none() {
            return rerun_with_addresses(TEST, "", &["127.0.0.2", "127.0.0.3", "127.0.0.4"]).await;
        }
        let servers = Ensemble::start(&Options::new()).await?;
        let port = TcpListener::bind(("127.0.0.2", 0)).await?.local_addr()?.port();
        let mut ways = Vec::new();
        for (last, server) in (2..).zip(servers.addresses()) {
            ways.push(Proxy::start_at(SocketAddr::from(([127, 0, 0, last], port)), &server).await?);
        }
        let url = format!("etcd://localhost:{port}?dlock.session_timeout=24s");
        let client = connect(&url).await?;
        let held = exclusive("a");
        take(&client, &held).await?;
        for (at, way) in ways.iter().enumerate() {
            for is_silent in [true, false] {
                let bytes = || ways.iter().map(Proxy::reply_bytes).collect::<Vec<_>>();
                let before = bytes();
                if is_silent {
                    way.half_open();
                    way.door(Door::Silent).await?;
                } else {
                    servers.nodes()[at].kill();
                }
                goes_on(&client).await?;
                renew(&client, &held).await?;
                let others = bytes()
                    .iter()
                    .zip(before)
                    .enumerate()
                    .any(|(other, (now, before))| other != at && *now > before);
                assert!(others, "no other member was used");
                way.cut();
                way.pass().await?;
                if !is_silent {
                    servers.nodes()[at].restart().await?;
                }
            }
        }
        free(&client, &held).await
    });
}

/// Waits until a lock can be acquired.
async fn goes_on(client: &dlock_core::DynBackend) -> Verdict {
    until("another member is used", async || {
        let request = exclusive("b");
        match client.acquire(&request).await {
            Ok(_) => free(client, &request).await.map(|()| true),
            Err(error) if error.kind() == ErrorKind::Unavailable => Ok(false),
            Err(error) => Err(error.into()),
        }
    })
    .await
}

#[test]
fn ipv6_literals_are_addresses() {
    run(async {
        let server = server().await?;
        let Ok(proxy) = TcpListener::bind((Ipv6Addr::LOCALHOST, 0)).await else {
            println!("not tested: there is no IPv6");
            return Ok(());
        };
        let port = proxy.local_addr()?.port();
        let relaying = async {
            loop {
                let (mut client, _) = proxy.accept().await?;
                let mut stream = tokio::net::TcpStream::connect(server.address()).await?;
                tokio::io::copy_bidirectional(&mut client, &mut stream).await?;
            }
        };
        let working = async {
            let client = connect(&format!("etcd://[::1]:{port}?dlock.session_timeout=15s")).await?;
            works(&client, "a").await
        };
        tokio::select! {
            ended = relaying => ended,
            works = working => works,
        }
    });
}

//! The members of a cluster: host names that stand for several addresses, how often a member that does
//! not serve is dialled, and members that are removed.

use std::{
    net::{Ipv6Addr, SocketAddr},
    sync::atomic::{AtomicBool, Ordering},
    time::Duration,
};

use dlock_core::{Clock, DynBackend, ErrorKind, Exclusion, Mode};
use dlock_testlab::{
    Door, Proxy, Stop, Verdict,
    etcd::{Ensemble, EtcdServer, Options},
    rerun_with_addresses, server_of_rerun,
};
use futures_util::{
    FutureExt,
    future::{Either, join_all, select, try_join_all},
};
use tokio::{
    net::{TcpListener, TcpSocket, TcpStream},
    time::{sleep, timeout},
};

use crate::support::{attempt, connect, exclusive, free, renew, run, server, take, until, works};

/// An address that drops the packets of new connections, because its backlog is full.
struct Swallows {
    _listener: TcpListener,
    _queue: Vec<TcpStream>,
}

impl Swallows {
    async fn at(address: SocketAddr) -> Result<Self, Stop> {
        let socket = TcpSocket::new_v4()?;
        socket.bind(address)?;
        let (listener, mut queue) = (socket.listen(1)?, Vec::new());
        let connect = || timeout(FULL, TcpStream::connect(address));
        while let Ok(connected) = connect().await {
            queue.push(connected?);
        }
        Ok(Self { _listener: listener, _queue: queue })
    }
}

/// A connection that takes longer than this has found a full backlog.
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
        // One address drops packets, one accepts connections and never answers, one refuses
        // connections, and one works.
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

/// The metric of a server that counts how often it was asked for its status.
const ASKED: &str = "grpc_server_started_total{grpc_method=\"Status\",\
                     grpc_service=\"etcdserverpb.Maintenance\",grpc_type=\"unary\"}";

#[test]
fn a_connect_asks_no_other_member() {
    run(async {
        let servers = Ensemble::start(&Options::new()).await?;
        let (leader, follower) = (servers.leader().await?, servers.followers().await?[0]);
        let asked = async || servers.nodes()[follower].metric(ASKED).await.unwrap_or_default();
        let before = asked().await;
        let client = connect(&servers.nodes()[leader].url()).await?;
        assert_eq!(client.guarantees().exclusion, Exclusion::Failover);
        assert!(asked().await <= before, "it asks a member that it does not use");
        client.examine().await?;
        assert!(asked().await > before, "the doctor asks all");
        Ok(())
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

/// The sum of the shortest pauses between connections: half of 20 ms, and twice as long after each, up
/// to half of a twelfth of the session.
fn least(connections: u64, session: Duration) -> Duration {
    let pause = |number: u32| (Duration::from_millis(20) * (1 << number)).min(session / 12) / 2;
    (1..connections).zip(0..).map(|(_, number)| pause(number)).sum()
}

/// Waits for this many connections. Fails if they took less than the [`least`] time.
async fn paced(proxy: &Proxy, connections: u64, session: Duration) -> Verdict {
    let (before, began) = (proxy.connections(), Clock::Boot.now());
    until("it is dialled", async || Ok(proxy.connections() - before >= connections)).await?;
    let (took, least) = (Clock::Boot.now().since(began), least(connections, session));
    println!("{connections} connections within {took:?}");
    assert!(took >= least, "{connections} connections within {took:?}, not {least:?}");
    Ok(())
}

#[test]
fn a_member_that_is_down_is_dialled_with_a_backoff() {
    run(async {
        let server = server().await?;
        let proxy = Proxy::start(&server.address()).await?;
        let session = Duration::from_secs(60);
        let url =
            format!("etcd://{}?dlock.session_timeout={}s", proxy.address(), session.as_secs());
        let client = connect(&url).await?;
        take(&client, &exclusive("a")).await?;
        server.kill();
        // The number of callers does not change the number of connections.
        let callers = join_all((0..20).map(async |at| {
            loop {
                let request = attempt(&at.to_string(), Mode::Exclusive);
                match client.acquire(&request).await {
                    Err(error) if error.kind() == ErrorKind::Unavailable => {}
                    answer => return answer,
                }
            }
        }));
        let paced = Box::pin(paced(&proxy, 9, session));
        match select(paced, callers).await {
            Either::Left((paced, _)) => paced,
            Either::Right((answers, _)) => Err(Stop::failed(format!("{answers:?}"))),
        }
    });
}

/// After an election, a server without space for a new lease refuses each heartbeat at once. New
/// connections are served.
#[test]
fn a_member_that_refuses_heartbeats_is_dialled_with_a_backoff() {
    run(async {
        let server = EtcdServer::start(&Options::new().with_quota(4 << 20)).await?;
        let proxy = Proxy::start(&server.address()).await?;
        let session = Duration::from_secs(12);
        let url =
            format!("etcd://{}?dlock.session_timeout={}s", proxy.address(), session.as_secs());
        let client = connect(&url).await?;
        take(&client, &exclusive("a")).await?;
        server.fill().await?;
        server.restart().await?;
        // By then, the next heartbeat is due.
        sleep(session / 6).await;
        paced(&proxy, 8, session).await
    });
}

/// The number of callers that acquire and release locks meanwhile.
const CALLERS: usize = 16;

#[test]
fn locks_outlive_the_removal_of_a_follower() {
    run(async {
        let servers = Ensemble::start(&Options::new()).await?;
        removal(&servers, servers.followers().await?[0]).await
    });
}

#[test]
fn locks_outlive_the_removal_of_the_leader() {
    run(async {
        let servers = Ensemble::start(&Options::new()).await?;
        removal(&servers, servers.leader().await?).await
    });
}

async fn removal(servers: &Ensemble, removed: usize) -> Verdict {
    let mut addresses = vec![servers.addresses()[removed].clone()];
    let mut others = Vec::new();
    for (_, address) in servers.addresses().iter().enumerate().filter(|(at, _)| *at != removed) {
        let proxy = Proxy::start(address).await?;
        proxy.door(Door::Closed).await?;
        addresses.push(proxy.address());
        others.push(proxy);
    }
    let url = format!("etcd://{}?dlock.session_timeout=24s", addresses.join(","));
    let client = connect(&url).await?;
    let held: Vec<_> = (0..8).map(|at| exclusive(&format!("held{at}"))).collect();
    try_join_all(held.iter().map(|held| take(&client, held))).await?;
    let mut losses = client.events().ok_or("it reports no losses")?;
    for other in &others {
        other.door(Door::Open).await?;
    }

    let is_removed = AtomicBool::new(false);
    let removing = async {
        let removed = servers.remove(removed).await;
        is_removed.store(true, Ordering::SeqCst);
        removed
    };
    let calling = join_all((0..CALLERS).map(|caller| calls(&client, caller, &is_removed)));
    let (removing, calling) = tokio::join!(removing, calling);
    removing?;
    calling.into_iter().collect::<Verdict>()?;
    assert!(others.iter().any(|other| other.connections() > 0), "no other member is used");

    works(&client, "another").await?;
    for held in &held {
        renew(&client, held).await?;
        free(&client, held).await?;
    }
    assert!(losses.recv().now_or_never().is_none(), "a lock was lost");
    Ok(())
}

/// Acquires and releases locks until the member has ended, and one time after that. A request may
/// fail.
async fn calls(client: &DynBackend, caller: usize, is_removed: &AtomicBool) -> Verdict {
    for number in 0.. {
        let was_removed = is_removed.load(Ordering::SeqCst);
        let request = exclusive(&format!("{caller}-{number}"));
        let acquired = client.acquire(&request).await;
        let released = client.release(&request.as_claim()).await;
        for error in [acquired.err(), released.err()].into_iter().flatten() {
            if error.kind() != ErrorKind::Unavailable {
                return Err(error.into());
            }
            sleep(Duration::from_millis(5)).await;
        }
        if was_removed {
            break;
        }
    }
    Ok(())
}

//! The faults of the proxy. The server is an echo, so the tests need no installed server.

use std::{io, net::TcpListener, thread, time::Duration};

use dlock_testlab::{Door, Flow, Protocol, Proxy};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpStream,
    time::{Instant, sleep, timeout},
};

/// Long enough for events that have to happen.
const LONG: Duration = Duration::from_secs(60);
/// Long enough to notice an event that must not happen.
const SHORT: Duration = Duration::from_millis(100);

/// Starts an echo server, which ends with the test binary. Returns its address.
fn echo() -> String {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let address = listener.local_addr().expect("an address").to_string();
    thread::spawn(move || {
        for client in listener.incoming().flatten() {
            thread::spawn(move || io::copy(&mut &client, &mut &client));
        }
    });
    address
}

async fn connect(proxy: &Proxy) -> TcpStream {
    let connecting = timeout(LONG, TcpStream::connect(proxy.address()));
    connecting.await.expect("an answer").expect("a connection")
}

/// Returns the byte that arrives within this time, if there is one.
async fn answer(client: &mut TcpStream, within: Duration) -> Option<io::Result<u8>> {
    timeout(within, client.read_u8()).await.ok()
}

async fn assert_answers(client: &mut TcpStream, byte: u8) {
    client.write_u8(byte).await.expect("a connection");
    let answer = answer(client, LONG).await.expect("an answer");
    assert_eq!(answer.expect("a byte"), byte);
}

#[tokio::test]
async fn traffic_is_counted() {
    let proxy = Proxy::start(&echo()).await.unwrap();
    for byte in 0..3 {
        assert_answers(&mut connect(&proxy).await, byte).await;
    }
    assert_eq!((proxy.connections(), proxy.request_bytes(), proxy.reply_bytes()), (3, 3, 3));
    assert_eq!(proxy.round_trips(), 3);
}

#[tokio::test]
async fn a_round_trip_begins_when_a_client_speaks_after_the_server() {
    let proxy = Proxy::start_for(&echo(), Protocol::Redis).await.unwrap();
    let client = &mut connect(&proxy).await;
    let mut answer = [0; 5];
    for _ in 0..2 {
        client.write_all(b"+OK\r\n").await.unwrap();
        timeout(LONG, client.read_exact(&mut answer)).await.expect("an answer").unwrap();
    }
    assert_eq!((proxy.round_trips(), proxy.answers(), proxy.pushes()), (2, 2, 0));

    // The first part has no answer, so the second part belongs to the same request.
    proxy.replies(Flow::Hold);
    for part in [b"+A", b"B\r"] {
        let before = proxy.request_bytes();
        client.write_all(part).await.unwrap();
        let come = async {
            while proxy.request_bytes() == before {
                sleep(Duration::from_millis(5)).await;
            }
        };
        timeout(LONG, come).await.expect("it comes");
    }
    assert_eq!(proxy.round_trips(), 3);
}

#[tokio::test]
async fn each_direction_can_be_delayed() {
    let proxy = Proxy::start(&echo()).await.unwrap();
    let client = &mut connect(&proxy).await;
    for set in [Proxy::requests, Proxy::replies] {
        set(&proxy, Flow::Delay(SHORT));
        let start = Instant::now();
        assert_answers(client, 1).await;
        assert!(start.elapsed() >= SHORT);
        set(&proxy, Flow::Pass);
    }
}

#[tokio::test]
async fn held_bytes_arrive_later_and_dropped_ones_never() {
    let proxy = Proxy::start(&echo()).await.unwrap();
    for set in [Proxy::requests, Proxy::replies] {
        let client = &mut connect(&proxy).await;
        assert_answers(client, 1).await;
        set(&proxy, Flow::Hold);
        client.write_u8(2).await.unwrap();
        assert!(answer(client, SHORT).await.is_none());
        set(&proxy, Flow::Pass);
        assert_eq!(answer(client, LONG).await.unwrap().unwrap(), 2);

        let (requests, replies) = (proxy.request_bytes(), proxy.reply_bytes());
        set(&proxy, Flow::Drop);
        client.write_u8(3).await.unwrap();
        assert!(answer(client, SHORT).await.is_none());
        set(&proxy, Flow::Pass);
        assert!(answer(client, SHORT).await.is_none());
        assert_eq!(proxy.request_bytes(), requests + 1);
        assert!(proxy.reply_bytes() <= replies + 1);
    }
}

#[tokio::test]
async fn connections_are_reset_or_closed_and_new_ones_pass() {
    let proxy = Proxy::start(&echo()).await.unwrap();
    let client = &mut connect(&proxy).await;
    assert_answers(client, 1).await;
    proxy.cut();
    let error = answer(client, LONG).await.unwrap().unwrap_err();
    assert_eq!(error.kind(), io::ErrorKind::ConnectionReset);

    let client = &mut connect(&proxy).await;
    assert_answers(client, 2).await;
    proxy.hang_up();
    let error = answer(client, LONG).await.unwrap().unwrap_err();
    assert_eq!(error.kind(), io::ErrorKind::UnexpectedEof);

    assert_answers(&mut connect(&proxy).await, 3).await;
}

#[tokio::test]
async fn the_door_can_be_closed_and_silent() {
    let proxy = Proxy::start(&echo()).await.unwrap();
    let early = &mut connect(&proxy).await;
    assert_answers(early, 1).await;
    for _ in 0..3 {
        proxy.door(Door::Closed).await.unwrap();
        let refused = TcpStream::connect(proxy.address()).await.unwrap_err();
        assert_eq!(refused.kind(), io::ErrorKind::ConnectionRefused);
        assert_answers(early, 2).await;

        proxy.door(Door::Silent).await.unwrap();
        let unheard = &mut connect(&proxy).await;
        unheard.write_u8(3).await.unwrap();
        assert!(answer(unheard, SHORT).await.is_none());

        proxy.pass().await.unwrap();
        assert_answers(&mut connect(&proxy).await, 4).await;
        assert!(answer(unheard, SHORT).await.is_none());
        proxy.cut();
        assert!(answer(unheard, LONG).await.unwrap().is_err());
        let _ = answer(early, LONG).await.unwrap().unwrap_err();
        *early = connect(&proxy).await;
        assert_answers(early, 5).await;
    }
}

#[tokio::test]
async fn a_dead_server_closes_and_a_dropped_proxy_refuses() {
    let nobody = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().to_string();
    let proxy = Proxy::start(&nobody).await.unwrap();
    let client = &mut connect(&proxy).await;
    assert!(answer(client, LONG).await.unwrap().is_err());

    let address = proxy.address();
    drop(proxy);
    let refused = async {
        while TcpStream::connect(&address).await.is_ok() {
            sleep(Duration::from_millis(10)).await;
        }
    };
    timeout(LONG, refused).await.unwrap();
}

#[tokio::test]
async fn faults_are_counted() {
    let proxy = Proxy::start(&echo()).await.unwrap();
    let client = &mut connect(&proxy).await;
    assert_answers(client, 1).await;
    let counts = |proxy: &Proxy| {
        (proxy.held_bytes(), proxy.delayed_bytes(), proxy.dropped_bytes(), proxy.cuts())
    };
    assert_eq!(counts(&proxy), (0, 0, 0, 0));
    proxy.requests(Flow::Delay(Duration::from_millis(1)));
    assert_answers(client, 2).await;
    assert_eq!(counts(&proxy), (0, 1, 0, 0));

    proxy.requests(Flow::Pass);
    proxy.replies(Flow::Hold);
    client.write_u8(3).await.unwrap();
    until(|| counts(&proxy) == (1, 1, 0, 0)).await;
    proxy.replies(Flow::Pass);
    assert_eq!(answer(client, LONG).await.unwrap().unwrap(), 3);
    proxy.replies(Flow::Drop);
    client.write_u8(4).await.unwrap();
    until(|| counts(&proxy) == (1, 1, 1, 0)).await;

    let second = connect(&proxy).await;
    until(|| proxy.connections() == 2).await;
    proxy.cut();
    until(|| proxy.cuts() == 2).await;
    drop(second);
    // Connections that end by themselves are not counted.
    proxy.pass().await.unwrap();
    let mut own = connect(&proxy).await;
    own.shutdown().await.unwrap();
    assert!(answer(&mut own, LONG).await.unwrap().is_err());
    sleep(SHORT).await;
    proxy.door(Door::Silent).await.unwrap();
    assert_eq!(proxy.silenced(), 0);
    let silenced = connect(&proxy).await;
    until(|| proxy.silenced() == 1).await;
    proxy.hang_up();
    until(|| proxy.cuts() == 3).await;
    drop(silenced);
    assert_eq!(counts(&proxy), (1, 1, 1, 3));
}

async fn until(is_so: impl Fn() -> bool + Send + Sync) {
    let wait = async {
        while !is_so() {
            sleep(Duration::from_millis(5)).await;
        }
    };
    timeout(LONG, wait).await.expect("it comes to be so");
}

#[tokio::test]
async fn bytes_on_their_way_do_not_delay_later_ones() {
    let proxy = Proxy::start(&echo()).await.unwrap();
    let client = &mut connect(&proxy).await;
    proxy.requests(Flow::Delay(2 * LONG));
    for byte in 1..=2 {
        client.write_u8(byte).await.unwrap();
        until(|| proxy.delayed_bytes() == u64::from(byte)).await;
    }
}

#[tokio::test]
async fn half_open_connections_outlive_the_other_side() {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let proxy = Proxy::start(&listener.local_addr().unwrap().to_string()).await.unwrap();
    let client = &mut connect(&proxy).await;
    let (mut server, _) = listener.accept().await.unwrap();
    proxy.half_open();
    client.write_u8(1).await.unwrap();
    server.write_u8(2).await.unwrap();
    // The connection to the server was reset.
    until(|| proxy.held_bytes() == 2).await;
    server.write_u8(3).await.unwrap();
    server.set_zero_linger().unwrap();
    drop((server, listener));
    assert!(answer(client, SHORT).await.is_none());
    let new = &mut connect(&proxy).await;
    new.write_u8(4).await.unwrap();
    assert!(answer(new, SHORT).await.is_none());
    assert!(answer(client, SHORT).await.is_none());
    proxy.pass().await.unwrap();
    let last = answer(client, LONG).await.unwrap();
    assert!(last.is_err() || answer(client, LONG).await.unwrap().is_err());
    assert!(answer(new, LONG).await.unwrap().is_err());
}

#[tokio::test]
async fn new_connections_can_lead_elsewhere() {
    let nobody = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().to_string();
    let proxy = Proxy::start(&echo()).await.unwrap();
    let old = &mut connect(&proxy).await;
    assert_answers(old, 1).await;
    proxy.lead_to(&nobody);
    assert!(answer(&mut connect(&proxy).await, LONG).await.unwrap().is_err());
    assert_answers(old, 2).await;
    proxy.lead_to(&echo());
    assert_answers(&mut connect(&proxy).await, 3).await;
}

#[tokio::test]
async fn stranded_bytes_arrive_after_their_client_has_gone() {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let proxy = Proxy::start(&listener.local_addr().unwrap().to_string()).await.unwrap();
    let mut ends = Vec::new();
    for _ in 0..2 {
        let client = connect(&proxy).await;
        ends.push((client, listener.accept().await.unwrap().0));
    }
    proxy.strand();
    for ((client, server), byte) in ends.iter_mut().zip([1, 2]) {
        client.write_all(&[byte, byte]).await.unwrap();
        server.write_u8(9).await.unwrap();
        assert!(answer(server, SHORT).await.is_none());
        assert!(answer(client, SHORT).await.is_none());
    }
    // One client disconnects by itself, and the other one learns that its connection is lost.
    ends[0].0.set_zero_linger().unwrap();
    let (gone, mut first) = ends.remove(0);
    drop(gone);
    proxy.abandon();
    let (client, mut second) = ends.remove(0);
    assert!(answer(&mut { client }, LONG).await.unwrap().is_err());
    let new = &mut connect(&proxy).await;
    let (mut third, _) = listener.accept().await.unwrap();
    new.write_u8(3).await.unwrap();
    assert_eq!(answer(&mut third, LONG).await.unwrap().unwrap(), 3);
    assert!(answer(&mut first, SHORT).await.is_none());
    proxy.arrive();
    for (server, byte) in [(&mut first, 1), (&mut second, 2)] {
        assert_eq!(answer(server, LONG).await.unwrap().unwrap(), byte);
        assert_eq!(answer(server, LONG).await.unwrap().unwrap(), byte);
        assert!(answer(server, LONG).await.unwrap().is_err(), "it ends");
    }
}

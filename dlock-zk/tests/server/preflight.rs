//! The check at a connect: servers that are too old, which a program simulates, and warnings about
//! a session timeout that is too short for the servers' settings, or for a lease.

use std::time::Duration;

use dlock_core::{ErrorKind, Level, LockOptions, Locks};
use dlock_testkit::Heard;
use dlock_testlab::{
    Stop, Verdict,
    zookeeper::{Ensemble, Options},
};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::{TcpListener, TcpStream},
    task::JoinSet,
    time::sleep,
};

use crate::support::{connect, refused, run, says, server, until, url, works};

/// Codes of requests, and of errors, in ZooKeeper's protocol.
const EXISTS: i32 = 3;
const GET_DATA: i32 = 4;
const PING: i32 = 11;
const NO_NODE: i32 = -101;
const UNIMPLEMENTED: i32 = -6;

/// A server without the requests of version 3.5, and with the root only.
async fn answer_as_3_4(mut stream: TcpStream) -> std::io::Result<()> {
    let mut first = [0; 4];
    stream.read_exact(&mut first).await?;
    if first == *b"srvr" {
        return stream.write_all(b"Zookeeper version: 3.4.14-4c25d48, built on 2019\n").await;
    }
    if first == *b"conf" {
        return stream.write_all(b"clientPort=2181\n").await;
    }
    // Answers the request for a session, with the requested timeout.
    read(&mut stream, i32::from_be_bytes(first)).await?;
    let mut session = [0_i32, 15_000].map(i32::to_be_bytes).concat();
    session.extend(7_i64.to_be_bytes());
    session.extend(16_i32.to_be_bytes());
    session.extend([0; 16]);
    session.push(0);
    write(&mut stream, &session).await?;
    loop {
        let length = stream.read_i32().await?;
        let request = read(&mut stream, length).await?;
        let number = |at: usize| {
            let bytes = request.get(at..at + 4).and_then(|bytes| bytes.try_into().ok());
            i32::from_be_bytes(bytes.unwrap_or_default())
        };
        let is_of_root = number(8) == 1;
        let (error, body) = match number(4) {
            EXISTS if is_of_root => (0, &[0_u8; 68][..]),
            EXISTS | GET_DATA => (NO_NODE, &[][..]),
            PING => (0, &[][..]),
            _ => (UNIMPLEMENTED, &[][..]),
        };
        let mut reply = number(0).to_be_bytes().to_vec();
        reply.extend(1_i64.to_be_bytes());
        reply.extend(error.to_be_bytes());
        reply.extend(body);
        write(&mut stream, &reply).await?;
    }
}

async fn read(stream: &mut TcpStream, length: i32) -> std::io::Result<Vec<u8>> {
    let mut bytes = vec![0; usize::try_from(length).unwrap_or(0)];
    stream.read_exact(&mut bytes).await?;
    Ok(bytes)
}

async fn write(stream: &mut TcpStream, bytes: &[u8]) -> std::io::Result<()> {
    let length = i32::try_from(bytes.len()).unwrap_or(0);
    stream.write_all(&[&length.to_be_bytes()[..], bytes].concat()).await
}

async fn accept(listener: TcpListener) -> Verdict {
    let mut connections = JoinSet::new();
    loop {
        let (stream, _) = listener.accept().await?;
        connections.spawn(answer_as_3_4(stream));
    }
}

#[test]
fn an_old_server_is_refused_with_its_version() {
    run(async {
        let listener = TcpListener::bind("127.0.0.1:0").await?;
        let url = format!("zk://{}?dlock.session_timeout=15s", listener.local_addr()?);
        let error = tokio::select! {
            error = refused(&url) => error?,
            ended = accept(listener) => return ended,
        };
        says(&error, ErrorKind::Unsupported, "ZooKeeper 3.4.14, which lacks");
        assert!(error.to_string().contains("3.5.3 or later"), "{error}");
        assert_eq!(error.operation(), Some("connect"), "{error}");
        Ok(())
    })
}

const WARNING: &str = "not above syncLimit x tickTime";

/// Longer than the client takes to read the servers' settings.
const LOOKED: Duration = Duration::from_secs(3);

/// Followers serve clients without their leader for fifteen seconds. Sessions are long enough for a
/// busy machine.
fn options() -> Options {
    Options::new().with_tick(Duration::from_millis(500)).with_sync_limit(Duration::from_secs(15))
}

fn warnings(heard: &Heard) -> Vec<String> {
    let text = heard.text();
    text.lines().filter(|line| line.contains(WARNING)).map(str::to_owned).collect()
}

/// Returns the warnings of a client of these servers with this timeout.
async fn heard_of(hosts: &str, timeout: &str, warned: bool) -> Result<Vec<String>, Stop> {
    let (heard, _guard) = Heard::listen();
    let url = format!("zk://joe:secret@{hosts}?dlock.session_timeout={timeout}&dlock.root=/joe");
    let client = connect(&url).await?;
    works(&client, "a").await?;
    sleep(LOOKED).await;
    if warned {
        until_heard(&heard, &url, WARNING).await?;
    }
    assert!(!heard.text().contains("secret"), "{}", heard.text());
    Ok(warnings(&heard))
}

/// Connects repeatedly until there is a warning: a busy server may return its settings too late.
async fn until_heard(heard: &Heard, url: &str, words: &str) -> Verdict {
    until("the settings were reported", async || {
        for _ in 0..100 {
            if heard.text().contains(words) {
                return Ok(true);
            }
            sleep(LOOKED / 100).await;
        }
        connect(url).await?;
        Ok(false)
    })
    .await
}

#[test]
fn a_short_session_timeout_is_warned_of_once() {
    run(async {
        let ensemble = Ensemble::start(&options()).await?;
        for timeout in ["10s", "15s"] {
            let warnings = heard_of(&ensemble.connect_string(), timeout, true).await?;
            let [warning] = &warnings[..] else { panic!("{timeout}: {warnings:?}") };
            assert!(warning.starts_with("WARN dlock "), "{warning}");
            for part in ["sync_limit=15s", &format!("session_timeout={timeout}"), "zk://127.0.0.1"]
            {
                assert!(warning.contains(part), "{part} is not in {warning}");
            }
        }
        for timeout in ["16s", "30s"] {
            let warnings = heard_of(&ensemble.connect_string(), timeout, false).await?;
            assert!(warnings.is_empty(), "{timeout}: {warnings:?}");
        }
        Ok(())
    })
}

/// The timeout may differ from the requested one.
#[test]
fn the_warning_uses_the_timeout_that_the_servers_granted() {
    run(async {
        let options = options().with_sessions(Duration::from_secs(1), Duration::from_millis(12500));
        let ensemble = Ensemble::start(&options).await?;
        let warnings = heard_of(&ensemble.connect_string(), "30s", true).await?;
        assert!(
            warnings.len() == 1 && warnings[0].contains("session_timeout=12.5s"),
            "{warnings:?}"
        );
        Ok(())
    })
}

#[test]
fn servers_that_hide_their_settings_cause_no_warning() {
    run(async {
        let ensemble = Ensemble::start(&options().with_words("")).await?;
        no_warning(&ensemble.connect_string()).await
    })
}

/// A standalone server has no leader.
#[test]
fn one_server_causes_no_warning() {
    run(async {
        let server = server().await?;
        no_warning(&server.address()).await
    })
}

async fn no_warning(hosts: &str) -> Verdict {
    let (heard, _guard) = Heard::listen();
    let url = format!("zk://{hosts}?dlock.session_timeout=10s");
    let client = connect(&url).await?;
    works(&client, "a").await?;
    until_heard(&heard, &url, "server does not report its settings").await?;
    assert!(warnings(&heard).is_empty(), "{:?}", warnings(&heard));
    works(&client, "a").await
}

#[test]
fn a_lease_longer_than_the_session_allows_is_reported_once() {
    run(async {
        let server = server().await?;
        let (heard, _guard) = Heard::listen();
        let locks = Locks::new(connect(&url(&server)).await?)?;
        let lease = |seconds| LockOptions::new().with_lease(Duration::from_secs(seconds));
        let reported = || {
            let text = heard.text();
            text.lines()
                .filter(|line| line.contains("lease shortened"))
                .map(str::to_owned)
                .collect()
        };
        // No client has requested more than 7.5 s.
        let as_it_is = [locks.clone(), locks.with_options(LockOptions::new())?];
        for locks in as_it_is.into_iter().chain([locks.with_options(lease(7))?]) {
            assert!(locks.examine().await?.iter().all(|finding| finding.about != "lease"));
        }
        assert_eq!(reported(), Vec::<String>::new());
        let long = locks.with_options(lease(60))?;
        locks.with_options(lease(60))?;
        let reported: Vec<String> = reported();
        let [line] = &reported[..] else { return Err(Stop::failed(format!("{reported:?}"))) };
        for part in ["WARN dlock ", "asked=60s", "lease=7.5s", "dlock.session_timeout", "zk://"] {
            assert!(line.contains(part), "{part} is not in {line}");
        }
        let findings = long.examine().await?;
        let found = findings.iter().find(|finding| finding.about == "lease");
        let found = found.ok_or_else(|| Stop::failed(format!("{findings:?}")))?;
        assert_eq!(
            (found.level, found.found.as_str()),
            (Level::Warning, "leases last 7.5s, although 60s was requested")
        );
        Ok(())
    })
}

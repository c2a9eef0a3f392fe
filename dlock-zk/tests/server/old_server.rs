//! Servers that are too old, played by a program that answers as they do.

use dlock_core::ErrorKind;
use dlock_testlab::Verdict;
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::{TcpListener, TcpStream},
    task::JoinSet,
};

use crate::support::{refused, run, says};

/// Codes of requests, and of errors, in ZooKeeper's protocol.
const EXISTS: i32 = 3;
const GET_DATA: i32 = 4;
const PING: i32 = 11;
const NO_NODE: i32 = -101;
const UNIMPLEMENTED: i32 = -6;

/// A server that knows no request that came with 3.5, and has the root only.
async fn answer_as_3_4(mut stream: TcpStream) -> std::io::Result<()> {
    let mut first = [0; 4];
    stream.read_exact(&mut first).await?;
    if first == *b"srvr" {
        return stream.write_all(b"Zookeeper version: 3.4.14-4c25d48, built on 2019\n").await;
    }
    if first == *b"conf" {
        return stream.write_all(b"clientPort=2181\n").await;
    }
    // The request for a session, of this length; it gets what it wants.
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

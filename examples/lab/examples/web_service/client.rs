//! A client that implements as much of HTTP/1.1 as the example needs.

use std::{net::SocketAddr, time::Duration};

use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpStream,
    time::sleep,
};

use crate::Failure;

/// A response.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Reply {
    pub(crate) status: u16,
    /// The seconds after which the client should retry, if the server sent them.
    pub(crate) retry_after: Option<u64>,
    pub(crate) text: String,
}

/// Sends a request such as `GET /ready`, and waits for the response.
pub(crate) async fn send(server: SocketAddr, request: &str) -> Result<Reply, Failure> {
    let mut stream = start(server, request).await?;
    let mut response = String::new();
    stream.read_to_string(&mut response).await?;
    let (head, text) = response.split_once("\r\n\r\n").ok_or("a response without an end")?;
    let mut lines = head.lines();
    let status = lines.next().and_then(|line| line.split(' ').nth(1)).ok_or("no status")?;
    let headers = lines.filter_map(|line| line.split_once(": "));
    let retry_after = headers
        .filter(|(name, _)| name.eq_ignore_ascii_case("retry-after"))
        .map(|(_, seconds)| seconds.parse())
        .next()
        .transpose()?;
    Ok(Reply { status: status.parse()?, retry_after, text: text.to_owned() })
}

/// Sends a request and returns the connection. The caller reads the response or hangs up.
pub(crate) async fn start(server: SocketAddr, request: &str) -> Result<TcpStream, Failure> {
    let mut stream = TcpStream::connect(server).await?;
    let head = "HTTP/1.1\r\nhost: example\r\ncontent-length: 0\r\nconnection: close";
    stream.write_all(format!("{request} {head}\r\n\r\n").as_bytes()).await?;
    Ok(stream)
}

/// Sends a request, and retries while the server asks for a retry.
pub(crate) async fn send_patiently(server: SocketAddr, request: &str) -> Result<Reply, Failure> {
    loop {
        let reply = send(server, request).await?;
        match reply.retry_after {
            Some(seconds) => sleep(Duration::from_secs(seconds)).await,
            None => return Ok(reply),
        }
    }
}

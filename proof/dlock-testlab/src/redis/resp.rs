//! Raw commands to a Redis server, without a driver.

use std::{io::BufRead as _, time::Duration};

use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpStream,
    time::timeout,
};

use crate::{Stop, Verdict};

/// The longest time that a server may take to answer before the connection counts as dead.
const BOUND: Duration = Duration::from_secs(10);

/// A connection to a Redis server that speaks RESP2.
#[derive(Debug)]
pub struct Resp {
    stream: TcpStream,
    unread: Vec<u8>,
}

/// An answer of a Redis server.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Reply {
    /// A word such as `OK`.
    Status(String),
    /// An error, which begins with its kind: `ERR`, `NOSCRIPT`, `MOVED`.
    Error(String),
    /// A number.
    Int(i64),
    /// Bytes, or null.
    Bulk(Option<Vec<u8>>),
    /// A list of replies, or null.
    Array(Option<Vec<Reply>>),
}

impl Resp {
    /// Connects to an address `host:port`.
    ///
    /// # Errors
    /// If no server listens there.
    pub async fn connect(address: &str) -> Result<Self, Stop> {
        let stream = within(async { Ok(TcpStream::connect(address).await?) }).await?;
        Ok(Self { stream, unread: Vec::new() })
    }

    /// Sends a command and returns the answer, which may be an error.
    ///
    /// # Errors
    /// If no answer arrives.
    pub async fn command(&mut self, words: &[&str]) -> Result<Reply, Stop> {
        within(async {
            self.send(words).await?;
            self.receive().await
        })
        .await
    }

    /// Sends a command.
    ///
    /// # Errors
    /// If the connection is closed.
    pub async fn send(&mut self, words: &[&str]) -> Verdict {
        Ok(self.stream.write_all(&encode(words)).await?)
    }

    /// Returns the next reply or message of a subscription. Waits without a limit.
    ///
    /// # Errors
    /// If the connection is closed.
    ///
    /// # Cancel safety
    /// If the future is dropped, no bytes are lost.
    pub async fn receive(&mut self) -> Result<Reply, Stop> {
        loop {
            if let Some((reply, length)) = parse(&self.unread)? {
                self.unread.drain(..length);
                return Ok(reply);
            }
            if self.stream.read_buf(&mut self.unread).await? == 0 {
                return Err(Stop::failed("the server closed the connection"));
            }
        }
    }
}

impl Reply {
    /// Returns the reply, unless it is an error.
    ///
    /// # Errors
    /// The server's error.
    #[track_caller]
    pub fn ok(self) -> Result<Self, Stop> {
        match self {
            Self::Error(text) => Err(Stop::failed(format!("redis: {text}"))),
            reply => Ok(reply),
        }
    }

    /// Returns the text of a status or of bytes.
    ///
    /// # Errors
    /// If the reply is of another type.
    #[track_caller]
    pub fn text(self) -> Result<String, Stop> {
        match self {
            Self::Status(text) => Ok(text),
            Self::Bulk(Some(bytes)) => Ok(String::from_utf8_lossy(&bytes).into_owned()),
            reply => Err(reply.unlike("text")),
        }
    }

    /// Returns the number.
    ///
    /// # Errors
    /// If the reply is of another type.
    #[track_caller]
    pub fn int(self) -> Result<i64, Stop> {
        match self {
            Self::Int(number) => Ok(number),
            reply => Err(reply.unlike("a number")),
        }
    }

    /// Returns the replies of an array.
    ///
    /// # Errors
    /// If the reply is of another type.
    #[track_caller]
    pub fn list(self) -> Result<Vec<Self>, Stop> {
        match self {
            Self::Array(Some(replies)) => Ok(replies),
            reply => Err(reply.unlike("a list")),
        }
    }

    /// Returns the texts of an array.
    ///
    /// # Errors
    /// If the reply is of another type.
    #[track_caller]
    pub fn texts(self) -> Result<Vec<String>, Stop> {
        self.list()?.into_iter().map(Self::text).collect()
    }

    #[track_caller]
    fn unlike(self, wanted: &str) -> Stop {
        Stop::failed(format!("redis answers {self:?}, not {wanted}"))
    }
}

async fn within<T>(work: impl Future<Output = Result<T, Stop>> + Send) -> Result<T, Stop> {
    match timeout(BOUND, work).await {
        Ok(result) => result,
        Err(_) => Err(Stop::failed(format!("the server does not answer within {BOUND:?}"))),
    }
}

fn encode(words: &[&str]) -> Vec<u8> {
    let mut text = format!("*{}\r\n", words.len());
    for word in words {
        text.push_str(&format!("${}\r\n{word}\r\n", word.len()));
    }
    text.into_bytes()
}

/// Returns the first reply in these bytes and its length; `None` while it is incomplete.
fn parse(bytes: &[u8]) -> Result<Option<(Reply, usize)>, Stop> {
    let mut at = { bytes }.skip_until(b'\n')?;
    let Some(line) = bytes[..at].strip_suffix(b"\r\n") else {
        return Ok(None);
    };
    let line = String::from_utf8_lossy(line).into_owned();
    let (kind, text) = line.split_at_checked(1).ok_or_else(|| Stop::failed("an empty reply"))?;
    let reply = match kind {
        "+" => Reply::Status(text.to_owned()),
        "-" => Reply::Error(text.to_owned()),
        ":" => Reply::Int(text.parse()?),
        "$" if text == "-1" => Reply::Bulk(None),
        "*" if text == "-1" => Reply::Array(None),
        "$" => {
            let length: usize = text.parse()?;
            let Some(content) = bytes.get(at..at + length + 2) else {
                return Ok(None);
            };
            at += length + 2;
            Reply::Bulk(Some(content[..length].to_vec()))
        }
        "*" => {
            let mut replies = Vec::new();
            for _ in 0..text.parse::<usize>()? {
                let Some((reply, length)) = parse(&bytes[at..])? else {
                    return Ok(None);
                };
                replies.push(reply);
                at += length;
            }
            Reply::Array(Some(replies))
        }
        _ => return Err(Stop::failed(format!("not a reply of RESP2: {line:?}"))),
    };
    Ok(Some((reply, at)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_reply_is_read_once_it_is_whole() {
        let bytes = b"*3\r\n$2\r\na\n\r\n:-7\r\n*2\r\n$-1\r\n-ERR no\r\n";
        for length in 0..bytes.len() {
            assert_eq!(parse(&bytes[..length]).unwrap(), None, "{length}");
        }
        let inner = vec![Reply::Bulk(None), Reply::Error("ERR no".to_owned())];
        let outer =
            vec![Reply::Bulk(Some(b"a\n".to_vec())), Reply::Int(-7), Reply::Array(Some(inner))];
        assert_eq!(parse(bytes).unwrap(), Some((Reply::Array(Some(outer)), bytes.len())));
    }

    #[test]
    fn an_invalid_reply_is_an_error() {
        assert!(parse(b"HTTP/1.1 400\r\n").is_err());
        assert!(parse(b"\r\n").is_err());
    }
}

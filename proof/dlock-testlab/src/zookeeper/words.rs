//! The four-letter words that a server answers, each on a separate connection.

use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpStream,
};

use crate::{Stop, wait::soon};

/// The mode of a server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Mode {
    /// The server has no ensemble.
    Standalone,
    /// The server leads an ensemble.
    Leader,
    /// The server follows a leader.
    Follower,
    /// The server follows a leader, and has no vote.
    Observer,
    /// The server has no leader, and serves clients that accept read-only mode.
    ReadOnly,
    /// The server has no leader, and serves no clients.
    Looking,
}

impl Mode {
    /// Whether the server serves all clients.
    pub fn serves(self) -> bool {
        matches!(self, Self::Standalone | Self::Leader | Self::Follower | Self::Observer)
    }

    /// Returns the mode in an answer to `srvr`.
    pub(super) fn of(answer: &str) -> Result<Self, Stop> {
        if answer.contains("is not currently serving requests") {
            return Ok(Self::Looking);
        }
        match answer.lines().find_map(|line| line.strip_prefix("Mode: ")) {
            Some("observer") => Ok(Self::Observer),
            Some("standalone") => Ok(Self::Standalone),
            Some("leader") => Ok(Self::Leader),
            Some("follower") => Ok(Self::Follower),
            Some("read-only") => Ok(Self::ReadOnly),
            _ => Err(Stop::failed(format!("the server does not say its mode: {answer:?}"))),
        }
    }
}

/// Returns the answer to a word.
pub(super) async fn ask(address: &str, word: &str) -> Result<String, Stop> {
    soon(async {
        let mut connection = TcpStream::connect(address).await?;
        connection.write_all(word.as_bytes()).await?;
        let mut answer = String::new();
        connection.read_to_string(&mut answer).await?;
        Ok(answer)
    })
    .await
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mode_is_read_from_an_answer() {
        let answer = "Zookeeper version: 3.8.0\nMode: follower\nNode count: 5\n";
        assert_eq!(Mode::of(answer).unwrap(), Mode::Follower);
        let answer = "This ZooKeeper instance is not currently serving requests\n";
        assert_eq!(Mode::of(answer).unwrap(), Mode::Looking);
        for answer in ["", "srvr is not executed because it is not in the whitelist."] {
            assert!(Mode::of(answer).is_err());
        }
    }
}

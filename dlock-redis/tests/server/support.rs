//! A private server, its clients, and direct reads of its state.

use dlock_core::{DynBackend, Error};
use dlock_redis::{Redis, RedisConfig};
pub(crate) use dlock_testlab::client::{
    LEASE, SOON, ask, attempt, exclusive, fails, free, granted, name, queue, renew, says, take,
    until, works, works_fully,
};
use dlock_testlab::{
    Stop, Verdict,
    client::{self, run_on_one_thread},
    redis::{Options, RedisServer},
};
use tokio::{
    io::{AsyncBufReadExt, AsyncWriteExt, BufReader},
    net::TcpStream,
};

/// Runs a test that needs a Redis server. Without one, the test is skipped, or fails if Redis is
/// required.
pub(crate) fn run(test: impl Future<Output = Verdict>) {
    run_on_one_thread("redis", test);
}

/// A server that keeps nothing, and a client of it.
pub(crate) async fn start() -> Result<(RedisServer, DynBackend), Stop> {
    let server = RedisServer::start(&Options::new()).await?;
    let client = connect(&server.url()).await?;
    Ok((server, client))
}

/// Connects to a suitable server, with long timeouts for a busy machine.
pub(crate) async fn connect(url: &str) -> Result<DynBackend, Error> {
    let mut url = url.to_owned();
    if !url.contains("response_timeout") {
        url.push(if url.contains('?') { '&' } else { '?' });
        url.push_str("dlock.response_timeout=10s");
    }
    let mut answer = open(&url).await;
    for _ in 0..2 {
        if answer.as_ref().is_err_and(|error| error.to_string().contains("in time")) {
            answer = open(&url).await;
        }
    }
    answer
}

async fn open(url: &str) -> Result<DynBackend, Error> {
    Redis::connect(RedisConfig::from_url(url)?).await
}

/// The shortest answer to `HELLO` that the driver accepts.
pub(crate) const HELLO: &str = "%1\r\n+server\r\n+redis\r\n";

/// Acts as a server: answers the commands of one client.
pub(crate) async fn answer(
    mut stream: TcpStream,
    mut reply: impl FnMut(&[String]) -> String,
) -> Verdict {
    let (reader, mut writer) = stream.split();
    let mut lines = BufReader::new(reader).lines();
    while let Some(line) = lines.next_line().await? {
        let count: usize = line.trim_start_matches('*').parse()?;
        let mut words = Vec::new();
        for _ in 0..count {
            lines.next_line().await?;
            words.push(lines.next_line().await?.unwrap_or_default());
        }
        writer.write_all(reply(&words).as_bytes()).await?;
    }
    Ok(())
}

/// The error of a connect that has to fail.
pub(crate) async fn refused(url: &str) -> Result<Error, Stop> {
    client::refused(open(url)).await
}

/// The keys of the lock `a`: holder, tokens, queue, waiters and readers.
pub(crate) const KEYS_OF_A: [&str; 5] =
    ["dlock:{0}:a", "dlock:{0}t", "dlock:{0}q:a", "dlock:{0}w:a", "dlock:{0}r:a"];

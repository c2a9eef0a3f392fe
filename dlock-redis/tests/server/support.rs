//! A private server, its clients, and direct reads of its state.

use std::time::Duration;

use dlock_core::{
    AcquireRequest, DynBackend, Error, ErrorKind, Grant, LockName, Mode, Queue, Renewal,
};
use dlock_redis::{Redis, RedisConfig};
pub(crate) use dlock_testlab::verbs::{free, queue, renew, take};
use dlock_testlab::{
    Stop, Verdict,
    redis::{Options, RedisServer},
    run_test,
};
use tokio::{
    io::{AsyncBufReadExt, AsyncWriteExt, BufReader},
    net::TcpStream,
    time::{sleep, timeout},
};

/// Longer than any test here.
pub(crate) const LEASE: Duration = Duration::from_secs(180);

/// Longer than anything here takes, however busy the machine is.
const LONG: Duration = Duration::from_secs(120);

/// Longer than anything takes that has to happen, however busy the machine is: a few times the
/// longest timeout in between.
pub(crate) const SOON: Duration = Duration::from_secs(30);

/// Runs a test that needs a Redis server; without one it ends early, unless it must not. One
/// thread, so that a subscriber of one test hears nothing of another.
pub(crate) fn run(test: impl Future<Output = Verdict>) {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    run_test("redis", runtime.expect("a runtime"), LONG, test);
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

/// The answer of a server to `HELLO`, as short as the driver takes it.
pub(crate) const HELLO: &str = "%1\r\n+server\r\n+redis\r\n";

/// Stands for a server: answers the commands of one client.
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
    match timeout(SOON, open(url)).await? {
        Ok(backend) => Err(Stop::failed(format!("{} is let in", backend.store()))),
        Err(error) => Ok(error),
    }
}

/// Fails unless the error is of this kind and names the remedy.
#[track_caller]
pub(crate) fn says(error: &Error, kind: ErrorKind, remedy: &str) {
    assert_eq!(error.kind(), kind, "{error:?}");
    assert!(error.to_string().contains(remedy), "no {remedy:?} in {error:?}");
}

pub(crate) fn name(text: &str) -> LockName {
    LockName::new(text).expect("a name")
}

pub(crate) fn ask(lock: &str, mode: Mode) -> AcquireRequest {
    AcquireRequest::new(name(lock), mode, LEASE)
}

pub(crate) fn exclusive(lock: &str) -> AcquireRequest {
    ask(lock, Mode::Exclusive)
}

pub(crate) fn attempt(lock: &str) -> AcquireRequest {
    exclusive(lock).with_queue(Queue::FailIfBusy)
}

/// Waits for a claim that is in the queue.
pub(crate) async fn granted(client: &DynBackend, request: &AcquireRequest) -> Result<Grant, Stop> {
    Ok(timeout(SOON, client.granted(request)).await??)
}

/// Acquires and releases, as on a fresh server.
pub(crate) async fn works(client: &DynBackend, lock: &str) -> Verdict {
    let request = exclusive(lock);
    take(client, &request).await?;
    renew(client, &request).await?;
    free(client, &request).await
}

/// Every verb, every mode, and a hand-off to another client.
pub(crate) async fn works_fully(client: &DynBackend, other: &DynBackend, lock: &str) -> Verdict {
    works(client, lock).await?;
    // The second of the same client goes without a script.
    works(client, lock).await?;
    for mode in [Mode::Shared, Mode::permits(2, 3)?] {
        let (first, second) = (ask(lock, mode), ask(lock, mode));
        take(client, &first).await?;
        client.acquire(&second).await?;
        renew(client, &first).await?;
        free(client, &first).await?;
        client.release(&second.as_claim()).await?;
    }
    let (held, waiting) = (exclusive(lock), exclusive(lock));
    take(client, &held).await?;
    queue(other, &waiting).await?;
    client.inspect(&held.name).await?;
    free(client, &held).await?;
    granted(other, &waiting).await?;
    // A downgrade, and a reader that is granted by it.
    let reader = ask(lock, Mode::Shared);
    queue(client, &reader).await?;
    let weaker = Renewal::new(waiting.as_claim(), Mode::Shared, LEASE);
    other.renew(&[weaker]).await?;
    granted(client, &reader).await?;
    free(client, &reader).await?;
    free(other, &waiting).await?;
    // A cluster can take two at once in one slot only.
    let both = [exclusive(lock), exclusive(&format!("{lock}2"))];
    if let Some(answer) = client.acquire_all(&both) {
        answer.await?;
        for request in &both {
            free(client, request).await?;
        }
    }
    Ok(())
}

/// Retries until it is so.
pub(crate) async fn until(
    what: &str,
    mut check: impl AsyncFnMut() -> Result<bool, Stop>,
) -> Verdict {
    let polling = async {
        while !check().await? {
            sleep(Duration::from_millis(10)).await;
        }
        Ok(())
    };
    timeout(SOON, polling).await.map_err(|_| Stop::failed(format!("not in time: {what}")))?
}

/// The keys of the lock `a`: holder, last token, queue, waiters and readers.
pub(crate) const KEYS_OF_A: [&str; 5] =
    ["dlock:{0}:a", "dlock:{0}f:a", "dlock:{0}q:a", "dlock:{0}w:a", "dlock:{0}r:a"];

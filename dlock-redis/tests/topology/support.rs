//! Helpers of these tests.

use std::time::Duration;

use dlock_core::{AcquireRequest, DynBackend, Error, ErrorKind, LockOptions, Locks};
use dlock_redis::{Redis, RedisConfig};
pub(crate) use dlock_testlab::client::{LEASE, SOON, queue, take, until};
use dlock_testlab::{
    Stop, Verdict,
    client::{attempt, exclusive, run_on_threads},
    redis::RedisServer,
};
use tokio::{
    task::JoinHandle,
    time::{Instant, timeout},
};

/// The shortest time from joining the queue to the first poll of a waiter.
pub(crate) const POLLS_AFTER: Duration = secs(3);

/// In this number of hand-offs, at least one message has to come before the first poll.
const TRIES: usize = 10;

/// Runs a test that needs Redis servers. Without Redis, the test is skipped, or fails if Redis is
/// required.
pub(crate) fn with_redis(test: impl Future<Output = Verdict>) {
    run_on_threads("redis", test);
}

/// A separate client.
pub(crate) async fn connect(url: &str) -> Result<DynBackend, Error> {
    Redis::connect(RedisConfig::from_url(url)?).await
}

/// Locks of a separate client, with leases of this length and without local hand-off.
pub(crate) async fn locks(url: &str, lease: Duration) -> Result<Locks, Error> {
    let locks = Locks::new(connect(url).await?)?;
    locks.without_handoff().with_options(LockOptions::new().with_lease(lease))
}

/// An exclusive claim that waits in the queue.
pub(crate) fn ask(name: &str, lease: Duration) -> AcquireRequest {
    exclusive(name).with_lease(lease)
}

/// Returns the connections of clients of dlock. Other clients use RESP2.
pub(crate) async fn clients(server: &RedisServer) -> Result<Vec<String>, Stop> {
    let list = server.command(&["CLIENT", "LIST"]).await?.ok()?.text()?;
    let ours = list.lines().filter(|line| line.contains("resp=3"));
    Ok(ours.filter_map(|line| line.split(' ').next().map(str::to_owned)).collect())
}

/// Waits until a replica has the keys of its master. The replica may be online long before that.
pub(crate) async fn until_copied(master: &RedisServer, replica: &RedisServer) -> Verdict {
    until("the replica has the keys of its master", async || {
        Ok(master.keys("dlock:*").await? == replica.keys("dlock:*").await?)
    })
    .await
}

/// Runs the work beside the test.
pub(crate) fn beside<T: Send + 'static>(
    work: impl Future<Output = T> + Send + 'static,
) -> JoinHandle<T> {
    tokio::spawn(work)
}

/// Hands off a lock until the grant comes before the first poll of the waiter, so that it
/// was notified. The time is that from its joining to the grant. On a busy machine it may be longer.
#[track_caller]
pub(crate) fn is_notified(
    what: &str,
    mut hand_off: impl AsyncFnMut() -> Result<Duration, Stop>,
) -> impl Future<Output = Verdict> {
    let never = Stop::failed(format!("{what}: it asked each time"));
    async move {
        for _ in 0..TRIES {
            if hand_off().await? < POLLS_AFTER {
                return Ok(());
            }
        }
        Err(never)
    }
}

/// Hands off a lock that is free before and after. Returns the time from joining to the grant.
pub(crate) async fn hand_off(
    name: &str,
    holder: &DynBackend,
    waiter: &DynBackend,
) -> Result<Duration, Stop> {
    let (held, waits) = (attempt(name), exclusive(name));
    take(holder, &held).await?;
    let joins = Instant::now();
    queue(waiter, &waits).await?;
    holder.release(&held.as_claim()).await?;
    within(SOON, waiter.granted(&waits)).await??;
    let took = joins.elapsed();
    waiter.release(&waits.as_claim()).await?;
    Ok(took)
}

/// Returns the number of scripts that a server has run since its counts were reset.
pub(crate) async fn scripts(server: &RedisServer) -> Result<u64, Stop> {
    Ok(calls(server, "evalsha").await? + calls(server, "eval").await?)
}

/// Returns how often a server has run a command since its counts were reset.
pub(crate) async fn calls(server: &RedisServer, command: &str) -> Result<u64, Stop> {
    let (stats, begin) = (server.info("commandstats").await?, format!("cmdstat_{command}:calls="));
    let count = stats.lines().find_map(|line| line.strip_prefix(&begin)?.split(',').next());
    Ok(count.unwrap_or("0").parse()?)
}

/// Fails if the work takes longer than this.
#[track_caller]
pub(crate) fn within<T>(
    limit: Duration,
    work: impl Future<Output = T>,
) -> impl Future<Output = Result<T, Stop>> {
    let late = Stop::failed(format!("not within {limit:?}"));
    async move { timeout(limit, work).await.map_err(|_| late) }
}

/// Checks that an error reports unreachable servers, and contains these words.
#[track_caller]
pub(crate) fn assert_unavailable(error: &Error, words: &[&str]) {
    assert_eq!(error.kind(), ErrorKind::Unavailable, "{error}");
    for word in words {
        assert!(error.to_string().contains(word), "{word}: {error}");
    }
}

pub(crate) const fn secs(secs: u64) -> Duration {
    Duration::from_secs(secs)
}

pub(crate) const fn millis(millis: u64) -> Duration {
    Duration::from_millis(millis)
}

/// The hash tag of a name: 64-bit FNV-1a, folded.
pub(crate) fn tag(name: &str) -> String {
    let hash = name.bytes().fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
    });
    format!("{{{}}}", (hash ^ (hash >> 32)) % 64)
}

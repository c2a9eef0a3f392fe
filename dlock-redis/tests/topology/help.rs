//! What the tests share.

use std::time::Duration;

use dlock_core::{
    AcquireRequest, Acquired, ClaimId, DynBackend, Error, Grant, LockName, LockOptions, Locks,
    Mode, Queue,
};
use dlock_redis::{Redis, RedisConfig};
use dlock_testkit::{Outcome, Stop, Verdict};
use tokio::{runtime::Builder, task::JoinHandle, time::timeout};

/// Runs a test that needs Redis servers; without Redis it ends early, unless it must not.
pub(crate) fn with_redis(test: impl Future<Output = Verdict>) {
    let runtime = Builder::new_multi_thread().enable_all().build().expect("a runtime");
    match runtime.block_on(test).into() {
        Outcome::Passed => {}
        Outcome::Ignored { reason, .. } if !required() => println!("ignored: {reason}"),
        outcome => panic!("{outcome:?}"),
    }
}

fn required() -> bool {
    let required = std::env::var("DLOCK_TEST_REQUIRE").unwrap_or_default();
    required.split(',').any(|word| word.trim() == "redis")
}

/// A client of its own.
pub(crate) async fn connect(url: &str) -> Result<DynBackend, Error> {
    Redis::connect(RedisConfig::from_url(url)?).await
}

/// Locks of a client of its own.
pub(crate) async fn locks(url: &str, lease: Duration) -> Result<Locks, Error> {
    let locks = Locks::over(connect(url).await?)?;
    Ok(locks.without_handoff().with_options(LockOptions::new().with_lease(lease))?)
}

/// A claim for the lock alone.
pub(crate) fn ask(name: &str, lease: Duration, queue: Queue) -> AcquireRequest {
    AcquireRequest {
        name: LockName::new(name).expect("a name"),
        claim: ClaimId::random(),
        mode: Mode::Exclusive,
        lease,
        queue,
        tokens: 1,
    }
}

/// Takes what must be free.
pub(crate) async fn take(backend: &DynBackend, request: &AcquireRequest) -> Result<Grant, Stop> {
    match backend.acquire(request).await? {
        Acquired::Granted(grant) => Ok(grant),
        other => Err(Stop::failed(format!("{}: {other:?}", request.name))),
    }
}

/// What happens beside.
pub(crate) fn beside<T: Send + 'static>(
    work: impl Future<Output = T> + Send + 'static,
) -> JoinHandle<T> {
    tokio::spawn(work)
}

/// What must be over by then.
#[track_caller]
pub(crate) fn within<T>(
    limit: Duration,
    work: impl Future<Output = T>,
) -> impl Future<Output = Result<T, Stop>> {
    let late = Stop::failed(format!("not within {limit:?}"));
    async move { timeout(limit, work).await.map_err(|_| late) }
}

pub(crate) const fn secs(secs: u64) -> Duration {
    Duration::from_secs(secs)
}

pub(crate) const fn millis(millis: u64) -> Duration {
    Duration::from_millis(millis)
}

/// The bucket of a name: 64-bit FNV-1a, folded.
pub(crate) fn bucket(name: &str) -> u64 {
    let hash = name.bytes().fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
    });
    (hash ^ (hash >> 32)) % 64
}

//! A private server, its clients, and direct reads of its state.

use std::time::Duration;

use dlock_core::{
    AcquireRequest, Acquired, DynBackend, Error, ErrorKind, Grant, LockName, Mode, Queue, Released,
    Renewal, Renewed,
};
use dlock_redis::{Redis, RedisConfig};
use dlock_testlab::{
    Door, Proxy, Stop, Verdict,
    redis::{Options, RedisServer},
    run_test,
};
use tokio::time::{sleep, timeout};

/// Longer than any test here.
pub(crate) const LEASE: Duration = Duration::from_secs(180);

/// Longer than anything takes that has to happen, however busy the machine is.
pub(crate) const SOON: Duration = Duration::from_secs(30);

/// The same for a whole test.
const LONG: Duration = Duration::from_secs(120);

/// Runs a test that needs a Redis server; without one it ends early, unless it must not.
pub(crate) fn run(test: impl Future<Output = Verdict>) {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    run_test("redis", runtime.expect("a runtime"), LONG, test);
}

/// A server that keeps nothing.
pub(crate) async fn start() -> Result<RedisServer, Stop> {
    RedisServer::start(&Options::new()).await
}

/// A separate client. An answer may take long, for a busy machine, unless the URL says otherwise.
pub(crate) async fn connect(url: &str) -> Result<DynBackend, Error> {
    let mut url = url.to_owned();
    if !url.contains("response_timeout") {
        url.push(if url.contains('?') { '&' } else { '?' });
        url.push_str("dlock.response_timeout=10s");
    }
    Redis::connect(RedisConfig::from_url(&url)?).await
}

/// A client behind a fault proxy.
pub(crate) async fn behind(
    server: &RedisServer,
    option: &str,
) -> Result<(Proxy, DynBackend), Stop> {
    let proxy = Proxy::start(&server.address()).await?;
    let client = connect(&format!("redis://{}{option}", proxy.address())).await?;
    Ok((proxy, client))
}

/// Ends what is on its way through the proxy; what comes then passes.
pub(crate) async fn mend(proxy: &Proxy) -> Verdict {
    proxy.door(Door::Closed).await?;
    proxy.cut();
    // The cut happens a moment later, and nothing may slip through before it.
    sleep(Duration::from_millis(50)).await;
    proxy.pass().await
}

pub(crate) const fn millis(millis: u64) -> Duration {
    Duration::from_millis(millis)
}

pub(crate) fn name(text: &str) -> LockName {
    LockName::new(text).expect("a name")
}

/// The keys of a name: holder, last token, queue, waiters and readers. The hash tag is 64-bit FNV-1a,
/// folded.
pub(crate) fn keys(name: &str) -> [String; 5] {
    let hash = name.bytes().fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
    });
    let tag = (hash ^ (hash >> 32)) % 64;
    ["", "f", "q", "w", "r"].map(|kind| format!("dlock:{{{tag}}}{kind}:{name}"))
}

pub(crate) fn ask(lock: &str, mode: Mode) -> AcquireRequest {
    AcquireRequest::new(name(lock), mode, LEASE)
}

pub(crate) fn exclusive(lock: &str) -> AcquireRequest {
    ask(lock, Mode::Exclusive)
}

pub(crate) fn brief(lock: &str, lease: Duration) -> AcquireRequest {
    exclusive(lock).with_lease(lease)
}

pub(crate) fn attempt(lock: &str) -> AcquireRequest {
    exclusive(lock).with_queue(Queue::FailIfBusy)
}

/// Takes a lock that must be free; its token.
pub(crate) async fn take(client: &DynBackend, request: &AcquireRequest) -> Result<u64, Stop> {
    match client.acquire(request).await? {
        Acquired::Granted(grant) => Ok(grant.token.get()),
        other => Err(Stop::failed(format!("{} is {other:?}", request.name))),
    }
}

/// Joins the queue of a lock that must not be free.
#[track_caller]
pub(crate) fn queue(
    client: &DynBackend,
    request: &AcquireRequest,
) -> impl Future<Output = Verdict> {
    let at = std::panic::Location::caller();
    async move {
        match client.acquire(request).await? {
            Acquired::Queued => Ok(()),
            other => Err(Stop::failed(format!("{} is {other:?} at {at}", request.name))),
        }
    }
}

/// Waits for a claim that is in the queue.
pub(crate) async fn granted(client: &DynBackend, request: &AcquireRequest) -> Result<Grant, Stop> {
    let grant = timeout(SOON, client.granted(request)).await;
    Ok(grant.map_err(|_| Stop::failed(format!("{} is not granted", request.name)))??)
}

/// Releases a claim that must be there, and all of whose tokens were used.
pub(crate) async fn free(client: &DynBackend, request: &AcquireRequest) -> Verdict {
    match client.release(&request.as_claim().with_used(request.tokens)).await? {
        Released::Released => Ok(()),
        other => Err(Stop::failed(format!("{} is {other:?}", request.name))),
    }
}

/// Renews claims.
pub(crate) async fn renew(
    client: &DynBackend,
    requests: &[AcquireRequest],
) -> Result<Vec<Renewed>, Error> {
    let renewals: Vec<_> =
        requests.iter().map(|r| Renewal::new(r.as_claim(), r.mode, r.lease)).collect();
    client.renew(&renewals).await
}

/// Fails unless the error is of this kind and says this.
#[track_caller]
pub(crate) fn says(error: &Error, kind: ErrorKind, words: &str) {
    assert_eq!(error.kind(), kind, "{error:?}");
    assert!(error.to_string().contains(words), "no {words:?} in {error:?}");
}

/// Retries until it is so.
pub(crate) async fn until(
    what: &str,
    mut check: impl AsyncFnMut() -> Result<bool, Stop>,
) -> Verdict {
    let polling = async {
        while !check().await? {
            sleep(millis(10)).await;
        }
        Ok(())
    };
    timeout(SOON, polling).await.map_err(|_| Stop::failed(format!("not in time: {what}")))?
}

/// Waits until this number of clients can be notified.
pub(crate) async fn until_listening(server: &RedisServer, count: usize) -> Verdict {
    until("the clients that are gone hear nothing", async || {
        let channels = server.command(&["PUBSUB", "CHANNELS", "dlock:i:*"]).await?.ok()?;
        Ok(channels.list()?.len() == count)
    })
    .await
}

//! A private server, its clients, and direct reads of its state.

use std::time::Duration;

use dlock_core::{AcquireRequest, DynBackend, Error, Released, Renewal, Renewed};
use dlock_redis::{Redis, RedisConfig};
pub(crate) use dlock_testlab::client::{
    LEASE, SOON, ask, attempt, exclusive, granted, name, queue, says, until,
};
use dlock_testlab::{
    Door, Proxy, Stop, Verdict,
    client::{self, run_on_one_thread},
    redis::{Options, RedisServer},
};
use tokio::time::sleep;

/// Runs a test that needs a Redis server. Without one, the test is skipped, or fails if Redis is
/// required.
pub(crate) fn run(test: impl Future<Output = Verdict>) {
    run_on_one_thread("redis", test);
}

/// A server that keeps nothing.
pub(crate) async fn start() -> Result<RedisServer, Stop> {
    RedisServer::start(&Options::new()).await
}

/// A separate client. Its response timeout is long, for a busy machine, unless the URL sets one.
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

/// Cuts all connections through the proxy. Later ones pass.
pub(crate) async fn mend(proxy: &Proxy) -> Verdict {
    proxy.door(Door::Closed).await?;
    proxy.cut();
    // The proxy cuts a moment later, and no byte may pass before that.
    sleep(Duration::from_millis(50)).await;
    proxy.pass().await
}

pub(crate) const fn millis(millis: u64) -> Duration {
    Duration::from_millis(millis)
}

/// The keys of a name: holder, tokens, queue, waiters and readers. The hash tag is 64-bit FNV-1a,
/// folded.
pub(crate) fn keys(name: &str) -> [String; 5] {
    let hash = name.bytes().fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
    });
    let tag = (hash ^ (hash >> 32)) % 64;
    ["", "t", "q", "w", "r"].map(|kind| match kind {
        "t" => format!("dlock:{{{tag}}}t"),
        kind => format!("dlock:{{{tag}}}{kind}:{name}"),
    })
}

pub(crate) fn brief(lock: &str, lease: Duration) -> AcquireRequest {
    exclusive(lock).with_lease(lease)
}

/// Acquires a lock that must be free. Returns the token.
pub(crate) async fn take(client: &DynBackend, request: &AcquireRequest) -> Result<u64, Stop> {
    Ok(client::take(client, request).await?.token.get())
}

/// Releases a claim that must exist, with all of its tokens used.
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

/// Waits until this number of clients can be notified.
pub(crate) async fn until_listening(server: &RedisServer, count: usize) -> Verdict {
    until("the clients that are gone hear nothing", async || {
        let channels = server.command(&["PUBSUB", "CHANNELS", "dlock:i:*"]).await?.ok()?;
        Ok(channels.list()?.len() == count)
    })
    .await
}

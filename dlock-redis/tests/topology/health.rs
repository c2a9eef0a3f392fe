//! Peers that stop answering without closing a connection.

use dlock_core::{ErrorKind, GuardState};
use dlock_testlab::{
    Door, Flow, Proxy, Verdict,
    redis::{Options, RedisServer},
};
use tokio::time::sleep;

use crate::support::{
    SOON, ask, assert_unavailable, beside, connect, locks, secs, take, until, with_redis, within,
};

pub(crate) fn a_silent_server_is_an_error_in_bounded_time() {
    with_redis(async {
        let server = RedisServer::start(&Options::new()).await?;
        let proxy = Proxy::start(&server.address()).await?;
        proxy.door(Door::Silent).await?;
        for scheme in ["redis", "redis+cluster"] {
            let url = format!("{scheme}://{}?dlock.response_timeout=300ms", proxy.address());
            let error = within(SOON, connect(&url)).await?.unwrap_err();
            assert_unavailable(&error, &["no answer from the server in time"]);
        }
        let url = format!("redis+sentinel://{}/m?dlock.response_timeout=300ms", proxy.address());
        let error = within(SOON, connect(&url)).await?.unwrap_err();
        assert_unavailable(&error, &["no sentinel answers"]);
        Ok(())
    });
}

pub(crate) fn a_silent_connection_is_replaced() {
    with_redis(async {
        let server = RedisServer::start(&Options::new()).await?;
        let proxy = Proxy::start(&server.address()).await?;
        let url = format!("redis://{}?dlock.response_timeout=1500ms", proxy.address());
        let backend = connect(&url).await?;
        take(&backend, &ask("a", secs(60))).await?;
        let before = proxy.connections();
        for flow in [Proxy::requests, Proxy::replies] {
            flow(&proxy, Flow::Hold);
            // A few unanswered commands, each for a bounded time.
            for _ in 0..3 {
                let error = within(SOON, backend.acquire(&ask("b", secs(60)))).await?;
                assert_eq!(error.unwrap_err().kind(), ErrorKind::Unavailable);
            }
            until("another connection is tried", async || Ok(proxy.connections() > before)).await?;
            flow(&proxy, Flow::Pass);
            until("it works again", async || {
                Ok(backend.acquire(&ask("c", secs(60))).await.is_ok())
            })
            .await?;
        }
        Ok(())
    });
}

pub(crate) fn an_unrenewed_lock_is_lost_before_the_next_grant() {
    with_redis(async {
        let server = RedisServer::start(&Options::new()).await?;
        let proxy = Proxy::start(&server.address()).await?;
        let url = format!("redis://{}?dlock.response_timeout=1500ms", proxy.address());
        let lease = secs(6);
        let (cut_off, other) = (locks(&url, lease).await?, locks(&server.url(), lease).await?);
        let mut guards = Vec::new();
        for i in 0..20 {
            guards.push(cut_off.mutex(format!("held/{i}"))?.lock().await?);
        }
        sleep(lease + secs(1)).await;
        assert!(guards.iter().all(|guard| guard.state() != GuardState::Lost));
        proxy.requests(Flow::Hold);
        let mut next = Vec::new();
        for i in 0..20 {
            let lock = other.mutex(format!("held/{i}"))?;
            next.push(beside(async move { lock.lock().await }));
        }
        for (guard, next) in guards.iter().zip(next) {
            within(SOON, next).await???.release().await?;
            assert_eq!(guard.state(), GuardState::Lost, "{}", guard.name());
        }
        proxy.pass().await?;
        let lock = cut_off.mutex("held/0")?;
        within(SOON, lock.lock()).await??.release().await?;
        Ok(())
    });
}

/// After two timeouts, the lease would be over.
pub(crate) fn an_unanswered_renewal_is_retried_on_another_connection() {
    // The core cancels a renewal after a third of the lease, which is sooner than one of these
    // timeouts.
    with_redis(async {
        tokio::try_join!(renewed_elsewhere("3500ms"), renewed_elsewhere("10s"))?;
        Ok(())
    });
}

async fn renewed_elsewhere(response_timeout: &str) -> Verdict {
    let server = RedisServer::start(&Options::new()).await?;
    let proxy = Proxy::start(&server.address()).await?;
    let url = format!("redis://{}?dlock.response_timeout={response_timeout}", proxy.address());
    let guard = locks(&url, secs(12)).await?.mutex("a")?.lock().await?;
    let before = proxy.connections();
    proxy.strand();
    let renewed = async || Ok(proxy.connections() > before && guard.remaining() > secs(9));
    until("the lock is renewed over another connection", renewed).await?;
    assert_ne!(guard.state(), GuardState::Lost);
    within(SOON, guard.release()).await??;
    Ok(())
}

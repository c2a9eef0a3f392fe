//! The cost of a hand-off, and hand-offs during a lost connection or a restart of the server.

use std::time::Duration;

use dlock_core::{DynBackend, GuardState};
use dlock_testlab::{
    Door, Flow, Proxy, Stop,
    redis::{Options, Persistence, RedisServer},
};
use tokio::time::{Instant, sleep};

use crate::support::{
    LEASE, POLLS_AFTER, SOON, ask, beside, calls, connect, hand_off, is_notified, locks, millis,
    queue, scripts, secs, take, until, with_redis, within,
};

/// The number of hand-offs with the expected cost, and the limit of those that a busy machine
/// delays, besides four for each expected one.
const EXACT: usize = 60;
const SPOILT: usize = 30;

pub(crate) fn a_hand_off_costs_two_scripts_and_one_message() {
    with_redis(async {
        let server = RedisServer::start(&Options::new()).await?;
        let mut clients = Vec::new();
        for _ in 0..6 {
            clients.push((connect(&server.url()).await?, ask("a", LEASE)));
        }
        take(&clients[0].0, &clients[0].1).await?;
        for (backend, request) in &clients[1..] {
            queue(backend, request).await?;
        }
        let mut joined = vec![Instant::now(); clients.len()];
        let (mut exact, mut spoilt) = (0, 0);
        for turn in 0.. {
            let (now, next) = (turn % clients.len(), (turn + 1) % clients.len());
            server.command(&["CONFIG", "RESETSTAT"]).await?.ok()?;
            clients[now].0.release(&clients[now].1.as_claim()).await?;
            within(SOON, clients[next].0.granted(&clients[next].1)).await??;
            // The former holder joins the queue again.
            clients[now].1 = ask("a", LEASE);
            let joins = Instant::now();
            queue(&clients[now].0, &clients[now].1).await?;
            let (cost, messages) = (scripts(&server).await?, calls(&server, "publish").await?);
            let may_have_asked = joined.iter().any(|joined| joined.elapsed() >= POLLS_AFTER);
            joined[now] = joins;
            assert_eq!(messages, 1, "turn {turn}");
            match cost {
                // From then on, the server has the scripts in its cache.
                _ if turn < clients.len() => {}
                2 => exact += 1,
                3.. if may_have_asked => spoilt += 1,
                _ => panic!("turn {turn} costs {cost} scripts"),
            }
            if exact == EXACT {
                break;
            }
            assert!(spoilt < SPOILT + 4 * exact, "the waiters ask, though they are told");
        }
        Ok(())
    });
}

/// A server behind a proxy, a holder beside the proxy, and a waiter through it.
async fn waiter_behind_proxy(
    server: &RedisServer,
) -> Result<(Proxy, DynBackend, DynBackend), Stop> {
    let proxy = Proxy::start(&server.address()).await?;
    let holder = connect(&server.url()).await?;
    let waiter = connect(&format!("redis://{}", proxy.address())).await?;
    Ok((proxy, holder, waiter))
}

pub(crate) fn a_grant_during_a_cut_is_noticed_after_the_reconnect() {
    with_redis(async {
        let server = RedisServer::start(&Options::new()).await?;
        let (proxy, holder, waiter) = waiter_behind_proxy(&server).await?;
        for lost_message in [false, true] {
            is_notified("the grant", async || {
                hand_off_while_it_is_cut(&proxy, [&holder, &waiter], lost_message).await
            })
            .await?;
        }
        Ok(())
    });
}

/// Without a channel in its record, the claim would find each grant only by polling.
pub(crate) fn a_claim_from_an_outage_is_notified_of_its_grant() {
    with_redis(async {
        let server = RedisServer::start(&Options::new()).await?;
        let (proxy, holder, waiter) = waiter_behind_proxy(&server).await?;
        let (held, waits) = (ask("a", LEASE), ask("a", LEASE));
        take(&holder, &held).await?;
        let opened = proxy.connections();
        proxy.door(Door::Closed).await?;
        proxy.cut();
        until("the waiter's client knows that it has no connection", async || {
            Ok(waiter.inspect(&waits.name).await.is_err())
        })
        .await?;
        let (backend, request) = (waiter.clone(), waits.clone());
        let queued = beside(async move { queue(&backend, &request).await });
        sleep(millis(300)).await;
        assert_eq!(proxy.connections(), opened, "the claim is from the outage");
        proxy.pass().await?;
        within(SOON, queued).await???;
        let claim = waits.claim.to_string();
        let record = server.command(&["HGET", "dlock:{0}w:a", &claim]).await?.ok()?.text()?;
        assert!(record.contains("dlock:i:"), "{record}");
        holder.release(&held.as_claim()).await?;
        within(SOON, waiter.granted(&waits)).await??;
        waiter.release(&waits.as_claim()).await?;
        Ok(())
    });
}

/// Hands off a lock while the connection of the waiter is cut, or just before, so that the message
/// is lost. Returns the time from joining to the grant, once the connection was back.
async fn hand_off_while_it_is_cut(
    proxy: &Proxy,
    [holder, waiter]: [&DynBackend; 2],
    lost_message: bool,
) -> Result<Duration, Stop> {
    let (held, waits) = (ask("a", LEASE), ask("a", LEASE));
    take(holder, &held).await?;
    let joins = Instant::now();
    queue(waiter, &waits).await?;
    let (backend, request) = (waiter.clone(), waits.clone());
    let waiting = beside(async move { backend.granted(&request).await });
    sleep(millis(200)).await;
    if lost_message {
        proxy.replies(Flow::Drop);
    }
    proxy.door(Door::Closed).await?;
    if !lost_message {
        proxy.cut();
        sleep(millis(50)).await;
    }
    holder.release(&held.as_claim()).await?;
    sleep(millis(50)).await;
    proxy.cut();
    sleep(millis(100)).await;
    assert!(!waiting.is_finished());
    proxy.pass().await?;
    within(SOON, waiting).await???;
    let took = joins.elapsed();
    waiter.release(&waits.as_claim()).await?;
    Ok(took)
}

pub(crate) fn a_waiter_is_granted_by_a_restarted_server() {
    with_redis(async {
        for persistence in [Persistence::AofAlways, Persistence::None] {
            let server = RedisServer::start(&Options::new().with_persistence(persistence)).await?;
            let (holder, waiter) =
                (locks(&server.url(), secs(15)).await?, locks(&server.url(), secs(15)).await?);
            let guard = holder.mutex("a")?.lock().await?;
            let lock = waiter.mutex("a")?;
            let waiting = beside(async move { lock.lock().await });
            sleep(millis(200)).await;
            server.restart().await?;
            if persistence == Persistence::AofAlways {
                sleep(secs(3)).await;
                assert_ne!(guard.state(), GuardState::Lost);
                guard.release().await?;
                within(SOON, waiting).await???.release().await?;
                // The waiter listens again.
                let (holder, waiter) = (holder.backend(), waiter.backend());
                is_notified("after the restart", async || hand_off("a", holder, waiter).await)
                    .await?;
            } else {
                // The server has lost the lock: the holder is notified, and the waiter gets the
                // lock.
                within(SOON, guard.lost()).await?;
                within(SOON, waiting).await???.release().await?;
            }
        }
        Ok(())
    });
}

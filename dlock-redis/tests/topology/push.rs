//! What a hand-over costs, and what becomes of it when the connection or the server is lost.

use dlock_core::{DynBackend, GuardState};
use dlock_testlab::{
    Door, Flow, Proxy, Stop,
    redis::{Options, Persistence, RedisServer},
};
use tokio::time::{Instant, sleep};

use crate::help::{ask, beside, connect, locks, millis, queue, secs, take, with_redis, within};

/// How often a server has run a command since its counts began.
async fn calls(server: &RedisServer, command: &str) -> Result<u64, Stop> {
    let (stats, begin) = (server.info("commandstats").await?, format!("cmdstat_{command}:calls="));
    let count = stats.lines().find_map(|line| line.strip_prefix(&begin)?.split(',').next());
    Ok(count.unwrap_or("0").parse()?)
}

pub(crate) fn a_hand_over_costs_two_scripts_and_one_message_however_many_wait() {
    with_redis(async {
        let server = RedisServer::start(&Options::new()).await?;
        let mut clients = Vec::new();
        for _ in 0..6 {
            clients.push((connect(&server.url()).await?, ask("a", secs(60))));
        }
        take(&clients[0].0, &clients[0].1).await?;
        for (backend, request) in &clients[1..] {
            queue(backend, request).await?;
        }
        let (warm, turns) = (6, 60);
        let began = Instant::now();
        for turn in 0..warm + turns {
            if turn == warm {
                // The scripts are known from here on.
                server.command(&["CONFIG", "RESETSTAT"]).await?.ok()?;
            }
            let (now, next) = (turn % clients.len(), (turn + 1) % clients.len());
            clients[now].0.release(&clients[now].1.as_claim()).await?;
            within(secs(2), clients[next].0.granted(&clients[next].1)).await??;
            // And it joins the queue again.
            clients[now].1 = ask("a", secs(60));
            queue(&clients[now].0, &clients[now].1).await?;
        }
        // Who waits asks after three seconds for the first time.
        assert!(began.elapsed() < secs(2), "{:?}", began.elapsed());
        let turns = u64::try_from(turns)?;
        assert_eq!(calls(&server, "publish").await?, turns);
        let scripts = calls(&server, "evalsha").await? + calls(&server, "eval").await?;
        assert_eq!(scripts, 2 * turns);
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

pub(crate) fn a_grant_while_the_connection_was_cut_is_heard_of_right_after_it() {
    with_redis(async {
        let server = RedisServer::start(&Options::new()).await?;
        let (proxy, holder, waiter) = waiter_behind_proxy(&server).await?;
        for lost_message in [false, true] {
            let (held, waits) = (ask("a", secs(300)), ask("a", secs(300)));
            take(&holder, &held).await?;
            queue(&waiter, &waits).await?;
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
            let began = Instant::now();
            within(secs(5), waiting).await???;
            // Who does not notice asks three seconds after it began to wait.
            assert!(began.elapsed() < millis(1500), "{:?}", began.elapsed());
            waiter.release(&waits.as_claim()).await?;
        }
        Ok(())
    });
}

pub(crate) fn who_waits_is_granted_the_lock_by_a_server_that_was_restarted() {
    with_redis(async {
        for persistence in [Persistence::AofAlways, Persistence::None] {
            let server = RedisServer::start(&Options::new().with_persistence(persistence)).await?;
            let (holder, waiter) =
                (locks(&server.url(), secs(6)).await?, locks(&server.url(), secs(6)).await?);
            let guard = holder.mutex("a")?.lock().await?;
            let lock = waiter.mutex("a")?;
            let waiting = beside(async move { lock.lock().await });
            sleep(millis(200)).await;
            server.restart().await?;
            if persistence == Persistence::AofAlways {
                sleep(secs(3)).await;
                assert_eq!(guard.state(), GuardState::Held);
                let began = Instant::now();
                guard.release().await?;
                within(secs(4), waiting).await???.release().await?;
                assert!(began.elapsed() < millis(900), "{:?}", began.elapsed());
            } else {
                // Nothing is left of the lock: the holder is told, and the waiter gets it.
                within(secs(4), guard.lost()).await?;
                within(secs(4), waiting).await???.release().await?;
            }
        }
        Ok(())
    });
}

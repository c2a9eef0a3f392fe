//! Lost answers, and unrequested messages.

#![expect(clippy::disallowed_methods, reason = "tests start tasks of their own")]

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use dlock_core::{AcquireRequest, Clock, DynBackend, LockName, LockOptions, Locks, Released};
use dlock_testlab::{
    Flow, Proxy, Stop, Verdict,
    redis::{Options, RedisCluster, RedisServer},
};
use tokio::{
    task::{JoinSet, spawn},
    time::{sleep, timeout},
};

use crate::{claims::ask, connect};

/// A backstop on a busy machine.
const BOUND: Duration = Duration::from_secs(60);

/// The first release took effect, and its answer was lost: the retry must not report that the lock
/// had been lost before.
pub(crate) async fn a_release_with_a_lost_answer_is_successful() -> Verdict {
    let server = RedisServer::start(&Options::new()).await?;
    let proxy = Proxy::start(&server.address()).await?;
    let url = format!("redis://{}?dlock.response_timeout=2s", proxy.address());
    let locks = Locks::new(connect(url).await?)?;
    let mutex = locks.mutex("lost/answer")?;
    // From here on, the server has the script in its cache.
    mutex.lock().await?.release().await?;
    let guard = mutex.lock().await?;
    proxy.replies(Flow::Drop);
    let releasing = spawn(guard.release());
    sleep(Duration::from_millis(100)).await;
    proxy.cut();
    proxy.pass().await?;
    match timeout(BOUND, releasing).await??? {
        Released::Released => Ok(()),
        other => Err(Stop::failed(format!("the answer to a release in time is {other:?}"))),
    }
}

/// A release that never arrived is sent again, after another claim has joined the queue.
pub(crate) async fn a_lost_release_is_retried_until_it_succeeds() -> Verdict {
    let server = RedisServer::start(&Options::new()).await?;
    let proxy = Proxy::start(&server.address()).await?;
    let url = format!("redis://{}?dlock.response_timeout=2s", proxy.address());
    let (locks, other) = (Locks::new(connect(url).await?)?, connect(server.url()).await?);
    // Longer than the notification of the release takes, even on a busy machine.
    let long = 5 * BOUND;
    let locks = locks.with_options(LockOptions::new().with_lease(long))?;
    let mutex = locks.mutex("lost/release")?;
    for _ in 0..3 {
        mutex.lock().await?.release().await?;
    }
    let guard = mutex.lock().await?;
    proxy.requests(Flow::Drop);
    let releasing = spawn(guard.release());
    sleep(Duration::from_millis(100)).await;
    let waiter = ask(&LockName::new("lost/release")?, long);
    other.acquire(&waiter).await?;
    proxy.cut();
    proxy.pass().await?;
    let released = timeout(BOUND, releasing).await???;
    match timeout(BOUND, other.granted(&waiter)).await {
        Ok(granted) => granted.map(|_| ()).map_err(Stop::from),
        Err(_) => Err(Stop::failed(format!("the lock is said to be {released:?} and is held"))),
    }
}

/// When a slot moves, the server ends the subscriptions in it unrequested. That message is
/// no answer to a request under way, and the client continues.
pub(crate) async fn answers_match_their_requests() -> Verdict {
    let cluster = RedisCluster::start(&Options::new()).await?;
    let client = connect(format!("{}?dlock.response_timeout=500ms", cluster.url())).await?;
    // A claim waits, so that there is a subscription in the slot.
    let moved = LockName::new("moved")?;
    let long = Duration::from_secs(300);
    client.acquire(&ask(&moved, long)).await?;
    client.acquire(&ask(&moved, long)).await?;
    let key = cluster.keys("dlock:{*").await?.remove(0);
    let slot = cluster.slot_of(&key).await?;
    let from = cluster.master_of_slot(slot).await?;
    let mut others = cluster.nodes()[..3].iter().filter(|node| node.port() != from.port());
    let to = others.next().ok_or_else(|| Stop::failed("no other master"))?;

    let (mut asking, done) = (JoinSet::new(), Arc::new(AtomicBool::new(false)));
    for at in 0..60 {
        let request = ask(&LockName::new(&format!("steady/{at}"))?, long);
        client.acquire(&request).await?;
        asking.spawn(sees_itself(client.clone(), request, Arc::clone(&done)));
    }
    sleep(Duration::from_millis(300)).await;
    for _ in 0..4 {
        for (from, to) in [(from, to), (to, from)] {
            cluster.move_slot(slot, from, to).await?;
            // It subscribes again.
            let _ = timeout(BOUND, client.acquire(&ask(&moved, long))).await?;
            sleep(Duration::from_millis(100)).await;
        }
    }
    done.store(true, Ordering::Relaxed);
    while let Some(one) = asking.join_next().await {
        one??;
    }
    Ok(())
}

/// Inspects a lock repeatedly. Every answer shows this holder.
async fn sees_itself(
    client: DynBackend,
    request: AcquireRequest,
    done: Arc<AtomicBool>,
) -> Verdict {
    let mut since = Clock::Boot.now();
    loop {
        match client.inspect(&request.name).await {
            Ok(state) if state.holders.iter().any(|holder| holder.claim == request.claim) => {
                since = Clock::Boot.now();
                if done.load(Ordering::Relaxed) {
                    return Ok(());
                }
            }
            Ok(state) => {
                return Err(Stop::failed(format!("{} is held by {state:?}", request.name)));
            }
            Err(error) if error.is_transient() && Clock::Boot.now().since(since) < BOUND => {}
            Err(error) => return Err(error.into()),
        }
    }
}

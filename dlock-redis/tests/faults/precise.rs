//! Single faults, each placed so that it hits.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use dlock_core::{
    AcquireRequest, Acquired, ClaimId, Clock, DynBackend, LockName, LockOptions, Locks, Mode,
    Queue, Released, Renewal, Renewed,
};
use dlock_testkit::{
    Stop, Verdict,
    servers::{
        Door, Flow, Proxy,
        redis::{Options, RedisCluster, RedisMasters, RedisServer},
    },
};
use tokio::{
    task::JoinSet,
    time::{sleep, timeout},
};

use crate::connect;

/// A backstop on a busy machine.
const BOUND: Duration = Duration::from_secs(20);

fn ask(name: &LockName, lease: Duration) -> AcquireRequest {
    AcquireRequest {
        name: name.clone(),
        claim: ClaimId::random(),
        mode: Mode::Exclusive,
        lease,
        queue: Queue::Enqueue,
        tokens: 1,
    }
}

/// An acquire that finds the connection shut waits for the next one, which may be to a server that
/// has just forgotten everything: the guard counts for that one, too.
pub(crate) async fn the_guard_holds_for_who_waits_for_the_connection() -> Verdict {
    let server = RedisServer::start(&Options::new()).await?;
    sleep(Duration::from_secs(5)).await;
    let url = format!("{}?dlock.restart_guard=4s&dlock.response_timeout=5s", server.url());
    let (first, second) = (connect(url.clone()).await?, connect(url).await?);
    let (name, lease) = (LockName::new("guarded")?, Duration::from_secs(4));
    let held = first.acquire(&ask(&name, lease)).await?;
    let Acquired::Granted(held) = held else { return Err(Stop::failed("not free at first")) };
    server.kill();
    // So that it notices before it asks.
    sleep(Duration::from_millis(200)).await;
    let request = ask(&name, lease);
    let asking = tokio::task::spawn(second.acquire(&request));
    sleep(Duration::from_millis(200)).await;
    server.restart().await?;
    let answer = asking.await?;
    let age = Clock::Boot.now().since(held.since);
    match answer {
        Ok(Acquired::Granted(grant)) if age < lease => Err(Stop::failed(format!(
            "{grant:?} while {held:?}, of a lease of {lease:?}, is {age:?} old"
        ))),
        _ => Ok(()),
    }
}

/// A vote that was asked for before a master forgot everything, and is asked for again after it,
/// does not count.
pub(crate) async fn the_guard_holds_for_votes_that_are_asked_for_again() -> Verdict {
    let masters = RedisMasters::start(3, &Options::new()).await?;
    let [first, second, third] = masters.servers() else { return Err(Stop::failed("not three")) };
    let proxy = Proxy::start(&third.address()).await?;
    proxy.door(Door::Closed).await?;
    let (a, b, c) = (first.address(), second.address(), third.address());
    let options = "dlock.restart_guard=4s&dlock.response_timeout=5s";
    // One holder can't reach the third master.
    let holder = format!("redis+quorum://{a},{b},{}?{options}", proxy.address());
    let holder = connect(holder).await?;
    let other = connect(format!("redis+quorum://{a},{b},{c}?{options}")).await?;
    // The guard of the start is over.
    sleep(Duration::from_millis(5100)).await;
    let (name, lease) = (LockName::new("voted")?, Duration::from_secs(4));
    let held = holder.acquire(&ask(&name, lease)).await?;
    let Acquired::Granted(held) = held else { return Err(Stop::failed("not free at first")) };
    second.pause()?;
    let request = AcquireRequest { queue: Queue::FailIfBusy, ..ask(&name, lease) };
    let asking = tokio::task::spawn(other.acquire(&request));
    sleep(Duration::from_millis(200)).await;
    second.restart().await?;
    let answer = asking.await?;
    let age = Clock::Boot.now().since(held.since);
    match answer {
        Ok(Acquired::Granted(grant)) if age < lease => Err(Stop::failed(format!(
            "{grant:?} while {held:?}, of a lease of {lease:?}, is {age:?} old"
        ))),
        _ => Ok(()),
    }
}

/// The first release did it, and its answer got lost: who is asked again must not say that the lock
/// had been lost before.
pub(crate) async fn a_release_whose_answer_is_lost_is_a_release() -> Verdict {
    let server = RedisServer::start(&Options::new()).await?;
    let proxy = Proxy::start(&server.address()).await?;
    let url = format!("redis://{}?dlock.response_timeout=2s", proxy.address());
    let locks = Locks::over(connect(url).await?)?;
    let mutex = locks.mutex("lost/answer")?;
    // From here on the server knows the script.
    mutex.lock().await?.release().await?;
    let guard = mutex.lock().await?;
    proxy.replies(Flow::Drop);
    let releasing = tokio::task::spawn(guard.release());
    sleep(Duration::from_millis(100)).await;
    proxy.cut();
    proxy.pass().await?;
    match timeout(BOUND, releasing).await??? {
        Released::Released => Ok(()),
        other => Err(Stop::failed(format!("the answer to a release in time is {other:?}"))),
    }
}

/// A release that never arrived is sent again, when somebody else has joined the queue meanwhile.
pub(crate) async fn a_release_that_got_lost_is_done_in_the_end() -> Verdict {
    let server = RedisServer::start(&Options::new()).await?;
    let proxy = Proxy::start(&server.address()).await?;
    let url = format!("redis://{}?dlock.response_timeout=2s", proxy.address());
    let (locks, other) = (Locks::over(connect(url).await?)?, connect(server.url()).await?);
    let mutex = locks.mutex("lost/release")?;
    for _ in 0..3 {
        mutex.lock().await?.release().await?;
    }
    let guard = mutex.lock().await?;
    proxy.requests(Flow::Drop);
    let releasing = tokio::task::spawn(guard.release());
    sleep(Duration::from_millis(100)).await;
    let waiter = ask(&LockName::new("lost/release")?, Duration::from_secs(30));
    other.acquire(&waiter).await?;
    proxy.cut();
    proxy.pass().await?;
    let released = timeout(BOUND, releasing).await???;
    match timeout(Duration::from_secs(10), other.granted(&waiter)).await {
        Ok(granted) => granted.map(|_| ()).map_err(Stop::from),
        Err(_) => Err(Stop::failed(format!("the lock is said to be {released:?} and is held"))),
    }
}

/// When a slot moves, the server ends the subscriptions in it without being asked. That message is
/// no answer to any question that is on its way; and the client goes on.
pub(crate) async fn answers_stay_with_their_questions() -> Verdict {
    let cluster = RedisCluster::start(&Options::new()).await?;
    let client = connect(format!("{}?dlock.response_timeout=500ms", cluster.url())).await?;
    // Somebody waits, so that there is a subscription in the slot.
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
            // It subscribes anew.
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

/// Asks again and again who holds a lock: in the end, and whenever there is an answer, it is its
/// holder.
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

/// After a failover that lost a grant, the claim may still stand in the queue of the new master:
/// its holder must not be told that it holds the lock for another lease.
pub(crate) async fn a_claim_that_waits_is_not_renewed_as_one_that_holds() -> Verdict {
    let server = RedisServer::start(&Options::new()).await?;
    let client = connect(server.url()).await?;
    let (name, lease) = (LockName::new("waits")?, Duration::from_secs(30));
    let [holder, waiter] = [ask(&name, lease), ask(&name, lease)];
    client.acquire(&holder).await?;
    client.acquire(&waiter).await?;
    let renewal =
        |request: &AcquireRequest| Renewal { claim: request.as_claim(), mode: request.mode, lease };
    let answers = client.renew(&[renewal(&holder), renewal(&waiter)]).await?;
    match answers[..] {
        [Renewed::Kept, Renewed::Lost] => Ok(()),
        _ => Err(Stop::failed(format!("the holder and the waiter are told {answers:?}"))),
    }
}

/// A multi-lock that waits for longer than its lease, again and again, goes on waiting.
pub(crate) async fn a_multi_lock_waits_for_as_long_as_it_takes() -> Verdict {
    let locks = Locks::over(dlock_core::Memory::new())?;
    let options = LockOptions::new()
        .with_lease(Duration::from_millis(200))
        .with_renew(dlock_core::Renew::Never);
    let brief = locks.with_options(options)?;
    let multi = brief.multi(["multi/a", "multi/b"])?;
    let other = locks.fair("multi/b")?;
    // Each turn of the other is longer than the lease, and shorter than two.
    let mut turns = JoinSet::new();
    let first = other.lock().await?;
    turns.spawn(async move {
        let mut guard = first;
        for _ in 0..3 {
            sleep(Duration::from_millis(300)).await;
            let next = {
                let other = other.clone();
                tokio::task::spawn(async move { other.lock().await })
            };
            sleep(Duration::from_millis(5)).await;
            guard.release().await?;
            guard = next
                .await
                .map_err(|_| dlock_core::Error::new(dlock_core::ErrorKind::Protocol, "died"))??;
        }
        guard.release().await
    });
    let taken = multi.lock_timeout(Duration::from_secs(5)).await;
    turns.abort_all();
    match taken {
        Ok(_) => Ok(()),
        Err(error) => Err(Stop::failed(format!("{:?}: {error}", error.kind()))),
    }
}

//! Lost answers.

#![expect(clippy::disallowed_methods, reason = "tests start tasks of their own")]

use std::{collections::BTreeSet, time::Duration};

use dlock_core::{Error, Guard, LockOptions, Locks, Released};
use dlock_testlab::{
    Door, Flow, Proxy, Stop, Verdict,
    zookeeper::{Ensemble, Options, ZooKeeperServer},
};
use tokio::{
    task::{JoinHandle, spawn},
    time::{sleep, timeout},
};

use crate::{
    cleanup, connect,
    settings::{SESSION, options, url},
};

/// A backstop on a busy machine.
const BOUND: Duration = Duration::from_secs(60);

/// A server, a client behind a proxy, and a client without one.
struct Scene {
    server: ZooKeeperServer,
    proxy: Proxy,
    locks: Locks,
    other: Locks,
}

impl Scene {
    /// The servers keep empty directories, so the first request creates the node.
    async fn start(sessions: Duration) -> Result<Self, Stop> {
        let options: Options = options().with_container_checks_every(Duration::from_secs(3600));
        let server = ZooKeeperServer::start(&options).await?;
        let proxy = Proxy::start(&server.address()).await?;
        let to = |address: String| {
            connect(format!("zk://{address}?dlock.session_timeout={}ms", sessions.as_millis()))
        };
        let locks = Locks::new(to(proxy.address()).await?)?;
        let other = Locks::new(connect(url(&server.address())).await?)?;
        for name in ["a", "b"] {
            other.mutex(name)?.lock().await?.release().await?;
        }
        Ok(Self { server, proxy, locks, other })
    }

    /// Acquires a lock, or several, in a task.
    fn take(&self, names: &'static [&'static str]) -> JoinHandle<Result<Guard, Error>> {
        let locks = self.locks.clone();
        spawn(async move {
            match names {
                [name] => locks.mutex(*name)?.lock().await,
                names => locks.multi(names.iter().copied())?.lock().await,
            }
        })
    }

    /// Drops the requests and answers in flight, and ends the fault.
    async fn heal(&self) -> Verdict {
        // A new connection would miss the beginning of the server's answer.
        self.proxy.door(Door::Closed).await?;
        self.proxy.cut();
        // The cut takes effect a moment later, and the old connections must not get later answers.
        sleep(Duration::from_millis(5)).await;
        self.proxy.pass().await
    }

    async fn is_empty(&self) -> Verdict {
        cleanup::until_claims(&self.server, 0).await.map(|_| ())
    }
}

/// The first request released the lock, and its answer was lost. The answer to the second one must
/// not say that the lock had been lost before.
pub(crate) async fn a_release_whose_answer_is_lost_is_a_release() -> Verdict {
    let scene = Scene::start(SESSION).await?;
    let guard = scene.take(&["a"]).await??;
    scene.proxy.replies(Flow::Drop);
    let releasing = spawn(guard.release());
    scene.is_empty().await?;
    scene.heal().await?;
    match timeout(BOUND, releasing).await??? {
        Released::Released => scene.is_empty().await,
        other => Err(Stop::failed(format!("the answer to a release in time is {other:?}"))),
    }
}

/// A release that never arrived is retried, and the waiter is granted the lock.
pub(crate) async fn a_lost_release_is_repeated_until_it_is_done() -> Verdict {
    let scene = Scene::start(SESSION).await?;
    let guard = scene.take(&["a"]).await??;
    scene.proxy.requests(Flow::Drop);
    let releasing = spawn(guard.release());
    let mutex = scene.other.mutex("a")?;
    let waiting = spawn(async move { mutex.lock().await });
    cleanup::until_claims(&scene.server, 2).await?;
    scene.heal().await?;
    let next = timeout(BOUND, waiting).await???;
    let released = timeout(BOUND, releasing).await???;
    if released != Released::Released {
        return Err(Stop::failed(format!("a release in time is {released:?}")));
    }
    next.release().await?;
    scene.is_empty().await
}

/// The nodes exist, no answer arrived, and the retry finds them.
pub(crate) async fn an_acquire_whose_answer_is_lost_has_one_node() -> Verdict {
    let scene = Scene::start(SESSION).await?;
    for names in [&["a"][..], &["a", "b"][..]] {
        scene.proxy.replies(Flow::Drop);
        let taking = scene.take(names);
        let made = cleanup::until_claims(&scene.server, names.len()).await?;
        scene.heal().await?;
        let guard = timeout(BOUND, taking).await???;
        let held = cleanup::claims(&scene.server).await?;
        if held != made {
            return Err(Stop::failed(format!("{made:?} were made, and {held:?} are there")));
        }
        guard.check()?;
        guard.release().await?;
        scene.is_empty().await?;
    }
    Ok(())
}

/// The session and its node end before the answer arrives.
pub(crate) async fn an_acquire_lost_with_its_session_is_sent_again() -> Verdict {
    let scene = Scene::start(SESSION).await?;
    for names in [&["a"][..], &["a", "b"][..]] {
        scene.proxy.replies(Flow::Drop);
        let taking = scene.take(names);
        let made = cleanup::until_claims(&scene.server, names.len()).await?;
        // The caller no longer waits for the claim.
        scene.proxy.requests(Flow::Drop);
        scene.is_empty().await?;
        scene.heal().await?;
        let guard = timeout(BOUND, taking).await???;
        let held = cleanup::claims(&scene.server).await?;
        if held.len() != names.len() || held.iter().any(|node| made.contains(node)) {
            return Err(Stop::failed(format!("{made:?} were made, and {held:?} are there")));
        }
        guard.release().await?;
        scene.is_empty().await?;
    }
    Ok(())
}

/// A claim is not cancelled while its request is under way, even if its lease is short.
pub(crate) async fn an_acquire_that_takes_longer_than_its_lease_has_one_node() -> Verdict {
    // A caller waits for a third of the lease, and then retries.
    let session = SESSION * 3;
    let scene = Scene::start(session).await?;
    let brief = LockOptions::new().with_lease(Duration::from_millis(300));
    let locks = scene.locks.with_options(brief)?;
    scene.proxy.replies(Flow::Drop);
    let taking = spawn(async move { locks.mutex("a")?.lock().await });
    let made = cleanup::until_claims(&scene.server, 1).await?;
    sleep(session / 3 + session / 20).await;
    scene.heal().await?;
    let guard = timeout(BOUND, taking).await???;
    for _ in 0..20 {
        let held = cleanup::claims(&scene.server).await?;
        if guard.check().is_err() {
            // The machine was paused for longer than the lease.
            break;
        }
        if held != made {
            return Err(Stop::failed(format!("{made:?} was made, and {held:?} are there")));
        }
        sleep(Duration::from_millis(50)).await;
    }
    guard.release().await?;
    scene.is_empty().await
}

/// A late answer that the lock is busy is an answer, too.
pub(crate) async fn a_try_whose_answer_is_lost_leaves_no_node() -> Verdict {
    let scene = Scene::start(SESSION).await?;
    let held = scene.other.mutex("a")?.lock().await?;
    let own = cleanup::claims(&scene.server).await?;
    scene.proxy.replies(Flow::Drop);
    let mutex = scene.locks.mutex("a")?;
    let trying = spawn(async move { mutex.try_lock().await });
    cleanup::until_claims(&scene.server, 2).await?;
    scene.heal().await?;
    let tried = timeout(BOUND, trying).await??;
    if !matches!(tried, Ok(None)) {
        return Err(Stop::failed(format!("a try of a lock that is held is {tried:?}")));
    }
    let left = cleanup::until_claims(&scene.server, 1).await?;
    if left != own {
        return Err(Stop::failed(format!("the holder has {own:?}, and {left:?} is left")));
    }
    held.release().await?;
    scene.is_empty().await
}

/// After a caller has given up, early or because the store is unreachable, its claim does not
/// return.
pub(crate) async fn a_claim_cancelled_before_the_answer_leaves_no_node() -> Verdict {
    // Three times the response timeout of a caller.
    let session = SESSION * 3;
    let scene = Scene::start(session).await?;
    for silence in [Duration::ZERO, session / 2] {
        scene.proxy.replies(Flow::Drop);
        let taking = scene.take(&["a"]);
        let made = cleanup::until_claims(&scene.server, 1).await?;
        taking.abort();
        sleep(silence).await;
        scene.heal().await?;
        let mut seen = BTreeSet::from_iter(made.clone());
        let mut quiet = 0;
        while quiet < 20 {
            let now = cleanup::claims(&scene.server).await?;
            quiet = if now.is_empty() { quiet + 1 } else { 0 };
            seen.extend(now);
            sleep(Duration::from_millis(20)).await;
        }
        if seen.len() > 1 {
            return Err(Stop::failed(format!("{made:?} was made, and then there were {seen:?}")));
        }
    }
    Ok(())
}

/// Three servers, and a client that knows both followers.
struct Followers {
    servers: Ensemble,
    /// The follower that is partitioned from its leader, and the client's proxy to it.
    old: usize,
    first: Proxy,
    /// The other one.
    new: usize,
    second: Proxy,
    locks: Locks,
}

impl Followers {
    async fn start() -> Result<Self, Stop> {
        let options = options().with_container_checks_every(Duration::from_secs(3600));
        let servers = Ensemble::start(&options.with_sync_limit(SESSION * 4)).await?;
        let [old, new] = servers.followers().await?[..] else {
            return Err(Stop::failed("not two followers"));
        };
        let first = Proxy::start(&servers.nodes()[old].address()).await?;
        let second = Proxy::start(&servers.nodes()[new].address()).await?;
        second.door(Door::Closed).await?;
        let hosts = format!("{},{}", first.address(), second.address());
        let options = format!("dlock.session_timeout={}ms", (SESSION * 2).as_millis());
        let locks = Locks::new(connect(format!("zk://{hosts}?{options}")).await?)?;
        Ok(Self { servers, old, first, new, second, locks })
    }

    /// The client can reach only the second follower.
    async fn move_on(&self) -> Verdict {
        self.second.door(Door::Open).await?;
        self.first.door(Door::Closed).await?;
        self.first.cut();
        Ok(())
    }
}

/// A follower accepted a request, and its leader gets it after the client has moved to another
/// server. The session has moved, so the leader refuses the request. Otherwise its node would
/// belong to no claim, and would block the lock.
pub(crate) async fn an_acquire_that_comes_late_makes_no_second_node() -> Verdict {
    for names in [&["a"][..], &["a", "b"][..]] {
        let scene = Followers::start().await?;
        let (servers, locks) = (&scene.servers, scene.locks.clone());
        for name in ["a", "b"] {
            locks.mutex(name)?.lock().await?.release().await?;
        }
        servers.cut_from_leader(scene.old).await?;
        let taking = spawn(async move {
            match names {
                [name] => locks.mutex(*name)?.lock().await,
                names => locks.multi(names.iter().copied())?.lock().await,
            }
        });
        // The request has been sent.
        sleep(Duration::from_millis(200)).await;
        scene.move_on().await?;
        let made = cleanup::until_claims(&servers.nodes()[scene.new], names.len()).await?;
        let guard = timeout(BOUND, taking).await???;
        servers.heal(scene.old);
        // A read through the follower, which comes after the requests that were held back.
        let held = cleanup::until_claims(&servers.nodes()[scene.old], names.len()).await?;
        if held != made {
            return Err(Stop::failed(format!("{made:?} were made, and {held:?} are there")));
        }
        guard.check()?;
        guard.release().await?;
        cleanup::until_claims(&servers.nodes()[scene.old], 0).await?;
    }
    Ok(())
}

/// The same, but the client had first tried to return to the follower. So after the requests, the
/// leader learns that the session belongs to the follower again. It knows that at once, and
/// processes some of the many requests later.
pub(crate) async fn late_acquires_in_a_returned_session_make_no_nodes() -> Verdict {
    let scene = Followers::start().await?;
    let servers = &scene.servers;
    // The number of requests that a connection sends at a time.
    let names: Vec<_> = (0..250).map(|name| format!("late/{name}")).collect();
    for name in &names {
        scene.locks.mutex(name)?.lock().await?.release().await?;
    }
    servers.cut_from_leader(scene.old).await?;
    let mut taking = Vec::new();
    for name in &names {
        let mutex = scene.locks.mutex(name)?;
        taking.push(spawn(async move { mutex.lock().await }));
    }
    sleep(Duration::from_millis(200)).await;
    scene.first.cut();
    sleep(Duration::from_millis(200)).await;
    scene.move_on().await?;
    cleanup::until_claims(&servers.nodes()[scene.new], names.len()).await?;
    servers.heal(scene.old);
    for guard in taking {
        timeout(BOUND, guard).await???.release().await?;
    }
    servers.until_well().await?;
    cleanup::until_claims(&servers.nodes()[scene.old], 0).await.map(|_| ())
}

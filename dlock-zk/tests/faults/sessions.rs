//! The promise of a session: a partitioned client treats its locks as lost before another client
//! gets them, and continues in the next session.

#![expect(clippy::disallowed_methods, reason = "tests start tasks of their own")]

use std::time::Duration;

use dlock_core::{Clock, Ended, Error, ErrorKind, Guard, LockOptions, Locks, Renew};
use dlock_testlab::{
    Door, Flow, Proxy, Stop, Verdict,
    zookeeper::{Ensemble, ZooKeeperServer},
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

pub(crate) async fn behind_a_cut_follower() -> Verdict {
    let servers = Ensemble::start(&options()).await?;
    let (follower, leader) = (servers.followers().await?[0], servers.leader().await?);
    let pair = Pair::between(&servers, follower, leader).await?;
    servers.cut_from_leader(follower).await?;
    pair.ends_in_order(|| servers.heal(follower)).await?;
    cleanup::nothing(&servers.nodes()[leader]).await
}

/// For longer than the session lasts, the follower still answers pings and reads.
pub(crate) async fn behind_a_follower_that_keeps_serving() -> Verdict {
    let servers = Ensemble::start(&options().with_sync_limit(SESSION * 3)).await?;
    let (follower, leader) = (servers.followers().await?[0], servers.leader().await?);
    let pair = Pair::between(&servers, follower, leader).await?;
    servers.cut_from_leader(follower).await?;
    pair.ends_in_order(|| servers.heal(follower)).await?;
    cleanup::nothing(&servers.nodes()[leader]).await
}

pub(crate) async fn behind_a_cut_leader() -> Verdict {
    let servers = Ensemble::start(&options()).await?;
    let (follower, leader) = (servers.followers().await?[0], servers.leader().await?);
    let pair = Pair::between(&servers, leader, follower).await?;
    servers.isolate(leader);
    pair.ends_in_order(|| servers.heal(leader)).await?;
    cleanup::nothing(&servers.nodes()[follower]).await
}

pub(crate) async fn behind_a_cut_connection() -> Verdict {
    let server = ZooKeeperServer::start(&options()).await?;
    let proxy = Proxy::start(&server.address()).await?;
    let pair = Pair::of(&server, &proxy.address(), &server.address()).await?;
    proxy.requests(Flow::Hold);
    proxy.replies(Flow::Hold);
    pair.ends_in_order(|| {
        proxy.requests(Flow::Pass);
        proxy.replies(Flow::Pass);
    })
    .await?;
    cleanup::nothing(&server).await
}

/// A holder whose connection will be cut, and a waiter on another connection.
struct Pair {
    locks: Locks,
    guard: Guard,
    waiting: JoinHandle<Result<Guard, Error>>,
}

impl Pair {
    async fn between(servers: &Ensemble, holds: usize, waits: usize) -> Result<Self, Stop> {
        let nodes = servers.nodes();
        Self::of(&nodes[waits], &nodes[holds].address(), &nodes[waits].address()).await
    }

    async fn of(server: &ZooKeeperServer, holds: &str, waits: &str) -> Result<Self, Stop> {
        let locks = Locks::new(connect(url(holds)).await?)?;
        let guard = locks.mutex("cut")?.lock().await?;
        let other = Locks::new(connect(url(waits)).await?)?.mutex("cut")?;
        let waiting = spawn(async move { other.lock().await });
        cleanup::until_claims(server, 2).await?;
        Ok(Self { locks, guard, waiting })
    }

    /// The holder treats the lock as lost before the waiter gets it, and reconnects later.
    async fn ends_in_order(self, heal: impl FnOnce()) -> Verdict {
        let Self { locks, guard, waiting } = self;
        let lost = guard.lost();
        let losing = spawn(async move { (lost.await, Clock::Boot.now()) });
        let granted = timeout(BOUND, waiting).await???;
        let (at, checked) = (Clock::Boot.now(), guard.check());
        if checked.is_ok() {
            return Err(Stop::violation(format!("{granted:?} while {guard:?} is valid")));
        }
        let (ended, notified) = timeout(BOUND, losing).await??;
        println!("cut: {ended:?}, {:?} before the next one held it", at.since(notified));
        if notified > at {
            return Err(Stop::failed(format!(
                "the loss was reported {:?} late",
                notified.since(at)
            )));
        }
        if granted.token() <= guard.token() {
            return Err(Stop::violation(format!("{granted:?} after {guard:?}")));
        }
        granted.release().await?;
        heal();
        drop(guard);
        insist(&locks).await?.release().await?;
        Ok(())
    }
}

/// Acquires the lock from servers that need time to recover.
async fn insist(locks: &Locks) -> Result<Guard, Stop> {
    let taking = async {
        loop {
            match locks.mutex("cut")?.lock().await {
                Err(error) if error.kind() == ErrorKind::Unavailable => {
                    sleep(Duration::from_millis(50)).await;
                }
                answer => return answer,
            }
        }
    };
    Ok(timeout(BOUND, taking).await??)
}

/// The loss is reported at once, for any lease, and without a renewal.
pub(crate) async fn an_operator_who_deletes_a_node_is_noticed() -> Verdict {
    // So long that the report of the loss must come before the next renewal, a third of the lease
    // later.
    let session = 8 * BOUND;
    let options = options().with_sessions(SESSION, session);
    let server = ZooKeeperServer::start(&options).await?;
    let seconds = session.as_secs();
    let url = format!("zk://{}?dlock.session_timeout={seconds}s", server.address());
    let locks = Locks::new(connect(url).await?)?;
    for renew in [Renew::Auto, Renew::Never] {
        let lease = LockOptions::new().with_lease(4 * BOUND).with_renew(renew);
        let guard = locks.with_options(lease)?.mutex("deleted")?.lock().await?;
        let claim = cleanup::until_claims(&server, 1).await?.remove(0);
        server.delete_recursively(&claim).await?;
        let lost = timeout(BOUND, guard.lost()).await;
        match lost {
            Ok(Ended::Revoked) => {}
            other => return Err(Stop::failed(format!("{renew:?}: {other:?}"))),
        }
        let error = guard.check().err().map(|error| error.kind());
        if error != Some(ErrorKind::Lost) {
            return Err(Stop::failed(format!("{renew:?}: a check says {error:?}")));
        }
    }
    cleanup::nothing(&server).await
}

/// A waiter whose session ends while another client holds the lock sends a new claim in the next
/// session.
pub(crate) async fn waiters_go_on_in_the_next_one() -> Verdict {
    let server = ZooKeeperServer::start(&options()).await?;
    let proxy = Proxy::start(&server.address()).await?;
    let holder = Locks::new(connect(url(&server.address())).await?)?;
    let guard = holder.mutex("a")?.lock().await?;
    let [first] = &cleanup::until_claims(&server, 1).await?[..] else {
        return Err(Stop::failed("nobody holds it"));
    };
    let other = Locks::new(connect(url(&proxy.address())).await?)?;
    let mutex = other.mutex("a")?;
    let waiting = spawn(async move { mutex.lock().await });
    let before = cleanup::until_claims(&server, 2).await?;
    for round in 0..2 {
        proxy.requests(Flow::Hold);
        proxy.replies(Flow::Hold);
        proxy.door(Door::Silent).await?;
        cleanup::until_claims(&server, 1).await?;
        if round == 1 {
            // The delayed requests arrive late, or never.
            proxy.cut();
        }
        proxy.pass().await?;
        let after = cleanup::until_claims(&server, 2).await?;
        let same = after.iter().filter(|claim| before.contains(claim) && *claim != first);
        if same.count() > 0 || waiting.is_finished() {
            return Err(Stop::failed(format!("{before:?}, then {after:?}")));
        }
    }
    guard.check()?;
    guard.release().await?;
    timeout(BOUND, waiting).await???.release().await?;
    cleanup::nothing(&server).await
}

/// After the last wait, no watch is left on the server.
pub(crate) async fn no_watch_stays() -> Verdict {
    let server = ZooKeeperServer::start(&options()).await?;
    let locks = Locks::new(connect(url(&server.address())).await?)?;
    let other = Locks::new(connect(url(&server.address())).await?)?;
    let guard = other.mutex("a")?.lock().await?;
    for wait in 0..100 {
        let waited = locks.mutex("a")?.lock_timeout(Duration::from_millis(wait / 4)).await;
        if waited.is_ok() {
            return Err(Stop::violation("two hold it"));
        }
    }
    cleanup::until_claims(&server, 1).await?;
    guard.release().await?;
    cleanup::nothing(&server).await?;
    let watches = server.four_letter_word("wchp").await?;
    match watches.trim() {
        "" => Ok(()),
        watches => Err(Stop::failed(format!("these are watched: {watches}"))),
    }
}

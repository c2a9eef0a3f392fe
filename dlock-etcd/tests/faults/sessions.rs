//! The promise of a session: a partitioned client treats its locks as lost before another client
//! gets them, and continues in the next session.

#![expect(clippy::disallowed_methods, reason = "tests start tasks of their own")]

use std::time::Duration;

use dlock_core::{Clock, Error, ErrorKind, Guard, Locks};
use dlock_testlab::{
    Flow, Proxy, Stop, Verdict,
    etcd::{Ensemble, EtcdServer},
};
use tokio::{
    task::{JoinHandle, spawn},
    time::{sleep, timeout},
};

use crate::{
    connect,
    settings::{BOUND, nothing_is_left, options, until_claims, url},
};

pub(crate) async fn behind_a_cut_follower() -> Verdict {
    let servers = Ensemble::start(&options()).await?;
    let (follower, leader) = (servers.followers().await?[0], servers.leader().await?);
    behind(&servers, follower, leader).await
}

pub(crate) async fn behind_a_cut_leader() -> Verdict {
    let servers = Ensemble::start(&options()).await?;
    let (follower, leader) = (servers.followers().await?[0], servers.leader().await?);
    behind(&servers, leader, follower).await
}

/// The holder has only the address of the partitioned member.
async fn behind(servers: &Ensemble, cut: usize, well: usize) -> Verdict {
    let (cut_off, other) = (&servers.nodes()[cut], &servers.nodes()[well]);
    let pair = Pair::of(other, &cut_off.address(), &servers.addresses().join(",")).await?;
    servers.isolate(cut);
    pair.ends_in_order(|| servers.heal(cut)).await?;
    nothing_is_left(other).await
}

pub(crate) async fn behind_a_cut_connection() -> Verdict {
    let server = EtcdServer::start(&options()).await?;
    let proxy = Proxy::start(&server.address()).await?;
    let pair = Pair::of(&server, &proxy.address(), &server.address()).await?;
    proxy.half_open();
    pair.ends_in_order(|| {
        proxy.requests(Flow::Pass);
        proxy.replies(Flow::Pass);
    })
    .await?;
    nothing_is_left(&server).await
}

/// A leader that was stopped and continues may end the leases that it remembers, although the next
/// leader has renewed them. The holders keep their locks nevertheless, and a waiter keeps its
/// position.
pub(crate) async fn before_an_old_leader() -> Verdict {
    const TRIES: usize = 5;
    let servers = Ensemble::start(&options()).await?;
    let url = format!("{}?dlock.session_timeout=6s", servers.url());
    // A client that gets no processor time for seconds loses its locks, which proves nothing.
    for _ in 0..TRIES {
        if old_leases_end(&servers, &url).await? {
            return nothing_is_left(&servers.nodes()[0]).await;
        }
    }
    Err(Stop::failed(format!("locks were lost {TRIES} times")))
}

/// Ends all leases that were granted before an election, after no key uses them. Returns whether
/// the locks were kept.
async fn old_leases_end(servers: &Ensemble, url: &str) -> Result<bool, Stop> {
    let locks = Locks::new(connect(url.to_owned()).await?)?;
    let mut reader = locks.rw("downgraded")?.write().lock().await?;
    reader.downgrade().await?;
    let guards = [
        locks.mutex("cut")?.lock().await?,
        reader,
        locks.rw("read")?.read().lock().await?,
        locks.semaphore("permits", 3)?.acquire_many(2).await?,
        locks.multi(["a", "b"])?.lock().await?,
    ];
    let other = Locks::new(connect(url.to_owned()).await?)?;
    let waiting = spawn(async move { insist(&other).await.map(drop).is_ok() });
    let node = &servers.nodes()[0];
    until_claims(node, 7).await?;

    let leases = node.leases().await?;
    servers.move_leader(servers.followers().await?[0]).await?;
    for lease in &leases {
        let moved = async {
            while !node.keys_of(lease).await?.is_empty() {
                sleep(Duration::from_millis(50)).await;
            }
            Ok::<_, Stop>(())
        };
        timeout(BOUND, moved).await??;
        // On a busy machine, the lease may have ended by itself.
        let _ = node.revoke(lease).await;
    }
    // A guard looks at its key when a session has ended.
    sleep(Duration::from_secs(1)).await;
    let kept = guards.iter().filter(|guard| guard.check().is_ok()).count();
    println!("old leases: {} ended, {kept} of {} locks kept", leases.len(), guards.len());
    if guards[0].check().is_ok() && waiting.is_finished() {
        return Err(Stop::violation("two holders"));
    }
    let is_kept = kept == guards.len() && until_claims(node, 7).await.is_ok();
    for guard in guards {
        let _ = guard.release().await;
    }
    timeout(BOUND, waiting).await??;
    Ok(is_kept)
}

/// A holder on the partitioned side, and a waiter on the other.
struct Pair {
    locks: Locks,
    guard: Guard,
    waiting: JoinHandle<Result<Guard, Error>>,
}

impl Pair {
    async fn of(server: &EtcdServer, holds: &str, waits: &str) -> Result<Self, Stop> {
        let locks = Locks::new(connect(url(holds)).await?)?;
        let guard = locks.mutex("cut")?.lock().await?;
        let other = Locks::new(connect(url(waits)).await?)?;
        let waiting = spawn(async move {
            insist(&other).await.map_err(|stop| Error::new(ErrorKind::Timeout, stop.into_text()))
        });
        until_claims(server, 2).await?;
        Ok(Self { locks, guard, waiting })
    }

    /// The holder stops relying on the lock before the waiter gets it, and comes back when it can.
    async fn ends_in_order(self, heal: impl FnOnce()) -> Verdict {
        let Self { locks, guard, waiting } = self;
        let lost = guard.lost();
        let losing = spawn(async move { (lost.await, Clock::Boot.now()) });
        let granted = timeout(BOUND, waiting).await???;
        let (at, relied) = (Clock::Boot.now(), guard.check());
        if relied.is_ok() {
            return Err(Stop::violation(format!("{granted:?} while {guard:?} is relied on")));
        }
        let (ended, notified) = timeout(BOUND, losing).await??;
        println!("cut: {ended:?}, {:?} before the next holder", at.since(notified));
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

//! The promise of a session: a client that is cut off from it stops relying on its locks before
//! another client gets them, and goes on in the next session.

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
    let (follower, leader) = (servers.followers().await[0], servers.leader().await?);
    behind(&servers, follower, leader).await
}

pub(crate) async fn behind_a_cut_leader() -> Verdict {
    let servers = Ensemble::start(&options()).await?;
    let (follower, leader) = (servers.followers().await[0], servers.leader().await?);
    behind(&servers, leader, follower).await
}

/// The holder knows only the member that is cut off.
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

/// A holder behind the cut, and a waiter elsewhere.
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
            return Err(Stop::failed(format!("{granted:?} while {guard:?} is relied on")));
        }
        let (ended, told) = timeout(BOUND, losing).await??;
        println!("cut: {ended:?}, {:?} before the next holder", at.since(told));
        if told > at {
            return Err(Stop::failed(format!("the loss was reported {:?} late", told.since(at))));
        }
        if granted.token() <= guard.token() {
            return Err(Stop::failed(format!("{granted:?} after {guard:?}")));
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

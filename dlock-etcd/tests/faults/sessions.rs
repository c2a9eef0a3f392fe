//! The promise of a session: a partitioned client treats its locks as lost before another client
//! gets them, and continues in the next session.

#![expect(clippy::disallowed_methods, reason = "tests start tasks of their own")]

use std::time::Duration;

use dlock_core::Locks;
use dlock_testlab::{
    Flow, Proxy, Stop, Verdict,
    client::{CutOffHolder, relock},
    etcd::{Ensemble, EtcdServer},
};
use tokio::{
    task::spawn,
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
    let holder = holder(other, &cut_off.address(), &servers.addresses().join(",")).await?;
    servers.isolate(cut);
    holder.ends_in_order(|| servers.heal(cut)).await?;
    nothing_is_left(other).await
}

pub(crate) async fn behind_a_cut_connection() -> Verdict {
    let server = EtcdServer::start(&options()).await?;
    let proxy = Proxy::start(&server.address()).await?;
    let holder = holder(&server, &proxy.address(), &server.address()).await?;
    proxy.half_open();
    holder
        .ends_in_order(|| {
            proxy.requests(Flow::Pass);
            proxy.replies(Flow::Pass);
        })
        .await?;
    nothing_is_left(&server).await
}

/// A holder at one address, and a waiter at another.
async fn holder(server: &EtcdServer, holds: &str, waits: &str) -> Result<CutOffHolder, Stop> {
    let (holds, waits) = (connect(url(holds)).await?, connect(url(waits)).await?);
    let holder = CutOffHolder::start(holds, waits).await?;
    until_claims(server, 2).await?;
    Ok(holder)
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
    let waiting = spawn(async move { relock(&other).await.map(drop).is_ok() });
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

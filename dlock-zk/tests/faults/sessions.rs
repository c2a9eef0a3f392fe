//! The promise of a session: a partitioned client treats its locks as lost before another client
//! gets them, and continues in the next session.

#![expect(clippy::disallowed_methods, reason = "tests start tasks of their own")]

use std::time::Duration;

use dlock_core::{Ended, ErrorKind, LockOptions, Locks, Renew};
use dlock_testlab::{
    Door, Flow, Proxy, Stop, Verdict,
    client::CutOffHolder,
    zookeeper::{Ensemble, ZooKeeperServer},
};
use tokio::{task::spawn, time::timeout};

use crate::{
    cleanup, connect,
    settings::{SESSION, options, url},
};

/// A backstop on a busy machine.
const BOUND: Duration = Duration::from_secs(60);

pub(crate) async fn behind_a_cut_follower() -> Verdict {
    let servers = Ensemble::start(&options()).await?;
    let (follower, leader) = (servers.followers().await?[0], servers.leader().await?);
    let holder = between(&servers, follower, leader).await?;
    servers.cut_from_leader(follower).await?;
    holder.ends_in_order(|| servers.heal(follower)).await?;
    cleanup::nothing(&servers.nodes()[leader]).await
}

/// For longer than the session lasts, the follower still answers pings and reads.
pub(crate) async fn behind_a_follower_that_keeps_serving() -> Verdict {
    let servers = Ensemble::start(&options().with_sync_limit(SESSION * 3)).await?;
    let (follower, leader) = (servers.followers().await?[0], servers.leader().await?);
    let holder = between(&servers, follower, leader).await?;
    servers.cut_from_leader(follower).await?;
    holder.ends_in_order(|| servers.heal(follower)).await?;
    cleanup::nothing(&servers.nodes()[leader]).await
}

pub(crate) async fn behind_a_cut_leader() -> Verdict {
    let servers = Ensemble::start(&options()).await?;
    let (follower, leader) = (servers.followers().await?[0], servers.leader().await?);
    let holder = between(&servers, leader, follower).await?;
    servers.isolate(leader);
    holder.ends_in_order(|| servers.heal(leader)).await?;
    cleanup::nothing(&servers.nodes()[follower]).await
}

pub(crate) async fn behind_a_cut_connection() -> Verdict {
    let server = ZooKeeperServer::start(&options()).await?;
    let proxy = Proxy::start(&server.address()).await?;
    let holder = holder(&server, &proxy.address(), &server.address()).await?;
    proxy.requests(Flow::Hold);
    proxy.replies(Flow::Hold);
    holder
        .ends_in_order(|| {
            proxy.requests(Flow::Pass);
            proxy.replies(Flow::Pass);
        })
        .await?;
    cleanup::nothing(&server).await
}

async fn between(servers: &Ensemble, holds: usize, waits: usize) -> Result<CutOffHolder, Stop> {
    let nodes = servers.nodes();
    holder(&nodes[waits], &nodes[holds].address(), &nodes[waits].address()).await
}

/// A holder at one address, and a waiter at another.
async fn holder(server: &ZooKeeperServer, holds: &str, waits: &str) -> Result<CutOffHolder, Stop> {
    let (holds, waits) = (connect(url(holds)).await?, connect(url(waits)).await?);
    let holder = CutOffHolder::start(holds, waits).await?;
    cleanup::until_claims(server, 2).await?;
    Ok(holder)
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

//! Masters of a cluster that are replaced, die or hang, or have no replica left.

use std::time::Duration;

use dlock_core::{Guard, GuardState, Locks};
use dlock_testlab::{Stop, Verdict, redis::RedisServer};
use tokio::time::sleep;

use crate::{
    nodes::{Nodes, WAITERS, Waiting},
    support::{SOON, assert_unavailable, locks, millis, secs, until_copied, with_redis, within},
};

/// A lock that one client holds and others wait for, and one at another master.
struct Scene {
    lease: Duration,
    nodes: Nodes,
    holder: Locks,
    guard: Guard,
    elsewhere: Guard,
    waiting: Waiting,
}

const NAME: &str = "falls";

impl Scene {
    /// The lease has to outlast the failover.
    async fn open(lease: Duration) -> Result<Self, Stop> {
        let nodes = Nodes::start().await?;
        let holder = locks(&nodes.url(), lease).await?;
        let guard = holder.mutex(NAME)?.lock().await?;
        let remote = nodes.names(NAME, false, 1).await?.remove(0);
        let elsewhere = holder.mutex(&*remote)?.lock().await?;
        let waiting = Waiting::start(&nodes, NAME, lease).await?;
        let master = nodes.master(NAME).await?;
        until_copied(master, nodes.0.replica_of(master).await?).await?;
        Ok(Self { lease, nodes, holder, guard, elsewhere, waiting })
    }

    /// More than a lease after the failover, no lock is lost, and hand-offs are pushed again.
    async fn goes_on(self) -> Verdict {
        sleep(self.lease + millis(500)).await;
        assert_ne!(self.elsewhere.state(), GuardState::Lost, "at a master that was well");
        assert_ne!(self.guard.state(), GuardState::Lost, "the replica knew of it");
        let state = self.holder.inspect(NAME).await?;
        assert_eq!((state.holders.len(), state.waiters.len()), (1, WAITERS), "{state:?}");
        let master = self.nodes.master(NAME).await?;
        self.waiting.are_notified_one_by_one(self.guard, master).await
    }
}

pub(crate) fn a_requested_failover_is_followed() {
    with_redis(async {
        let scene = Scene::open(secs(15)).await?;
        let master = scene.nodes.master(NAME).await?;
        scene.nodes.0.failover(scene.nodes.0.replica_of(master).await?).await?;
        scene.goes_on().await
    });
}

pub(crate) fn a_failover_from_a_dead_master_is_followed() {
    with_redis(async {
        let scene = Scene::open(secs(15)).await?;
        let slot = scene.nodes.slot(NAME).await?;
        let master = scene.nodes.master(NAME).await?;
        master.kill();
        scene.nodes.0.until_failed_over(slot, master).await?;
        scene.goes_on().await
    });
}

/// Connections to a master that hangs stay open, and nothing redirects the client.
pub(crate) fn a_failover_from_a_hanging_master_is_followed() {
    with_redis(async {
        let scene = Scene::open(secs(15)).await?;
        let slot = scene.nodes.slot(NAME).await?;
        let master = scene.nodes.master(NAME).await?;
        master.pause()?;
        scene.nodes.0.until_failed_over(slot, master).await?;
        scene.goes_on().await
    });
}

pub(crate) fn unserved_slots_do_not_affect_other_slots() {
    with_redis(async {
        let (nodes, lease) = (Nodes::start().await?, secs(12));
        let (here, remote) = (locks(&nodes.url(), lease).await?, locks(&nodes.url(), lease).await?);
        let guard = here.mutex(NAME)?.lock().await?;
        let mut held = Vec::new();
        for name in nodes.names(NAME, false, 30).await? {
            held.push(remote.mutex(&*name)?.lock().await?);
        }
        let dead = kill_both(&nodes).await?;
        let error = within(SOON, remote.mutex(NAME)?.try_lock()).await?.unwrap_err();
        assert_unavailable(&error, &[NAME]);
        within(SOON, guard.lost()).await?;

        sleep(lease).await;
        for guard in held {
            let name = guard.name().clone();
            assert_ne!(guard.state(), GuardState::Lost, "{name} is at another master");
            assert!(here.mutex(name.as_str())?.try_lock().await?.is_none());
            guard.release().await?;
            within(SOON, here.mutex(name)?.lock()).await??.release().await?;
        }
        // The data of both are lost, and the slots are served again.
        for node in dead {
            node.restart().await?;
        }
        let again = within(SOON, remote.mutex(NAME)?.lock()).await??;
        assert!(again.token() > guard.token());
        Ok(())
    });
}

/// Locks of one client on a dead master and on others are renewed together.
pub(crate) fn locks_on_other_masters_survive_a_dead_one() {
    with_redis(async {
        let (nodes, lease) = (Nodes::start().await?, secs(12));
        let holder = locks(&nodes.url(), lease).await?;
        let mut held = Vec::new();
        for name in nodes.names(NAME, false, 20).await? {
            held.push(holder.mutex(&*name)?.lock().await?);
        }
        let mut lost = Vec::new();
        for name in nodes.names(NAME, true, 15).await? {
            lost.push(holder.mutex(&*name)?.lock().await?);
        }
        kill_both(&nodes).await?;
        for guard in &lost {
            within(SOON, guard.lost()).await?;
        }
        sleep(secs(2)).await;
        for guard in &held {
            assert_ne!(guard.state(), GuardState::Lost, "{} is at another master", guard.name());
        }
        Ok(())
    });
}

/// Kills the master of the name and its replica.
async fn kill_both(nodes: &Nodes) -> Result<[&RedisServer; 2], Stop> {
    let master = nodes.master(NAME).await?;
    let dead = [nodes.0.replica_of(master).await?, master];
    for node in dead {
        node.kill();
    }
    Ok(dead)
}

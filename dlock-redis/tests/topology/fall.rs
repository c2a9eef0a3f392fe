//! Masters of a cluster that are replaced, die, hang, and leave nobody behind.

use std::time::Duration;

use dlock_core::{Guard, GuardState, Locks};
use dlock_testkit::{Stop, Verdict, servers::redis::RedisServer};
use tokio::{
    task::JoinHandle,
    time::{Instant, sleep},
};

use crate::{
    help::{assert_unavailable, beside, locks, millis, secs, until_copied, with_redis, within},
    nodes::Nodes,
};

/// A lock that one client holds and others wait for, and one at another master.
struct Scene {
    lease: Duration,
    nodes: Nodes,
    holder: Locks,
    guard: Guard,
    elsewhere: Guard,
    waiting: Vec<JoinHandle<Result<Guard, dlock_core::Error>>>,
}

const NAME: &str = "falls";

impl Scene {
    /// The lease has to outlast the failover.
    async fn open(lease: Duration) -> Result<Self, Stop> {
        let nodes = Nodes::start().await?;
        let holder = locks(&nodes.url(), lease).await?;
        let guard = holder.mutex(NAME)?.lock().await?;
        let away = nodes.names(NAME, false, 1).await?.remove(0);
        let elsewhere = holder.mutex(&*away)?.lock().await?;
        let mut waiting = Vec::new();
        for _ in 0..2 {
            let lock = locks(&nodes.url(), lease).await?.mutex(NAME)?;
            waiting.push(beside(async move { lock.lock().await }));
            sleep(millis(100)).await;
        }
        let master = nodes.master(NAME).await?;
        until_copied(master, nodes.0.replica_of(master).await?).await?;
        Ok(Self { lease, nodes, holder, guard, elsewhere, waiting })
    }

    /// Longer than a lease after the failover, all is as it was, and hand-overs are pushed again.
    async fn goes_on(mut self) -> Verdict {
        sleep(self.lease + millis(500)).await;
        assert_eq!(self.elsewhere.state(), GuardState::Held, "at a master that was well");
        assert_eq!(self.guard.state(), GuardState::Held, "the replica knew of it");
        let state = self.holder.inspect(NAME).await?;
        assert_eq!((state.holders.len(), state.waiters.len()), (1, 2), "{state:?}");
        let (mut last, began) = (self.guard.token(), Instant::now());
        within(secs(4), self.guard.release()).await??;
        for next in self.waiting.drain(..) {
            let next = within(secs(4), next).await???;
            assert!(next.token() > last, "{} after {last}", next.token());
            last = next.token();
            within(secs(4), next.release()).await??;
        }
        assert!(began.elapsed() < millis(1500), "pushed after {:?}", began.elapsed());
        Ok(())
    }
}

#[test]
fn a_failover_that_was_asked_for_is_followed() {
    with_redis(async {
        let scene = Scene::open(secs(5)).await?;
        let master = scene.nodes.master(NAME).await?;
        scene.nodes.0.failover(scene.nodes.0.replica_of(master).await?).await?;
        scene.goes_on().await
    });
}

#[test]
fn a_failover_from_a_dead_master_is_followed() {
    with_redis(async {
        let scene = Scene::open(secs(9)).await?;
        let slot = scene.nodes.slot(NAME).await?;
        let master = scene.nodes.master(NAME).await?;
        master.kill();
        scene.nodes.0.until_failed_over(slot, master).await?;
        scene.goes_on().await
    });
}

/// Connections to a master that hangs stay open, and nothing redirects the client.
#[test]
fn a_failover_from_a_master_that_hangs_is_followed() {
    with_redis(async {
        let scene = Scene::open(secs(9)).await?;
        let slot = scene.nodes.slot(NAME).await?;
        let master = scene.nodes.master(NAME).await?;
        master.pause()?;
        scene.nodes.0.until_failed_over(slot, master).await?;
        scene.goes_on().await
    });
}

#[test]
fn slots_that_nobody_serves_are_unavailable_and_the_others_go_on() {
    with_redis(async {
        let scene = Scene::open(secs(6)).await?;
        let Scene { lease, nodes, holder, guard, elsewhere, waiting } = scene;
        let other = locks(&nodes.url(), lease).await?;
        let names = nodes.names(NAME, false, 30).await?;
        let mut held = vec![elsewhere];
        for name in &names[1..] {
            held.push(holder.mutex(&**name)?.lock().await?);
        }
        let dead: [&RedisServer; 2] = {
            let master = nodes.master(NAME).await?;
            [nodes.0.replica_of(master).await?, master]
        };
        for node in dead {
            node.kill();
        }
        let error = within(secs(12), other.mutex(NAME)?.try_lock()).await?.unwrap_err();
        assert_unavailable(&error, &[NAME]);
        within(lease, guard.lost()).await?;

        sleep(lease).await;
        for guard in &held {
            assert_eq!(guard.state(), GuardState::Held, "{} is at another master", guard.name());
            assert!(other.mutex(guard.name().as_str())?.try_lock().await?.is_none());
        }
        for guard in held {
            let name = guard.name().clone();
            guard.release().await?;
            within(secs(3), other.mutex(name)?.lock()).await??.release().await?;
        }
        // The data are gone with both of them, and the slots are served again.
        for node in dead {
            node.restart().await?;
        }
        // Who waited all the time may have had patience enough.
        for waiter in waiting {
            waiter.abort();
            if let Ok(Ok(guard)) = waiter.await {
                guard.release().await?;
            }
        }
        let again = within(secs(20), holder.mutex(NAME)?.lock()).await??;
        assert!(again.token() > guard.token());
        Ok(())
    });
}

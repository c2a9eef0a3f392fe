//! Slots that move from one master to another under live clients.

use std::sync::{
    Arc,
    atomic::{AtomicBool, Ordering},
};

use dlock_core::{Acquired, Error, GuardState, Released, Renewal, Renewed};
use tokio::time::sleep;

use crate::{
    nodes::{Nodes, WAITERS, Waiting},
    support::{
        SOON, ask, assert_unavailable, beside, connect, locks, millis, queue, secs, tag, take,
        with_redis, within,
    },
};

/// A master that gives a slot away notifies its subscribers, unrequested and in between the
/// answers to their commands.
pub(crate) fn answers_belong_to_their_commands_while_slots_move() {
    with_redis(async {
        let nodes = Nodes::start().await?;
        let (busy, other) = (connect(&nodes.url()).await?, connect(&nodes.url()).await?);
        let moved = ["moved", "more"];
        for name in moved {
            take(&other, &ask(name, secs(60))).await?;
            queue(&busy, &ask(name, secs(60))).await?;
        }
        let stop = Arc::new(AtomicBool::new(false));
        let names = nodes.names("moved", true, 16).await?.into_iter();
        let tasks: Vec<_> = names
            .flat_map(|name| [format!("{name}/a"), format!("{name}/b"), name])
            .map(|name| {
                let (busy, stop) = (busy.clone(), Arc::clone(&stop));
                beside(async move {
                    let mut last = 1_000_000_000_000_000;
                    while !stop.load(Ordering::Relaxed) {
                        let request = ask(&name, secs(60));
                        match busy.acquire(&request).await {
                            Ok(Acquired::Granted(grant)) if grant.token.get() > last => {
                                last = grant.token.get();
                            }
                            other => return Err(format!("{name} after {last}: {other:?}")),
                        }
                        match busy.release(&request.as_claim()).await {
                            Ok(Released::Released) => {}
                            other => return Err(format!("{name}: {other:?}")),
                        }
                    }
                    Ok(())
                })
            })
            .collect();
        sleep(millis(300)).await;
        for _ in 0..3 {
            for name in moved {
                let (from, to) = (nodes.master(name).await?, nodes.another(name).await?);
                nodes.0.move_slot(nodes.slot(name).await?, from, to).await?;
                sleep(millis(100)).await;
            }
        }
        stop.store(true, Ordering::Relaxed);
        for task in tasks {
            within(SOON, task).await???;
        }
        Ok(())
    });
}

pub(crate) fn a_held_lock_and_its_waiter_move_with_their_slot() {
    with_redis(async {
        let (nodes, lease) = (Nodes::start().await?, secs(12));
        let holder = locks(&nodes.url(), lease).await?;
        let guard = holder.mutex("moved")?.lock().await?;
        let waiting = Waiting::start(&nodes, "moved", lease).await?;
        let (from, to) = (nodes.master("moved").await?, nodes.another("moved").await?);
        nodes.0.move_slot(nodes.slot("moved").await?, from, to).await?;
        // Longer than a lease.
        sleep(lease + secs(1)).await;
        assert_eq!(guard.state(), GuardState::Held);
        let state = holder.inspect("moved").await?;
        assert_eq!((state.holders.len(), state.waiters.len()), (1, WAITERS), "{state:?}");
        waiting.are_notified_one_by_one(guard, to).await
    });
}

/// Scripts name keys that need not exist, so a node refuses them until the slot has moved.
pub(crate) fn verbs_on_a_moving_slot_are_bounded_and_lose_nothing() {
    with_redis(async {
        let nodes = Nodes::start().await?;
        let backend = connect(&nodes.url()).await?;
        let locks = locks(&nodes.url(), secs(20)).await?;
        let name = "half";
        let alike: Vec<String> = (0..400)
            .map(|i| format!("half/{i}"))
            .filter(|other| tag(other) == tag(name))
            .take(3)
            .collect();
        let held = [ask(name, secs(60)), ask(&alike[0], secs(60))];
        let mut tokens = Vec::new();
        for request in &held {
            tokens.push(take(&backend, request).await?.token);
        }
        let waits = ask(name, secs(60));
        queue(&backend, &waits).await?;
        let slot = nodes.slot(name).await?;
        let (from, to) = (nodes.master(name).await?, nodes.another(name).await?);
        nodes.0.begin_move(slot, from, to).await?;
        // The holder of the first lock has moved, its queue has not.
        let (port, key) = (to.port().to_string(), format!("dlock:{}:{name}", tag(name)));
        from.command(&["MIGRATE", "127.0.0.1", &port, &key, "0", "5000"]).await?.ok()?;

        let fresh = ask(&alike[1], secs(60));
        let verbs = async {
            tokio::join!(
                backend.acquire(&fresh),
                backend.acquire(&held[0]),
                backend.release(&held[1].as_claim()),
                renew(&backend, &held),
            )
        };
        let (acquired, again, released, renewed) = within(SOON, verbs).await?;
        for error in [acquired.err(), again.err(), released.err(), renewed.err()].iter().flatten() {
            assert_unavailable(error, &["the cluster can't serve this lock at present"]);
        }
        let lock = locks.mutex(&*alike[2])?;
        let patient = beside(async move { lock.lock().await });
        sleep(millis(500)).await;
        nodes.0.end_move(slot, from, to).await?;
        within(SOON, patient).await???.release().await?;

        // What was sent before is sent again, and has its effect once.
        assert!(matches!(backend.acquire(&fresh).await?, Acquired::Granted(_)));
        match backend.acquire(&held[0]).await? {
            Acquired::Granted(grant) => assert_eq!(grant.token, tokens[0]),
            other => panic!("{other:?}"),
        }
        assert_eq!(backend.release(&fresh.as_claim()).await?, Released::Released);
        let state = backend.inspect(&held[0].name).await?;
        assert_eq!((state.holders.len(), state.waiters.len()), (1, 1), "{state:?}");
        backend.release(&held[0].as_claim()).await?;
        let grant = within(SOON, backend.granted(&waits)).await??;
        assert!(grant.token > tokens[0]);
        backend.release(&held[1].as_claim()).await?;
        assert!(backend.inspect(&held[1].name).await?.is_free());
        Ok(())
    });
}

async fn renew(
    backend: &dlock_core::DynBackend,
    requests: &[dlock_core::AcquireRequest],
) -> Result<Vec<Renewed>, Error> {
    let renewals: Vec<_> =
        requests.iter().map(|r| Renewal::new(r.as_claim(), r.mode, r.lease)).collect();
    backend.renew(&renewals).await
}

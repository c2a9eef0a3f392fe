//! A cluster: every kind of lock, in many buckets, and slots that move under live clients.

use std::sync::{
    Arc,
    atomic::{AtomicBool, Ordering},
};

use dlock_core::{Acquired, Error, GuardState, Mode, Queue, Released, Renewal, Renewed};
use dlock_testlab::{
    Stop,
    redis::{Options, RedisCluster, RedisServer},
};
use tokio::time::sleep;

use crate::{
    nodes::{Nodes, WAITERS, Waiting},
    support::{
        SOON, ask, assert_unavailable, beside, connect, hand_off, is_notified, locks, millis,
        queue, secs, tag, take, with_redis, within,
    },
};

pub(crate) fn every_kind_of_lock_works_in_many_buckets() {
    with_redis(async {
        let nodes = Nodes::start().await?;
        let (locks, others) =
            (locks(&nodes.url(), secs(30)).await?, locks(&nodes.url(), secs(30)).await?);
        for i in 0..40 {
            let name = format!("all/{i}");
            let guard = locks.mutex(&*name)?.lock().await?;
            assert!(others.mutex(&*name)?.try_lock().await?.is_none());
            guard.release().await?;

            let (rw, other) = (locks.rw(&*name)?, others.rw(&*name)?);
            let readers = (rw.read().lock().await?, other.read().lock().await?);
            assert!(other.write().try_lock().await?.is_none());
            drop(readers);
            within(SOON, other.write().lock()).await??.release().await?;

            let semaphore = (locks.semaphore(&*name, 3)?, others.semaphore(&*name, 3)?);
            let held = (semaphore.0.acquire_many(2).await?, semaphore.1.acquire().await?);
            assert!(semaphore.1.try_acquire().await?.is_none());
            drop(held);
        }
        // Names of one bucket are acquired by one script, names of several buckets one by one.
        let mut names: Vec<String> = (0..200).map(|i| format!("multi/{i}")).collect();
        names.retain(|name| tag(name) == tag("multi/0"));
        let request = |name: &String| ask(name, secs(30)).with_queue(Queue::FailIfBusy);
        let together: Vec<_> = names.iter().map(request).collect();
        assert!(together.len() > 1);
        let backend = locks.backend();
        let taken = backend.acquire_all(&together).ok_or_else(|| Stop::failed("one script"))?;
        assert!(taken.await?.iter().all(|one| matches!(one, Acquired::Granted(_))));
        assert!(backend.acquire_all(&[ask("a", secs(1)), ask("b", secs(1))]).is_none());
        let apart = ["multi/x", "multi/y", "multi/z"];
        let all = locks.multi(apart)?.lock().await?;
        assert_eq!(all.tokens().len(), 3);
        assert!(others.multi(apart)?.try_lock().await?.is_none());
        all.release().await?;
        within(SOON, others.multi(apart)?.lock()).await??.release().await?;
        Ok(())
    });
}

pub(crate) fn a_hand_off_is_pushed_on_one_channel_per_bucket_in_use() {
    with_redis(async {
        let nodes = Nodes::start().await?;
        let (first, second) = (connect(&nodes.url()).await?, connect(&nodes.url()).await?);
        let mut tags = Vec::new();
        for i in 0..200 {
            let name = format!("push/{i}");
            if !tags.contains(&tag(&name)) {
                tags.push(tag(&name));
            }
            is_notified(&name, async || hand_off(&name, &first, &second).await).await?;
        }
        let channels = nodes.channels().await?;
        assert_eq!(channels.len(), tags.len(), "{channels:?}");
        assert!(tags.len() > 50);
        Ok(())
    });
}

/// Returns the number of scripts in the cache of a server.
async fn scripts(server: &RedisServer) -> Result<u64, Stop> {
    let info = server.info("memory").await?;
    let line = info.lines().find_map(|line| line.strip_prefix("number_of_cached_scripts:"));
    Ok(line.unwrap_or_default().parse()?)
}

pub(crate) fn a_script_missing_on_a_node_is_sent_to_that_node_only() {
    with_redis(async {
        let nodes = Nodes::start().await?;
        let locks = locks(&nodes.url(), secs(30)).await?;
        let names = [nodes.names("a", true, 1).await?, nodes.names("a", false, 4).await?].concat();
        for name in &names {
            locks.mutex(&**name)?.lock().await?.release().await?;
        }
        let all = nodes.0.nodes();
        for node in &all[..3] {
            node.flush_scripts().await?;
        }
        locks.mutex(&*names[0])?.lock().await?.release().await?;
        for node in &all[..3] {
            let knows = node.port() == nodes.master("a").await?.port();
            assert_eq!(scripts(node).await? > 0, knows, "{}", node.address());
        }
        for name in &names {
            locks.mutex(&**name)?.lock().await?.release().await?;
        }
        Ok(())
    });
}

pub(crate) fn a_cluster_is_found_by_any_node_that_runs() {
    with_redis(async {
        let cluster = RedisCluster::start(&Options::new().with_password("secret")).await?;
        let [first, second, .., last] = cluster.nodes() else { unreachable!() };
        let url = |nodes: &[&RedisServer]| {
            let addresses: Vec<_> = nodes.iter().map(|node| node.address()).collect();
            format!("redis+cluster://:secret@{}", addresses.join(","))
        };
        // A replica, too.
        let locks = locks(&url(&[last]), secs(30)).await?;
        locks.mutex("a")?.lock().await?.release().await?;
        first.kill();
        cluster.until_failed_over(0, first).await?;
        let later = within(SOON, crate::support::locks(&url(&[first, second]), secs(30))).await??;
        for i in 0..20 {
            let name = format!("any/{i}");
            within(SOON, later.mutex(&*name)?.lock()).await??.release().await?;
            within(SOON, locks.mutex(&*name)?.lock()).await??.release().await?;
        }
        let waiting = later.mutex("a")?.lock().await?;
        let lock = locks.mutex("a")?;
        let next = beside(async move { lock.lock().await });
        tokio::time::sleep(millis(300)).await;
        waiting.release().await?;
        within(SOON, next).await???.release().await?;

        for node in cluster.nodes() {
            node.kill();
        }
        let error = within(SOON, connect(&url(&[second, last]))).await?.unwrap_err();
        crate::support::assert_unavailable(&error, &["can't be reached", "redis+cluster://"]);
        Ok(())
    });
}

pub(crate) fn claims_with_different_capacities_conflict() {
    // Readers wait behind a queued writer, in all buckets.
    with_redis(async {
        let nodes = Nodes::start().await?;
        let backend = connect(&nodes.url()).await?;
        for i in 0..10 {
            let name = format!("mode/{i}");
            let shared = |mode| ask(&name, secs(30)).with_mode(mode);
            let (reader, writer) = (shared(Mode::Shared), shared(Mode::Exclusive));
            let late = shared(Mode::Shared);
            take(&backend, &reader).await?;
            queue(&backend, &writer).await?;
            queue(&backend, &late).await?;
            backend.release(&reader.as_claim()).await?;
            within(SOON, backend.granted(&writer)).await??;
            backend.release(&writer.as_claim()).await?;
            within(SOON, backend.granted(&late)).await??;
            backend.release(&late.as_claim()).await?;
        }
        Ok(())
    });
}

/// A master that loses a slot notifies its subscribers, in between the answers to their commands.
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
        assert_ne!(guard.state(), GuardState::Lost);
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
        // The holder key of the first lock has moved, but the key of its queue has not.
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

        // The earlier requests are repeated, and take effect only once.
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

//! A healthy cluster: every kind of lock, in many buckets.

use dlock_core::{Acquired, Mode, Queue};
use dlock_testlab::{
    Stop,
    redis::{Options, RedisCluster, RedisServer},
};

use crate::{
    nodes::Nodes,
    support::{
        SOON, ask, beside, connect, hand_off, is_notified, locks, millis, queue, secs, tag, take,
        with_redis, within,
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
        // Names of one bucket are taken by one script, names of several one by one.
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

/// How many scripts a server has in its cache.
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

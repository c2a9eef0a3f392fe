//! Multi-locks of clients with different settings, and over several shards.

use dlock_core::{Certainty, Locks};
use dlock_testlab::{
    Stop, Verdict,
    redis::{Options, RedisCluster, RedisServer},
};

use crate::support::{
    SOON, ask, assert_unavailable, beside, connect, locks, secs, tag, until, with_redis, within,
};

/// Makes one client wait for all names, and then the other one for the first two.
async fn do_not_deadlock(all: &Locks, two: &Locks, other: &Locks, names: &[String]) -> Verdict {
    let held = other.mutex(&*names[0])?.lock().await?;
    let mut waiting = Vec::new();
    for (locks, wanted) in [(all, names), (two, &names[..2])] {
        let multi = locks.multi(wanted.iter().map(String::as_str))?;
        waiting.push(beside(async move { multi.lock().await?.release().await }));
        until("it waits", async || {
            Ok(other.inspect(&*names[0]).await?.waiters.len() == waiting.len())
        })
        .await?;
    }
    held.release().await?;
    for one in waiting {
        within(SOON, one).await???;
    }
    Ok(())
}

pub(crate) fn clients_with_and_without_durability_do_not_deadlock() {
    with_redis(async {
        let server = RedisServer::start(&Options::new()).await?;
        let follows = Options::new().replica_of(&server.address());
        let replica = RedisServer::start(&follows).await?;
        replica.until_in_sync_with(&server).await?;
        let plain = locks(&server.url(), secs(30)).await?;
        let url = format!("{}?dlock.durability=1&dlock.response_timeout=8s", server.url());
        let (durable, other) =
            (locks(&url, secs(30)).await?, locks(&server.url(), secs(30)).await?);
        let names = ["a", "b"].map(str::to_owned);
        do_not_deadlock(&durable, &plain, &other, &names).await?;
        do_not_deadlock(&plain, &durable, &other, &names).await
    });
}

pub(crate) fn multi_locks_over_shards_do_not_deadlock() {
    with_redis(async {
        let cluster = RedisCluster::start(&Options::new()).await?;
        let connect = async || Ok::<_, Stop>(locks(&cluster.url(), secs(30)).await?);
        let (one, two, other) = (connect().await?, connect().await?, connect().await?);
        // Two names of one shard, and one of another shard, which is before or after them in the
        // order of names.
        let mut alike = (1..).map(|i| format!("m{i}")).filter(|name| tag(name) == tag("m0"));
        let mut names = vec!["m0".to_owned()];
        names.extend(alike.next());
        for third in ["a", "z"] {
            let mut apart = (1..).map(|i| format!("{third}{i}"));
            names.truncate(2);
            names.extend(apart.find(|name| tag(name) != tag("m0")));
            do_not_deadlock(&one, &two, &other, &names).await?;
        }
        Ok(())
    });
}

pub(crate) fn a_durable_multi_lock_without_replicas_is_refused() {
    with_redis(async {
        let server = RedisServer::start(&Options::new()).await?;
        let url = format!("{}?dlock.durability=1&dlock.response_timeout=8s", server.url());
        let (durable, other) = (connect(&url).await?, locks(&server.url(), secs(60)).await?);
        // The first is held, so only the second one is granted at once.
        let held = other.mutex("a")?.lock().await?;
        let both = ["a", "b"].map(|name| ask(name, secs(60)));
        let answer = durable.acquire_all(&both).ok_or_else(|| Stop::failed("one script"))?;
        let error = within(SOON, answer).await?.unwrap_err();
        assert_unavailable(&error, &["0 of 1 replicas"]);
        assert_eq!(error.certainty(), Certainty::Unknown);
        for request in &both {
            durable.release(&request.as_claim()).await?;
        }
        held.release().await?;
        for name in ["a", "b"] {
            assert!(other.inspect(name).await?.is_free(), "{name}");
        }
        Ok(())
    });
}

//! A quorum whose masters die, hang, and come back; the votes of its masters.

use dlock_core::{Acquired, DynBackend, ErrorKind, GuardState, Mode, Queue, Renewal, Renewed};
use dlock_testlab::{
    Door, Proxy, Stop,
    redis::{Options, RedisMasters},
};
use tokio::time::sleep;

use crate::support::{
    LEASE, SOON, ask, assert_unavailable, beside, connect, locks, millis, secs, tag, take, until,
    with_redis, within,
};

async fn masters(count: usize) -> Result<(RedisMasters, String), Stop> {
    masters_with(count, "3s").await
}

async fn masters_with(count: usize, timeout: &str) -> Result<(RedisMasters, String), Stop> {
    let masters = RedisMasters::start(count, &Options::new()).await?;
    let options = format!("dlock.restart_guard=0s&dlock.response_timeout={timeout}");
    let url = format!("{}?{options}", masters.url());
    Ok((masters, url))
}

pub(crate) fn a_quorum_of_five_survives_two_dead_masters_only() {
    with_redis(async {
        let (masters, url) = masters(5).await?;
        let lease = secs(9);
        let (one, two) = (locks(&url, lease).await?, locks(&url, lease).await?);
        let guard = one.mutex("held")?.lock().await?;
        for dead in &masters.servers()[..2] {
            dead.kill();
        }
        // Longer than a lease: a majority renews it.
        sleep(lease + secs(1)).await;
        assert_ne!(guard.state(), GuardState::Lost);
        assert!(within(SOON, two.mutex("held")?.try_lock()).await??.is_none());
        within(SOON, two.mutex("free")?.lock()).await??.release().await?;
        let fresh = within(SOON, locks(&url, lease)).await??;
        within(SOON, fresh.mutex("free")?.lock()).await??.release().await?;

        masters.servers()[2].kill();
        let error = within(SOON, two.mutex("free")?.try_lock()).await?.unwrap_err();
        assert_unavailable(
            &error,
            &["3 of 5 masters do not answer", "check that they run", "free"],
        );
        let error = within(SOON, connect(&url)).await?.unwrap_err();
        assert_unavailable(&error, &["3 of 5 masters do not answer", "redis+quorum://"]);
        within(SOON, guard.lost()).await?;

        // The masters come back empty, and are used again.
        for dead in &masters.servers()[..3] {
            dead.restart().await?;
        }
        until("they are used again", async || {
            Ok(two.mutex("again")?.try_lock().await.is_ok_and(|guard| guard.is_some()))
        })
        .await?;
        for dead in &masters.servers()[3..] {
            dead.kill();
        }
        within(SOON, two.mutex("free")?.lock()).await??.release().await?;
        Ok(())
    });
}

pub(crate) fn a_hanging_master_does_not_delay_a_try() {
    with_redis(async {
        // With this timeout, a try that waits for the master would be late.
        let (masters, url) = masters_with(5, "60s").await?;
        let (one, two) = (locks(&url, LEASE).await?, locks(&url, LEASE).await?);
        let guard = one.mutex("held")?.lock().await?;
        masters.servers()[4].pause()?;
        for _ in 0..8 {
            assert!(within(SOON, two.mutex("held")?.try_lock()).await??.is_none());
            let free = within(SOON, two.mutex("free")?.try_lock()).await??;
            within(SOON, free.expect("it is free").release()).await??;
        }
        assert_ne!(guard.state(), GuardState::Lost);
        masters.servers()[4].resume()?;
        within(SOON, guard.release()).await??;
        within(SOON, two.mutex("held")?.lock()).await??.release().await?;
        Ok(())
    });
}

pub(crate) fn a_waiter_gets_the_lock_after_a_release_or_an_expiry() {
    with_redis(async {
        let (masters, url) = masters(3).await?;
        let (one, two) = (locks(&url, LEASE).await?, locks(&url, LEASE).await?);
        let guard = one.mutex("a")?.lock().await?;
        let lock = two.mutex("a")?;
        let waiting = beside(async move { lock.lock().await });
        masters.servers()[1].kill();
        sleep(millis(500)).await;
        assert!(!waiting.is_finished());
        let token = guard.token();
        guard.release().await?;
        let next = within(SOON, waiting).await???;
        assert!(next.token() > token);

        let backend = connect(&url).await?;
        take(&backend, &ask("ends", millis(700))).await?;
        within(SOON, two.mutex("ends")?.lock()).await??.release().await?;
        Ok(())
    });
}

pub(crate) fn masters_without_the_scripts_get_them_again() {
    with_redis(async {
        let (masters, url) = masters(5).await?;
        let locks = locks(&url, secs(20)).await?;
        for forgets in [&masters.servers()[..2], &masters.servers()[1..], masters.servers()] {
            locks.mutex("a")?.lock().await?.release().await?;
            for master in forgets {
                master.flush_scripts().await?;
            }
            let guard = locks.mutex("a")?.lock().await?;
            assert!(locks.mutex("a")?.try_lock().await?.is_none());
            guard.release().await?;
        }
        Ok(())
    });
}

pub(crate) fn operations_unsupported_by_a_quorum_are_refused() {
    with_redis(async {
        let (_masters, url) = masters(3).await?;
        let locks = locks(&url, secs(20)).await?;
        let refused = [
            locks.fair("a").map(|_| ()).unwrap_err(),
            locks.semaphore("a", 3).map(|_| ()).unwrap_err(),
            locks
                .backend()
                .acquire(&ask("a", secs(20)).with_mode(Mode::permits(1, 3)?))
                .await
                .map(|_| ())
                .unwrap_err(),
        ];
        for error in refused {
            assert_eq!(error.kind(), ErrorKind::Unsupported, "{error}");
        }
        // Readers share.
        let shared =
            || ask("shared", secs(20)).with_mode(Mode::Shared).with_queue(Queue::FailIfBusy);
        take(locks.backend(), &shared()).await?;
        take(locks.backend(), &shared()).await?;
        let writer = shared().with_mode(Mode::Exclusive);
        assert_eq!(locks.backend().acquire(&writer).await?, Acquired::Busy);
        Ok(())
    });
}

/// A client that reaches some of the masters only.
struct Partial {
    backend: DynBackend,
    proxies: Vec<Proxy>,
}

impl Partial {
    async fn open(masters: &RedisMasters, reached: &[usize]) -> Result<Self, Stop> {
        let mut proxies = Vec::new();
        for (at, master) in masters.servers().iter().enumerate() {
            let proxy = Proxy::start(&master.address()).await?;
            if !reached.contains(&at) {
                proxy.door(Door::Closed).await?;
            }
            proxies.push(proxy);
        }
        let addresses: Vec<_> = proxies.iter().map(Proxy::address).collect();
        let url = format!("redis+quorum://{}?dlock.restart_guard=0s", addresses.join(","));
        Ok(Self { backend: connect(&url).await?, proxies })
    }

    async fn turn(&self, name: &str) -> Result<u64, Stop> {
        let request = ask(name, secs(60)).with_queue(Queue::FailIfBusy);
        let grant = take(&self.backend, &request).await?;
        self.backend.release(&request.as_claim()).await?;
        Ok(grant.token.get())
    }
}

/// Each client has its own majority, and the last tokens of the masters are far apart, as after
/// clocks that were wrong: each token is larger than that of the majority before.
pub(crate) fn tokens_grow_from_one_majority_to_the_next() {
    with_redis(async {
        let masters = RedisMasters::start(5, &Options::new()).await?;
        let mut clients = Vec::new();
        for reached in [[0, 1, 2], [2, 3, 4], [0, 3, 4], [0, 1, 4], [1, 2, 3]] {
            clients.push(Partial::open(&masters, &reached).await?);
        }
        let mut last = 0;
        for round in 0..8 {
            // The last token of one master jumps ahead, by hours or by a little.
            let ahead = &masters.servers()[(round * 3) % 5];
            let tokens = format!("dlock:{}t", tag("a"));
            let token = last + [3_600_000_000, 1, 7, 500_000][round % 4];
            let id = format!("{}-{}", token / 1000, token % 1000);
            ahead.command(&["DEL", &tokens]).await?.ok()?;
            ahead.command(&["XADD", &tokens, &id, "c", ""]).await?.ok()?;
            for client in &clients {
                let token = client.turn("a").await?;
                assert!(token > last, "round {round}: {token} after {last}");
                last = token;
            }
        }
        Ok(())
    });
}

/// Returns all keys but the tokens.
async fn claims(masters: &RedisMasters) -> Result<Vec<String>, Stop> {
    let keys = masters.keys("dlock:*").await?.concat();
    Ok(keys.into_iter().filter(|key| !key.ends_with("}t")).collect())
}

pub(crate) fn an_attempt_without_a_majority_leaves_nothing() {
    with_redis(async {
        let masters = RedisMasters::start(5, &Options::new()).await?;
        let holder = Partial::open(&masters, &[0, 1, 2]).await?;
        let held = ask("a", secs(60));
        take(&holder.backend, &held).await?;
        assert_eq!(claims(&masters).await?.len(), 3);

        // The claim gets two of five votes, and releases them.
        let all = Partial::open(&masters, &[0, 1, 2, 3, 4]).await?;
        for queue in [Queue::FailIfBusy, Queue::Enqueue] {
            let request = ask("a", secs(60)).with_queue(queue);
            let answer = all.backend.acquire(&request).await?;
            assert!(!matches!(answer, Acquired::Granted(_)), "{answer:?}");
            sleep(millis(200)).await;
            assert_eq!(claims(&masters).await?.len(), 3);
        }
        // The claim gets two votes, and the other masters are unreachable.
        let request = ask("b", secs(60)).with_queue(Queue::FailIfBusy);
        for unreachable in 0..3 {
            all.proxies[unreachable].door(Door::Closed).await?;
            all.proxies[unreachable].cut();
        }
        sleep(millis(300)).await;
        let error = within(SOON, all.backend.acquire(&request)).await?.unwrap_err();
        assert_unavailable(&error, &["3 of 5 masters do not answer"]);
        sleep(millis(200)).await;
        assert_eq!(claims(&masters).await?.len(), 3);
        Ok(())
    });
}

/// A minority that has lost its data loses no lock. The loss of a majority's data is
/// reported as such, and not as the end of a lease.
pub(crate) fn a_claim_is_forgotten_when_a_majority_has_lost_its_data() {
    with_redis(async {
        let masters = RedisMasters::start(5, &Options::new()).await?;
        let client = Partial::open(&masters, &[0, 1, 2, 3, 4]).await?;
        let all = &client.backend;
        let held = ask("a", secs(60));
        let token = Some(take(all, &held).await?.token);
        // A claim that reaches a slow master after it has lost its data would count as known there.
        let holder = format!("dlock:{}:a", tag("a"));
        for master in masters.servers() {
            until("each master has heard of it", async || {
                Ok(master.command(&["EXISTS", &holder]).await?.int()? == 1)
            })
            .await?;
        }
        let renewal = Renewal::new(held.as_claim(), held.mode, held.lease).with_token(token);
        for (flushed, expected) in
            [Renewed::Kept, Renewed::Kept, Renewed::Forgotten].iter().enumerate()
        {
            masters.servers()[flushed].command(&["FLUSHALL"]).await?.ok()?;
            assert_eq!(all.renew(std::slice::from_ref(&renewal)).await?[0], *expected, "{flushed}");
        }

        // If the masters still know the last tokens, they have not lost their data.
        let held = ask("b", secs(60));
        let token = Some(take(all, &held).await?.token);
        let renewal = Renewal::new(held.as_claim(), held.mode, held.lease).with_token(token);
        all.release(&held.as_claim()).await?;
        assert_eq!(all.renew(&[renewal]).await?[0], Renewed::Lost);
        Ok(())
    });
}

/// A claim that could not be released on an unreachable master is released once it is reachable, and
/// does not stay until its lease ends.
pub(crate) fn a_claim_does_not_stay_on_a_master_that_was_unreachable() {
    with_redis(async {
        let masters = RedisMasters::start(3, &Options::new()).await?;
        let client = Partial::open(&masters, &[0, 1, 2]).await?;
        let all = &client.backend;
        let has_claims = async |count| Ok(claims(&masters).await?.len() == count);
        let held = ask("a", secs(60));
        take(all, &held).await?;
        until("all masters have it", async || has_claims(3).await).await?;
        let unreachable = &client.proxies[2];
        unreachable.door(Door::Closed).await?;
        unreachable.cut();
        sleep(millis(300)).await;
        all.release(&held.as_claim()).await?;
        assert!(has_claims(1).await?);
        unreachable.door(Door::Open).await?;
        until("it is given back there", async || has_claims(0).await).await?;

        // The same for the votes of an attempt that found no majority.
        let other = Partial::open(&masters, &[0, 1]).await?;
        let held = ask("b", secs(60));
        take(&other.backend, &held).await?;
        masters.servers()[2].pause()?;
        let request = ask("b", secs(60)).with_queue(Queue::FailIfBusy);
        let answer = within(SOON, all.acquire(&request)).await?;
        assert!(!matches!(answer, Ok(Acquired::Granted(_))), "{answer:?}");
        // After this time, no request waits for the master any more.
        sleep(secs(5)).await;
        masters.servers()[2].resume()?;
        until("it is given back there", async || has_claims(2).await).await
    });
}

//! A quorum whose masters die, hang, and come back.

use dlock_core::{Acquired, ErrorKind, GuardState, Mode, Queue};
use dlock_testlab::{
    Stop,
    redis::{Options, RedisMasters},
};
use tokio::time::sleep;

use crate::support::{
    LEASE, SOON, ask, assert_unavailable, beside, connect, locks, millis, secs, take, until,
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
        // Longer than a lease: a majority renews.
        sleep(lease + secs(1)).await;
        assert_eq!(guard.state(), GuardState::Held);
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

        // They come back empty, and are used again.
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
        // A try that waits for the answer of the master is not over soon.
        let (masters, url) = masters_with(5, "60s").await?;
        let (one, two) = (locks(&url, LEASE).await?, locks(&url, LEASE).await?);
        let guard = one.mutex("held")?.lock().await?;
        masters.servers()[4].pause()?;
        for _ in 0..8 {
            assert!(within(SOON, two.mutex("held")?.try_lock()).await??.is_none());
            let free = within(SOON, two.mutex("free")?.try_lock()).await??;
            within(SOON, free.expect("it is free").release()).await??;
        }
        assert_eq!(guard.state(), GuardState::Held);
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

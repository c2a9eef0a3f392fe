//! Runtimes that block, have no I/O, or have paused time.

#![expect(clippy::unwrap_used, reason = "tests, and their helpers")]

#[cfg(feature = "blocking")]
mod blocking {
    use dlock::{ErrorKind, blocking::connect};

    #[test]
    fn blocking_work_that_outlived_its_lock_is_not_ok() {
        let locks = connect("memory:").unwrap();
        // The lease is long, so that only the release frees the lock.
        let taken = || {
            let by_force = locks.as_async().force_release("n");
            assert_eq!(locks.block_on(by_force).unwrap().unwrap().len(), 1);
            7
        };
        let lock = locks.mutex("n").unwrap();
        let with = lock.with(|_| taken());
        let guard = lock.lock().unwrap();
        for ran in [with, guard.finish(taken())] {
            let error = ran.unwrap_err();
            assert_eq!(error.kind(), ErrorKind::Lost);
            assert_eq!(error.take_output(), Some(7));
        }
    }
}

/// Connections need I/O from the runtime.
mod io {
    use dlock::{ErrorKind, backend::registry, connect, error::ConfigIssue};

    #[test]
    fn each_store_refuses_a_runtime_without_io() {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
        // Nobody listens there.
        for url in [
            "redis://127.0.0.1:1",
            "redis+cluster://127.0.0.1:1",
            "redis+sentinel://127.0.0.1:1/master",
            "redis+quorum://127.0.0.1:1,127.0.0.1:2,127.0.0.1:3",
            "redis+unix:///nowhere",
            "redis://127.0.0.1:1?dlock.plain=true",
            "postgres://127.0.0.1:1/locks",
            "postgres://127.0.0.1:1/locks?dlock.plain=row",
            "postgres://127.0.0.1:1/locks?dlock.advisory=true",
            "mysql://user:password@127.0.0.1:1/locks",
            "mysql://user:password@127.0.0.1:1/locks?dlock.plain=row",
            "zk://127.0.0.1:1",
            "etcd://127.0.0.1:1",
        ] {
            let scheme = url.split(':').next().unwrap();
            if registry().schemes().contains(&scheme) {
                let error = runtime.block_on(connect(url)).unwrap_err();
                assert_eq!(error.kind(), ErrorKind::Config(ConfigIssue::Runtime), "{url}: {error}");
                assert!(error.to_string().contains("enable_io"), "{url}: {error}");
            }
        }
    }
}

/// `memory:` in tests whose time is paused.
mod paused {
    use std::time::Duration;

    use dlock::{
        ErrorKind, Locks,
        backend::{Clock, Memory},
        connect,
        error::ConfigIssue,
        guard::Ended,
        job::Ran,
    };
    use tokio::time::{pause, sleep};

    const LEASE: Duration = Duration::from_secs(10);

    async fn memory() -> Locks {
        connect("memory:?dlock.lease=10s").await.unwrap()
    }

    /// A revoked lock is lost at the next renewal, and a lease ends on time, all without real time
    /// passing.
    async fn time_passes_for(locks: &Locks) {
        let guard = locks.mutex("forced").unwrap().lock().await.unwrap();
        sleep(LEASE * 3).await;
        assert!(guard.check().is_ok(), "it was renewed");
        assert_eq!(locks.force_release("forced").await.unwrap().len(), 1);
        sleep(LEASE / 2).await;
        assert_eq!(guard.lost().await, Ended::Revoked);

        let job = locks.job("kept").unwrap().with_at_least(LEASE * 6).unwrap();
        let run = || job.run(|_| async {});
        assert!(matches!(run().await.unwrap(), Ran::Done(())));
        sleep(LEASE * 5).await;
        assert!(matches!(run().await.unwrap(), Ran::Elsewhere));
        sleep(LEASE * 2).await;
        assert!(matches!(run().await.unwrap(), Ran::Done(())));
    }

    #[tokio::test(start_paused = true)]
    async fn time_that_is_paused_passes_for_memory() {
        time_passes_for(&memory().await).await;
        time_passes_for(&Locks::new(Memory::new()).unwrap()).await;
    }

    #[tokio::test]
    async fn time_that_is_paused_later_passes_for_memory() {
        let locks = memory().await;
        pause();
        time_passes_for(&locks).await;
    }

    #[tokio::test(start_paused = true)]
    async fn a_later_store_in_memory_gives_larger_tokens() {
        let token = async || memory().await.mutex("x").unwrap().lock().await.unwrap().token();
        let first = token().await;
        sleep(LEASE).await;
        assert!(token().await > first);
    }

    #[tokio::test(start_paused = true)]
    async fn locks_in_real_time_are_refused_in_paused_time() {
        let error = Locks::new(Memory::with_clock(Clock::Boot)).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Config(ConfigIssue::Runtime));
        assert!(error.to_string().contains("Memory::with_clock(Clock::tokio())"), "{error}");
        tokio::time::resume();
        Locks::new(Memory::with_clock(Clock::Boot)).unwrap();
    }

    #[cfg(feature = "sqlite")]
    #[tokio::test(start_paused = true)]
    async fn a_store_in_real_time_is_refused_in_paused_time() {
        let dir = tempfile::tempdir().unwrap();
        let url = format!("sqlite:{}?dlock.create_schema=true", dir.path().join("x.db").display());
        let error = connect(&url).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Config(ConfigIssue::Runtime));
        assert!(error.to_string().contains("Memory::with_clock(Clock::tokio())"), "{error}");
    }
}

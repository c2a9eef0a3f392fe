//! The runtime on which the locks were created ends before their users.

use std::{future::Future, pin::Pin, time::Duration};

use dlock_core::*;
use tokio::runtime::{Builder, Runtime};

use super::store::Store;
use crate::support::{millis, secs};

/// Much longer than these tests take, and shorter than a lease.
const BACKSTOP: Duration = Duration::from_secs(60);
const LEASE: Duration = Duration::from_secs(600);

type Ends = Pin<Box<dyn Future<Output = (&'static str, Option<Error>)> + Send>>;

fn ends<T>(
    what: &'static str,
    verb: impl Future<Output = Result<T, Error>> + Send + 'static,
) -> Ends {
    Box::pin(async move { (what, verb.await.err()) })
}

fn runtime() -> Runtime {
    Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap()
}

#[test]
fn no_operation_waits_for_a_runtime_that_has_ended() {
    let (theirs, mine) = (runtime(), runtime());
    let store = Store::new();
    let locks = theirs.block_on(async { store.client(LEASE) });
    let other = mine.block_on(async { store.client(LEASE) });
    let owner = Owner::new();
    let (held, _kept, write, _others) = mine.block_on(async {
        let held = locks.mutex("held").unwrap().lock().await.unwrap();
        let kept = locks.mutex("kept").unwrap().lock().await.unwrap();
        let write = locks.rw("write").unwrap().write().lock().await.unwrap();
        (held, kept, write, other.mutex("others").unwrap().lock().await.unwrap())
    });
    let waits: Vec<Ends> = ["held", "kept", "others"]
        .into_iter()
        .flat_map(|name| {
            let of = |locks: &Locks| locks.clone();
            let [a, b, c, d, e, f, g] = [(); 7].map(|()| of(&locks));
            [
                ends("mutex", async move { a.mutex(name)?.lock().await }),
                ends("second mutex", async move { b.mutex(name)?.lock().await }),
                ends("with a limit", async move { c.mutex(name)?.lock_timeout(LEASE).await }),
                ends("fair", async move { d.fair(name)?.lock().await }),
                ends("reentrant", async move { e.reentrant(name)?.lock_as(&owner).await }),
                ends("multi", async move { f.multi([name, "free"])?.lock().await }),
                ends("election", async move { g.election(name)?.campaign().await }),
            ]
        })
        .collect();
    let waits: Vec<_> = waits.into_iter().map(|wait| mine.spawn(wait)).collect();
    std::thread::sleep(millis(200));
    assert!(waits.iter().all(|wait| !wait.is_finished()), "somebody did not wait");

    // These tasks have sent requests to a store whose tasks were on that runtime, and get no
    // answer.
    store.becomes_unreachable(None);
    let [a, b, c, d, e, f] = [(); 6].map(|()| locks.clone());
    let mut write = write;
    let asks = [
        ends("ask", async move { a.mutex("a")?.lock().await }),
        ends("try", async move { b.fair("b")?.try_lock().await }),
        ends("inspect", async move { c.inspect("a").await }),
        ends("leader", async move { d.election("a")?.leader().await }),
        ends("force_release", async move { e.force_release("a").await }),
        ends("multi", async move { f.multi(["c", "d"])?.try_lock().await }),
        ends("release", held.release()),
        ends("downgrade", async move { write.downgrade().await }),
    ];
    let asks: Vec<_> = asks.into_iter().map(|ask| mine.spawn(ask)).collect();
    std::thread::sleep(millis(200));
    theirs.shutdown_timeout(BACKSTOP);
    let [a, b, c] = [(); 3].map(|()| locks.clone());
    let late = [
        ends("late", async move { a.mutex("kept")?.lock().await }),
        ends("late fair", async move { b.fair("a")?.lock().await }),
        ends("health", async move { c.health(secs(1)).await.latency }),
    ];
    let late = late.into_iter().map(|late| mine.spawn(late));
    mine.block_on(async {
        for task in waits.into_iter().chain(asks).chain(late) {
            let ended = tokio::time::timeout(BACKSTOP, task).await;
            let (what, error) = ended.expect("something waits for ever").unwrap();
            let kind = error.as_ref().map(Error::kind);
            let gone = Some(ErrorKind::Config(ConfigIssue::Runtime));
            assert_eq!(kind, gone, "{what}: {error:?}");
        }
    });
}

#[test]
fn a_runtime_without_io_is_refused() {
    let runtime = Builder::new_current_thread().enable_time().build().unwrap();
    runtime.block_on(async {
        assert!(current_io_runtime(|| Ok(())).is_ok());
        let open = || tokio::net::UnixDatagram::unbound().map(drop);
        let error = current_io_runtime(open).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Config(ConfigIssue::Runtime));
        assert!(error.to_string().contains("enable_io"), "{error}");
    });
}

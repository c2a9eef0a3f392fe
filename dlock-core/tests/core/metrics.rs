//! The metrics, with their documented names and labels.

use std::sync::atomic::Ordering;

use crate::support::{Faulty, millis, secs};
use dlock_core::*;
use metrics_util::debugging::{DebugValue, DebuggingRecorder, Snapshotter};

/// All series that have a value, as `name{label=value,...} value`; for histograms the number of
/// values and the largest one, in whole seconds. Each call resets all values, gauges to zero.
fn series(snapshotter: &Snapshotter) -> Vec<String> {
    let snapshot = snapshotter.snapshot().into_vec();
    let mut all: Vec<_> = snapshot
        .into_iter()
        .filter_map(|(key, _, _, value)| {
            let key = key.key();
            let mut labels: Vec<_> =
                key.labels().map(|label| format!("{}={}", label.key(), label.value())).collect();
            labels.sort();
            let value = match value {
                DebugValue::Counter(count) => count.to_string(),
                DebugValue::Gauge(value) => value.to_string(),
                DebugValue::Histogram(values) if values.is_empty() => return None,
                DebugValue::Histogram(values) => {
                    let largest = values.iter().max().map_or(0.0, |value| value.into_inner());
                    format!("{} of {}", values.len(), largest.floor())
                }
            };
            Some(format!("{}{{{}}} {value}", key.name(), labels.join(",")))
        })
        // Series without an event so far.
        .filter(|line| !(line.ends_with("} 0") && line.contains("_total")))
        .collect();
    all.sort();
    all
}

#[tokio::test(start_paused = true)]
async fn the_life_of_a_lock_is_measured() {
    let recorder = DebuggingRecorder::new();
    let _guard = ::metrics::set_default_local_recorder(&recorder);
    let snapshotter = recorder.snapshotter();
    let store = Faulty::new();
    let [here, there] = [(); 2].map(|()| Locks::new(store.clone()).unwrap());

    let guard = here.mutex("secret-name").unwrap().lock().await.unwrap();
    assert!(there.fair("secret-name").unwrap().try_lock().await.unwrap().is_none());
    let waits = there.fair("secret-name").unwrap();
    let error = waits.lock_timeout(secs(4)).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Timeout);
    assert!(tokio::time::timeout(secs(3), waits.lock()).await.is_err());
    assert_eq!(
        series(&snapshotter),
        [
            "dlock_acquire_seconds{backend=memory,kind=fair,outcome=busy} 1 of 0",
            "dlock_acquire_seconds{backend=memory,kind=fair,outcome=cancelled} 1 of 3",
            "dlock_acquire_seconds{backend=memory,kind=fair,outcome=timeout} 1 of 4",
            "dlock_acquire_seconds{backend=memory,kind=mutex,outcome=granted} 1 of 0",
            "dlock_contended_total{backend=memory,queue=store} 2",
            "dlock_held{backend=memory} 1",
            "dlock_waiting{backend=memory} 0",
        ]
    );

    // Local waits, renewals, and the end of a hold.
    let mutex = here.mutex("secret-name").unwrap();
    let late = async {
        tokio::time::sleep(secs(12)).await;
        guard.release().await.unwrap();
    };
    let (next, ()) = tokio::join!(mutex.lock(), late);
    next.unwrap().release().await.unwrap();
    let text = series(&snapshotter);
    for expected in [
        "dlock_acquire_seconds{backend=memory,kind=mutex,outcome=granted} 1 of 12",
        "dlock_contended_total{backend=memory,queue=process} 1",
        "dlock_hold_seconds{backend=memory,mode=exclusive} 2 of 19",
        "dlock_renewals_total{backend=memory,outcome=kept} 1",
        "dlock_held{backend=memory} -1",
        "dlock_waiting{backend=memory} 0",
    ] {
        assert!(text.iter().any(|line| line == expected), "no {expected} in {text:#?}");
    }
    assert!(!text.concat().contains("secret-name"), "{text:#?}");
}

#[tokio::test(start_paused = true)]
async fn losses_are_counted_by_reason() {
    let recorder = DebuggingRecorder::new();
    let _guard = ::metrics::set_default_local_recorder(&recorder);
    let store = Faulty::new();
    let locks = Locks::new(store.clone()).unwrap();
    let read = locks.rw("rw").unwrap().read().lock().await.unwrap();
    let permits = locks.semaphore("sem", 3).unwrap().acquire_many(2).await.unwrap();
    store.renew_fails.store(true, Ordering::SeqCst);
    read.lost().await;
    permits.lost().await;
    store.renew_fails.store(false, Ordering::SeqCst);
    let taken = locks.election("e").unwrap().campaign().await.unwrap();
    locks.force_release("e").await.unwrap();
    taken.lost().await;
    let ran = locks.job("j").unwrap().run(|_| async {}).await.unwrap();
    assert_eq!(ran, Ran::Done(()));
    tokio::time::sleep(millis(10)).await;
    let text = series(&recorder.snapshotter());
    for expected in [
        "dlock_lost_total{backend=memory,reason=expired} 2",
        "dlock_lost_total{backend=memory,reason=revoked} 1",
        "dlock_renewals_total{backend=memory,outcome=lost} 1",
        "dlock_acquire_seconds{backend=memory,kind=election,outcome=granted} 1 of 0",
        "dlock_acquire_seconds{backend=memory,kind=job,outcome=granted} 1 of 0",
        "dlock_acquire_seconds{backend=memory,kind=read,outcome=granted} 1 of 0",
        "dlock_acquire_seconds{backend=memory,kind=semaphore,outcome=granted} 1 of 0",
        "dlock_hold_seconds{backend=memory,mode=permits} 1 of 29",
        "dlock_hold_seconds{backend=memory,mode=shared} 1 of 29",
        "dlock_held{backend=memory} 0",
    ] {
        assert!(text.iter().any(|line| line == expected), "no {expected} in {text:#?}");
    }
    let failed = text.iter().find(|line| line.contains("outcome=failed")).cloned();
    assert!(failed.is_some_and(|line| !line.ends_with(" 0")), "{text:#?}");
}

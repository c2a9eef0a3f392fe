//! The series of alerts: they exist before the first event, and count each loss.

use std::{thread, time::Duration};

use dlock_core::*;
use metrics_util::debugging::{DebugValue, DebuggingRecorder, Snapshotter};

use super::{log::Log, store::Store};
use crate::support::secs;

/// Of locks that are lost.
const BRIEF: Duration = Duration::from_millis(100);

/// Returns the number of locks that were lost since the last call, and the number of held locks.
fn lost_and_held(snapshotter: &Snapshotter) -> (u64, f64) {
    let (mut lost, mut held) = (0, 0.0);
    for (key, _, _, value) in snapshotter.snapshot().into_vec() {
        match (key.key().name(), value) {
            ("dlock_lost_total", DebugValue::Counter(count)) => lost += count,
            ("dlock_held", DebugValue::Gauge(value)) => held += value.into_inner(),
            _ => {}
        }
    }
    (lost, held)
}

#[tokio::test]
async fn every_series_is_there_before_its_first_event() {
    let recorder = DebuggingRecorder::new();
    let _guard = ::metrics::set_default_local_recorder(&recorder);
    let _locks = Locks::new(Memory::new()).unwrap();
    let all = recorder.snapshotter().snapshot().into_vec();
    let series = |name: &str| {
        let of = all.iter().filter(|(key, _, _, _)| key.key().name() == name);
        for (_, _, _, value) in of.clone() {
            match value {
                DebugValue::Counter(count) => assert_eq!(*count, 0),
                DebugValue::Gauge(value) => assert_eq!(value.into_inner(), 0.0),
                DebugValue::Histogram(values) => assert!(values.is_empty()),
            }
        }
        of.count()
    };
    // For each value of each label.
    assert_eq!(series("dlock_lost_total"), 4);
    assert_eq!(series("dlock_renewals_total"), 3);
    assert_eq!(series("dlock_contended_total"), 2);
    assert_eq!(series("dlock_acquire_seconds"), 8 * 5);
    assert_eq!(series("dlock_hold_seconds"), 3);
    assert_eq!(series("dlock_held"), 1);
    assert_eq!(series("dlock_waiting"), 1);
}

#[tokio::test(start_paused = true)]
async fn a_loss_is_counted_when_it_happens() {
    let recorder = DebuggingRecorder::new();
    let _guard = ::metrics::set_default_local_recorder(&recorder);
    let (snapshotter, (log, _log)) = (recorder.snapshotter(), Log::new());
    let store = Store::new();
    let locks = store.client(secs(30));
    let never = LockOptions::new().with_lease(secs(30)).with_renew(Renew::Never);
    let never = locks.with_options(never).unwrap();
    let guards = [
        locks.mutex("a").unwrap().lock().await.unwrap(),
        locks.fair("b").unwrap().lock().await.unwrap(),
        never.fair("c").unwrap().lock().await.unwrap(),
        locks.multi(["d", "e"]).unwrap().lock().await.unwrap(),
    ];
    for answers in [None, Some(Duration::ZERO)] {
        store.becomes_unreachable(answers);
        tokio::time::sleep(secs(15)).await;
    }
    tokio::time::sleep(secs(15)).await;
    assert_eq!(lost_and_held(&snapshotter), (5, 0.0));
    assert_eq!(log.count("lock lost"), 5);
    for guard in guards {
        guard.check().unwrap_err();
        assert_eq!(guard.release().await.unwrap(), Released::AlreadyLost);
    }
    assert_eq!(lost_and_held(&snapshotter).0, 0, "counted twice");
    assert_eq!(log.count("lock lost"), 5);
}

/// Because the runtime that renews is blocked meanwhile.
#[tokio::test]
async fn a_guard_released_too_late_is_counted_as_lost() {
    let recorder = DebuggingRecorder::new();
    let _guard = ::metrics::set_default_local_recorder(&recorder);
    let (snapshotter, (log, _log)) = (recorder.snapshotter(), Log::new());
    for is_away in [false, true] {
        let store = Store::new();
        let locks = store.client(BRIEF);
        let guards = [
            locks.mutex("a").unwrap().lock().await.unwrap(),
            locks.fair("b").unwrap().lock().await.unwrap(),
            locks.reentrant("c").unwrap().lock_as(&Owner::new()).await.unwrap(),
            locks.multi(["d", "e"]).unwrap().lock().await.unwrap(),
        ];
        let released = locks.mutex("f").unwrap().lock().await.unwrap();
        if is_away {
            store.becomes_unreachable(Duration::ZERO);
        }
        thread::sleep(2 * BRIEF);
        drop(guards);
        assert_eq!(released.release().await.unwrap(), Released::AlreadyLost);
        assert_eq!(lost_and_held(&snapshotter), (6, 0.0), "{is_away}");
    }
    assert_eq!(log.count("lock lost"), 12);
}

#[tokio::test(start_paused = true)]
async fn a_loss_found_by_the_release_is_counted() {
    let recorder = DebuggingRecorder::new();
    let _guard = ::metrics::set_default_local_recorder(&recorder);
    let (snapshotter, (log, _log)) = (recorder.snapshotter(), Log::new());
    let store = Store::new();
    let (locks, admin) = (store.client(secs(30)), store.client(secs(30)));
    for name in ["a", "b"] {
        let guard = match name {
            "a" => locks.mutex(name).unwrap().lock().await.unwrap(),
            _ => locks.fair(name).unwrap().lock().await.unwrap(),
        };
        assert_eq!(admin.force_release(name).await.unwrap().len(), 1);
        assert_eq!(guard.release().await.unwrap(), Released::AlreadyLost);
        assert_eq!(lost_and_held(&snapshotter), (1, 0.0), "{name}");
    }
    assert_eq!(log.count("reason=the store does not know the claim any more"), 2);
    // A release that reaches the store only after the lease has ended does not report a loss.
    let guard = locks.fair("c").unwrap().lock().await.unwrap();
    store.becomes_unreachable(Duration::ZERO);
    let release = tokio::spawn(guard.release());
    tokio::time::sleep(secs(29)).await;
    tokio::task::yield_now().await;
    assert_eq!(lost_and_held(&snapshotter).0, 0);
    let _ = release.await.unwrap();
    store.comes_back();
    tokio::time::sleep(secs(40)).await;
    assert_eq!(lost_and_held(&snapshotter).0, 0);
}

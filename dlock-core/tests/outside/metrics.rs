//! What an alert sees before anything has happened.

use dlock_core::*;
use metrics_util::debugging::{DebugValue, DebuggingRecorder};

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

//! The metrics of an uncontended lock take no memory.

use std::sync::{
    Arc,
    atomic::{AtomicU64, Ordering},
};

use ::metrics::{
    Counter, CounterFn, Gauge, GaugeFn, Histogram, HistogramFn, Key, KeyName, Metadata, Recorder,
    SharedString, Unit,
};
use dlock_core::*;

use crate::{alone, count};

/// A recorder that only counts calls.
#[derive(Default)]
struct Calls(Arc<Count>);

#[derive(Default)]
struct Count(AtomicU64);

impl Count {
    fn call(&self) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }
}

impl CounterFn for Count {
    fn increment(&self, _: u64) {
        self.call();
    }
    fn absolute(&self, _: u64) {
        self.call();
    }
}

impl GaugeFn for Count {
    fn increment(&self, _: f64) {
        self.call();
    }
    fn decrement(&self, _: f64) {
        self.call();
    }
    fn set(&self, _: f64) {
        self.call();
    }
}

impl HistogramFn for Count {
    fn record(&self, _: f64) {
        self.call();
    }
}

impl Recorder for Calls {
    fn describe_counter(&self, _: KeyName, _: Option<Unit>, _: SharedString) {}
    fn describe_gauge(&self, _: KeyName, _: Option<Unit>, _: SharedString) {}
    fn describe_histogram(&self, _: KeyName, _: Option<Unit>, _: SharedString) {}
    fn register_counter(&self, _: &Key, _: &Metadata<'_>) -> Counter {
        Counter::from_arc(Arc::clone(&self.0))
    }
    fn register_gauge(&self, _: &Key, _: &Metadata<'_>) -> Gauge {
        Gauge::from_arc(Arc::clone(&self.0))
    }
    fn register_histogram(&self, _: &Key, _: &Metadata<'_>) -> Histogram {
        Histogram::from_arc(Arc::clone(&self.0))
    }
}

#[test]
fn an_uncontended_lock_allocates_nothing_for_its_metrics() {
    alone(async {
        let recorder = Calls::default();
        let _guard = ::metrics::set_default_local_recorder(&recorder);
        let locks = Locks::new(Memory::new()).unwrap();
        let lock = locks.mutex("n").unwrap();
        for _ in 0..100 {
            drop(lock.lock().await.unwrap());
        }
        let before = recorder.0.0.load(Ordering::Relaxed);
        let region = count();
        for _ in 0..1000 {
            drop(lock.lock().await.unwrap());
        }
        let change = region.change();
        let calls = recorder.0.0.load(Ordering::Relaxed) - before;
        assert!(calls >= 4000, "{calls} values of 1000 locks: it measures nothing");
        // The hold itself, and the background task, which wakes about once a second.
        assert!(change.allocations < 1100, "{change:?}");
    });
}

//! An uncontended lock in memory against the baseline, a `tokio::sync::Mutex` found by name in a
//! map; and a lock that tasks hand off.
//!
//! `cargo bench -p dlock-bench --bench uncontended`. Each sample is 1,000 cycles of acquire and release
//! on one task; the allocation columns count all of them.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex},
};

use divan::{AllocProfiler, Bencher, counter::ItemsCount};
use dlock::{Locks, backend::Memory};
use tokio::runtime::{Builder, Runtime};

#[global_allocator]
static ALLOC: AllocProfiler = AllocProfiler::system();

const CYCLES: usize = 1000;

fn main() {
    divan::main();
}

fn runtime() -> Runtime {
    Builder::new_current_thread().enable_all().build().expect("a runtime")
}

type Named = Mutex<HashMap<String, Arc<tokio::sync::Mutex<()>>>>;

#[divan::bench]
fn tokio_mutex_and_one_map_look_up(bencher: Bencher) {
    let runtime = runtime();
    let locks: Named = Mutex::new(HashMap::from([("inventory/42".to_owned(), Arc::default())]));
    bencher.counter(ItemsCount::new(CYCLES)).bench_local(|| {
        runtime.block_on(async {
            for _ in 0..CYCLES {
                let lock = locks.lock().expect("no panic").get("inventory/42").cloned();
                let guard = lock.expect("it is there").lock_owned().await;
                drop(divan::black_box(guard));
            }
        });
    });
}

#[divan::bench]
fn dlock_mutex(bencher: Bencher) {
    let runtime = runtime();
    let locks = runtime.block_on(async { Locks::new(Memory::new()) }).expect("a runtime");
    let lock = locks.mutex("inventory/42").expect("a good name");
    bencher.counter(ItemsCount::new(CYCLES)).bench_local(|| {
        runtime.block_on(async {
            for _ in 0..CYCLES {
                let guard = lock.lock().await.expect("free");
                drop(divan::black_box(guard.release().await));
            }
        });
    });
}

#[divan::bench]
fn dlock_fair(bencher: Bencher) {
    let runtime = runtime();
    let locks = runtime.block_on(async { Locks::new(Memory::new()) }).expect("a runtime");
    let lock = locks.fair("inventory/42").expect("a good name");
    bencher.counter(ItemsCount::new(CYCLES)).bench_local(|| {
        runtime.block_on(async {
            for _ in 0..CYCLES {
                drop(divan::black_box(lock.lock().await.expect("free")));
            }
        });
    });
}

/// 64 tasks on two threads that hand off one lock.
#[divan::bench]
fn dlock_mutex_handed_off(bencher: Bencher) {
    const TASKS: usize = 64;
    let runtime = Builder::new_multi_thread().worker_threads(2).enable_all().build();
    let runtime = runtime.expect("a runtime");
    let locks = runtime.block_on(async { Locks::new(Memory::new()) }).expect("a runtime");
    let lock = locks.mutex("inventory/42").expect("a good name");
    bencher.counter(ItemsCount::new(TASKS * CYCLES)).bench_local(|| {
        runtime.block_on(async {
            let mut tasks = tokio::task::JoinSet::new();
            for _ in 0..TASKS {
                let lock = lock.clone();
                tasks.spawn(async move {
                    for _ in 0..CYCLES {
                        drop(lock.lock().await.expect("it comes"));
                    }
                });
            }
            tasks.join_all().await;
        });
    });
}

//! The memory that locks take. The tests have a separate process and run one at a time, since the
//! allocator counts for the whole process.

#[cfg(feature = "metrics")]
mod measured;

use std::{
    alloc::System,
    future::Future,
    task::{Context, Waker},
};

use dlock_core::*;
use parking_lot::Mutex;
use stats_alloc::{INSTRUMENTED_SYSTEM, Region, StatsAlloc};

#[global_allocator]
static ALLOCATOR: &StatsAlloc<System> = &INSTRUMENTED_SYSTEM;

/// Runs a test while no other one runs, in a runtime that ends before the next one.
fn alone(test: impl Future<Output = ()>) {
    static TURN: Mutex<()> = Mutex::new(());
    let _turn = TURN.lock();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    runtime.expect("a runtime").block_on(test);
}

/// The counting begins here.
fn count() -> Region<'static, System> {
    Region::new(ALLOCATOR)
}

#[test]
fn tries_and_cancelled_waits_take_no_memory() {
    alone(async {
        let store = Memory::new();
        let locks = Locks::new(store.clone()).unwrap();
        let lock = locks.mutex("n").unwrap();
        let region = count();
        for _ in 0..200_000 {
            drop(lock.try_lock().await.unwrap().unwrap());
        }
        let _held = lock.lock().await.unwrap();
        for _ in 0..200_000 {
            let mut waiting = std::pin::pin!(lock.lock());
            assert!(waiting.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_pending());
        }
        let change = region.change();
        assert!(change.allocations > 200_000, "{change:?}: nothing was counted");
        // One hold or one queue entry for each would be 20 to 50 MB.
        let bytes = change.bytes_allocated.saturating_sub(change.bytes_deallocated);
        assert!(bytes < 10_000_000, "{bytes} bytes");
    });
}

/// With this number, the tables are three quarters full.
const HELD: usize = 100_000;

#[test]
fn a_held_lock_takes_less_than_half_a_kilobyte_and_few_pieces() {
    alone(async {
        let locks = Locks::new(Memory::new()).unwrap();
        let mut guards = Vec::with_capacity(HELD);
        let region = count();
        for i in 0..HELD {
            guards.push(locks.mutex(format!("held/{i}")).unwrap().lock().await.unwrap());
        }
        let change = region.change();
        let pieces = (change.allocations - change.deallocations) / HELD;
        // The name, the hold, the shared state of the handles, and the claim in the store.
        assert!(pieces <= 4, "{pieces} pieces each");
        // An allocator needs one more word for each allocation.
        let bytes = (change.bytes_allocated - change.bytes_deallocated) / HELD + 8 * pieces;
        assert!(bytes < 512, "{bytes} bytes each");
        drop(guards);
    });
}

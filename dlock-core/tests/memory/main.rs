//! The memory that locks take. A process of its own, since the allocator of the whole process
//! counts; and one test at a time, since it counts for all of them.

mod cleanup;
mod held;
#[cfg(feature = "metrics")]
mod measured;

use std::alloc::System;

use parking_lot::Mutex;
use stats_alloc::{INSTRUMENTED_SYSTEM, Region, StatsAlloc};

#[global_allocator]
static ALLOCATOR: &StatsAlloc<System> = &INSTRUMENTED_SYSTEM;

/// Runs a test while no other is running, in a runtime that is gone before the next.
fn alone(test: impl Future<Output = ()>) {
    static TURN: Mutex<()> = Mutex::new(());
    let _turn = TURN.lock();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    runtime.expect("a runtime").block_on(test);
}

/// From here on it is counted.
fn count() -> Region<'static, System> {
    Region::new(ALLOCATOR)
}

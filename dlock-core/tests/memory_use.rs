//! Who left, takes no memory. One test for the process, since it measures the process.

use std::{
    future::Future,
    sync::Arc,
    task::{Context, Waker},
};

use dlock_core::*;

#[tokio::test]
async fn tries_and_waits_that_left_take_no_memory() {
    let store = Memory::new();
    let locks = Locks::new(Arc::clone(&store)).unwrap();
    let lock = locks.mutex("n").unwrap();
    let before = resident();
    for _ in 0..200_000 {
        drop(lock.try_lock().await.unwrap().unwrap());
    }
    let _held = lock.lock().await.unwrap();
    for _ in 0..200_000 {
        let mut waiting = std::pin::pin!(lock.lock());
        assert!(waiting.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_pending());
    }
    // One hold or one place in the queue for each would be 20 to 50 MB.
    assert!(resident() - before < 10_000_000, "{} bytes", resident() - before);
}

/// Bytes of memory that the process has in use.
fn resident() -> i64 {
    let status = std::fs::read_to_string("/proc/self/statm").unwrap_or_default();
    status.split(' ').nth(1).and_then(|pages| pages.parse::<i64>().ok()).unwrap_or(0) * 4096
}

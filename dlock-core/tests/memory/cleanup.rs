//! The memory after tries and cancelled waits.

use std::{
    future::Future,
    task::{Context, Waker},
};

use dlock_core::*;

use crate::{alone, count};

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
        // One hold or one place in the queue for each would be 20 to 50 MB.
        let bytes = change.bytes_allocated.saturating_sub(change.bytes_deallocated);
        assert!(bytes < 10_000_000, "{bytes} bytes");
    });
}

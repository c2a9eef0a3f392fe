//! The memory of a held lock.

use dlock_core::*;

use crate::{alone, count};

/// With so many, the tables are three quarters full.
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
        // The name, the hold, what the handles share, and the claim in the store.
        assert!(pieces <= 4, "{pieces} pieces each");
        // An allocator takes a word more for each piece.
        let bytes = (change.bytes_allocated - change.bytes_deallocated) / HELD + 8 * pieces;
        assert!(bytes < 512, "{bytes} bytes each");
        drop(guards);
    });
}

//! Properties of operations that a worker needs.

use dlock_core::{ClaimId, Mode, Queue, machine::Op};

/// Returns the same claim as a join, which only joins the queue and grants nothing.
pub(super) fn join(op: &Op) -> Op {
    match op.clone() {
        Op::Acquire { claim, mode, lease, block, home, note, .. } => {
            Op::Join { claim, mode, lease, block, home, note }
        }
        // Only claims that wait skip the sync, so this is never another operation.
        op => op,
    }
}

/// Returns whether an operation has a deadline. A release has none: it takes nothing, so it may
/// arrive at any time.
pub(super) const fn has_deadline(op: &Op) -> bool {
    !matches!(op, Op::Release { .. })
}

/// Returns the claim that an operation would add to the row.
pub(super) const fn new_claim(op: &Op) -> Option<ClaimId> {
    match *op {
        Op::Acquire { claim, .. } | Op::Join { claim, .. } => Some(claim),
        _ => None,
    }
}

/// Returns whether an operation waits for an exclusive claim. A reader may be granted while the
/// lock is held, so it is not one.
pub(super) fn is_wait(op: &Op) -> bool {
    matches!(op, Op::Acquire { mode: Mode::Exclusive, queue: Queue::Enqueue, .. })
}

pub(super) fn is_try(op: &Op) -> bool {
    matches!(op, Op::Acquire { queue: Queue::FailIfBusy, .. })
}

//! What a worker asks of an operation.

use dlock_core::{ClaimId, Mode, Queue, machine::Op};

/// The same, letting nobody in.
pub(super) fn join(op: &Op) -> Op {
    match op.clone() {
        Op::Acquire { claim, mode, lease, block, home, note, .. } => {
            Op::Join { claim, mode, lease, block, home, note }
        }
        op => op,
    }
}

/// A release is as good at any time.
pub(super) const fn has_deadline(op: &Op) -> bool {
    !matches!(op, Op::Release { .. })
}

/// The claim that an operation would bring into the row.
pub(super) const fn asked_for(op: &Op) -> Option<ClaimId> {
    match *op {
        Op::Acquire { claim, .. } | Op::Join { claim, .. } => Some(claim),
        _ => None,
    }
}

/// Readers may be let in although the lock is held.
pub(super) fn is_wait(op: &Op) -> bool {
    matches!(op, Op::Acquire { mode: Mode::Exclusive, queue: Queue::Enqueue, .. })
}

pub(super) fn is_try(op: &Op) -> bool {
    matches!(op, Op::Acquire { queue: Queue::FailIfBusy, .. })
}

//! One operation of one client.

use dlock_core::{FencingToken, Instant, Mode};

/// One operation of one client.
#[derive(Clone, Debug)]
pub struct Event {
    /// The task, owner or process that did it.
    pub actor: usize,
    /// The id of the acquisition that the operation belongs to.
    pub hold: u64,
    /// The operation.
    pub op: Op,
    /// The time at which the operation was started.
    pub invoked: Instant,
    /// The time and the content of the answer; `None` if there was no answer.
    pub answer: Option<(Instant, Reply)>,
}

/// The kind of an operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Op {
    /// The client acquires the lock.
    Acquire(Mode),
    /// An observer sees the claim in the queue.
    Arrive,
    /// The client downgrades the lock from exclusive to shared.
    Downgrade,
    /// The client is notified that the lock is lost.
    Lose,
    /// The client releases the lock.
    Release,
}

/// The answer to an operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Reply {
    /// The operation took effect.
    Acked {
        /// The fencing token, if the operation is an acquire.
        token: Option<FencingToken>,
        /// The local deadline: the client treats the lock as lost after it, unless the lock is
        /// renewed.
        until: Option<Instant>,
    },
    /// The operation did not take effect and will not.
    Refused,
    /// The operation may have taken effect.
    Unknown,
}

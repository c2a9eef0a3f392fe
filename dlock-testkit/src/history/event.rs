//! One operation of one client.

use dlock_core::{FencingToken, Instant, Mode};

/// One operation of one client.
#[derive(Clone, Debug)]
pub struct Event {
    /// Who: a task, an owner, a process.
    pub actor: usize,
    /// Which acquisition it is about.
    pub hold: u64,
    /// What.
    pub op: Op,
    /// When it was started.
    pub invoked: Instant,
    /// When it was answered and how; `None` if it never was.
    pub answer: Option<(Instant, Reply)>,
}

/// What a client does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Op {
    /// Takes the lock.
    Acquire(Mode),
    /// Is seen in the queue, by an onlooker.
    Arrive,
    /// Goes from alone to shared.
    Downgrade,
    /// Is told that the lock is lost.
    Lose,
    /// Gives the lock up.
    Release,
}

/// What a client is told.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Reply {
    /// It is done.
    Acked {
        /// The token, of an acquire.
        token: Option<FencingToken>,
        /// Until when the lock may be believed in, if it is not renewed.
        until: Option<Instant>,
    },
    /// It is not done, and will not be.
    Refused,
    /// It may have been done.
    Unknown,
}

//! A subject of the comparison: code that provides locks by name. Each subject is a separate
//! process that follows commands, one on each line, so that the parent's work does not count as the
//! subject's.
//!
//! The package with other projects' locks (`proof/dlock-bench/peers`) includes this folder too, so that
//! the same code measures all subjects. Therefore this folder uses nothing of dlock.

mod serve;

use crate::Failure;

pub(crate) use self::serve::serve;

/// The lock that a workload needs.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Want<'a> {
    /// The lock that an application would use.
    One(&'a str),
    /// A lock that is granted in the order of requests. A subject without such a lock returns its
    /// usual one.
    Fair(&'a str),
    /// The read side of a read-write lock.
    Read(&'a str),
    /// The write side of a read-write lock.
    Write(&'a str),
    /// All of these together.
    All(&'a [String]),
}

/// A subject of the comparison.
pub(crate) trait Subject: Clone + Send + Sync + 'static {
    /// The type of its locks.
    type Lock: Lock;

    /// Returns a lock that is not held yet. The error is the reason why there is no such lock.
    fn lock(&self, want: Want<'_>) -> impl Future<Output = Result<Self::Lock, Failure>> + Send;

    /// Runs a command that only this subject knows.
    fn more(&self, words: &[&str]) -> impl Future<Output = Result<String, Failure>> + Send {
        let unknown = Err(format!("it does not know: {}", words.join(" ")).into());
        std::future::ready(unknown)
    }
}

/// A lock by its name.
pub(crate) trait Lock: Send + 'static {
    /// Acquires the lock, calls the witness, and releases the lock. Waits while another client
    /// holds the lock.
    fn cycle<W: Witness>(
        &mut self,
        witness: &mut W,
    ) -> impl Future<Output = Result<(), Failure>> + Send;
}

/// An observer of holds.
pub(crate) trait Witness: Send {
    /// Called while the lock is held, which continues until the future completes. `token` is the
    /// fencing token, if the lock has one.
    fn held(&mut self, token: Option<u64>) -> impl Future<Output = ()> + Send;
}

/// Observes nothing.
impl Witness for () {
    async fn held(&mut self, _token: Option<u64>) {}
}

//! What a blocking holder holds.

use std::{ops::Deref, sync::Arc};

use dlock_core::{Error, GuardState, Released};

use super::runtime::{Background, outside_a_runtime};

/// A held lock. It dereferences to the [guard of async code](crate::Guard): `token()`, `check()`,
/// `state()`, `remaining()`, `name()` and `tokens()` wait for nothing.
///
/// The lease is renewed in the background while this lives; dropping it releases there, without
/// waiting.
#[derive(Debug)]
#[must_use = "the lock is released as soon as its guard is dropped"]
pub struct Guard {
    // Dropped before what it needs.
    guard: crate::Guard,
    background: Arc<Background>,
}

impl Guard {
    pub(super) fn new(guard: crate::Guard, background: &Arc<Background>) -> Self {
        Self { guard, background: Arc::clone(background) }
    }

    /// Whether the lock is lost, so that work under it must stop.
    pub fn is_lost(&self) -> bool {
        self.guard.state() == GuardState::Lost
    }

    /// Releases the lock and tells whether it was held to the end.
    ///
    /// # Errors
    /// As [`crate::Guard::release`]; `Config(Runtime)` where a tokio runtime is, and then it goes on
    /// in the background.
    pub fn release(self) -> Result<Released, Error> {
        self.background.wait_for(self.guard.release())
    }

    /// Releases the lock after work, and gives its outcome if the lock was held until then: see
    /// [`crate::Guard::finish`].
    ///
    /// # Errors
    /// As there; `Config(Runtime)` where a tokio runtime is, and then the release goes on in the
    /// background, and the error has the outcome.
    pub fn finish<T: Send + 'static>(self, outcome: T) -> Result<T, Error> {
        match outside_a_runtime() {
            Ok(()) => self.background.wait_for(self.guard.finish(outcome)),
            Err(error) => Err(error.with_output(outcome)),
        }
    }

    /// Turns a held write into a read: see [`crate::Guard::downgrade`].
    ///
    /// # Errors
    /// As there; `Config(Runtime)` where a tokio runtime is, and then nothing has changed.
    pub fn downgrade(&mut self) -> Result<(), Error> {
        self.background.wait_for(self.guard.downgrade())
    }
}

impl Deref for Guard {
    type Target = crate::Guard;

    fn deref(&self) -> &crate::Guard {
        &self.guard
    }
}

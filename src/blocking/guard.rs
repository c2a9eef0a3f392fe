//! The guard of code without a runtime.

use std::{ops::Deref, sync::Arc};

use dlock_core::{Error, GuardState, Released};

use super::runtime::{Background, outside_async_code};

/// A held lock. It dereferences to the [guard of async code](crate::Guard): `token()`, `check()`,
/// `state()`, `remaining()`, `name()` and `tokens()` do not wait.
///
/// The lease is renewed in the background while the guard lives. Dropping the guard releases the
/// lock in the background, without waiting.
#[derive(Debug)]
#[must_use = "the lock is released as soon as its guard is dropped"]
pub struct Guard {
    // Dropped before `background`, which it needs.
    guard: crate::Guard,
    background: Arc<Background>,
}

impl Guard {
    pub(super) fn new(guard: crate::Guard, background: &Arc<Background>) -> Self {
        Self { guard, background: Arc::clone(background) }
    }

    /// Returns whether the lock is lost, so that work under it must stop.
    pub fn is_lost(&self) -> bool {
        self.guard.state() == GuardState::Lost
    }

    /// Releases the lock and reports whether it was held to the end.
    ///
    /// # Errors
    /// As [`crate::Guard::release`]. In async code `Config(Runtime)`; the release then
    /// continues in the background.
    pub fn release(self) -> Result<Released, Error> {
        self.background.wait_for(self.guard.release())
    }

    /// Releases the lock after work, and returns its outcome if the lock was held until then: see
    /// [`crate::Guard::finish`].
    ///
    /// # Errors
    /// As for that method. In async code `Config(Runtime)`; the release then continues in
    /// the background, and the error contains the outcome.
    pub fn finish<T: Send + 'static>(self, outcome: T) -> Result<T, Error> {
        match outside_async_code() {
            Ok(()) => self.background.wait_for(self.guard.finish(outcome)),
            Err(error) => Err(error.with_output(outcome)),
        }
    }

    /// Turns a held write into a read: see [`crate::Guard::downgrade`].
    ///
    /// # Errors
    /// As for that method. In async code `Config(Runtime)`; then nothing has changed.
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

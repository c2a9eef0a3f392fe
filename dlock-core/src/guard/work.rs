//! Work under a lock: it begins while the lock is held, ends when the lock is lost, and gives its
//! output as `Ok` only if the lock was held until then.
//!
//! Dropping the work in time takes a runtime that is not blocked. Work that blocks its thread past
//! the lease ends later than its lock, so the lock is looked at once more after the work, and what
//! the store says to the release counts as well.

use std::sync::Arc;

use super::{Guard, Kind};
use crate::{Error, Released, engine::hold::Hold};

/// Why a release says that the lock was lost.
const UNKNOWN: &str = "the store did not know the claim any more when it was released";

impl Guard {
    /// Runs `work` while the lock is held, and drops it where it stands when the lock is lost.
    ///
    /// # Errors
    /// `Lost`, also when `work` had not begun. Work that blocks its thread can't be dropped: when it
    /// has outlived the lock, the error is `Lost` as well, and
    /// [`take_output`](Error::take_output) gives what the work gave.
    ///
    /// # Cancel safety
    /// As `work`. The guard stays.
    pub async fn run<F>(&self, work: F) -> Result<F::Output, Error>
    where
        F: Future,
        F::Output: Send + 'static,
    {
        self.check()?;
        let output = tokio::select! {
            biased;
            ended = self.lost() => {
                return Err(self.check().err().unwrap_or_else(|| {
                    Error::lost(self.name(), ended).during("run")
                }));
            }
            output = work => output,
        };
        self.vouch(output)
    }

    /// Releases the lock after work that ran without [`run`](Self::run), and gives the output of the
    /// work if the lock was held until then.
    ///
    /// If the release fails, the output is returned all the same, and the lease frees the lock.
    ///
    /// # Errors
    /// `Lost` when the work outlived the lock, also when only the release learns of it;
    /// [`take_output`](Error::take_output) gives the output.
    ///
    /// # Cancel safety
    /// When the future is dropped the release goes on in the background, and the output is lost.
    pub async fn finish<T: Send + 'static>(self, output: T) -> Result<T, Error> {
        let ran = self.vouch(output);
        self.end(ran, "release failed after the work was done").await
    }

    /// The output of work that has ended just now, if the lock is still held.
    fn vouch<T: Send + 'static>(&self, output: T) -> Result<T, Error> {
        let outlived = |hold: &Hold, how| {
            Error::outlived(hold.name(), how).with_store(hold.engine.backend.store())
        };
        match self.first_lost(&outlived) {
            Some(lost) => Err(lost.during("run").with_output(output)),
            None => Ok(output),
        }
    }

    /// Releases after [`run`](Self::run), which gave this, and warns of a release that fails. Work
    /// that was dropped may have left something on its way.
    pub(crate) async fn end<T: Send + 'static>(
        self,
        ran: Result<T, Error>,
        warning: &'static str,
    ) -> Result<T, Error> {
        let dropped = ran.as_ref().is_err_and(|error| !error.has_output());
        let left = if dropped { self.leave_lost() } else { Some(self) };
        let Some(guard) = left else { return ran };
        let (name, engine) = (guard.name().clone(), guard.engine().map(Arc::clone));
        match (guard.release().await, ran) {
            (Ok(Released::AlreadyLost), Ok(output)) => {
                let lost = Error::outlived(&name, UNKNOWN).during("release");
                let lost = match engine {
                    Some(engine) => lost.with_store(engine.backend.store()),
                    None => lost,
                };
                Err(lost.with_output(output))
            }
            (Err(error), Ok(output)) => {
                tracing::warn!(target: "dlock", %error, "{warning}");
                Ok(output)
            }
            (_, ran) => ran,
        }
    }

    /// Leaves what was lost to its lock-delay, if it has one: who dropped the work can't say that
    /// nothing is on its way. The rest is to be released.
    pub(crate) fn leave_lost(self) -> Option<Self> {
        match self.0 {
            Kind::Single(mut held) if held.hold.was_lost_with_a_delay() => {
                held.token = None;
                None
            }
            Kind::Many(parts) => {
                let (name, guards) = *parts;
                let left: Vec<_> = guards.into_iter().filter_map(Self::leave_lost).collect();
                (!left.is_empty()).then(|| Self::many(&name, left))
            }
            kind => Some(Self(kind)),
        }
    }
}

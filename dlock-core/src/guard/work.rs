//! Work under a lock: it begins while the lock is held, ends when the lock is lost, and gives its
//! output as `Ok` only if the lock was held until then.
//!
//! Dropping the work in time takes a runtime that is not blocked. Work that blocks its thread past
//! the lease ends later than its lock, so the lock is looked at once more after the work, and what
//! the store says to the release counts as well.

use std::sync::Arc;

use super::{Guard, GuardKind};
use crate::{Error, Released, engine::held::Held};

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
        match self.first_lost() {
            Some((held, how)) => Err(Error::outlived(held.name(), how)
                .with_store(held.store())
                .during("run")
                .with_output(output)),
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
        let first = &guard.parts()[0];
        let (name, backend) = (first.name().clone(), Arc::clone(first.backend()));
        match (guard.release().await, ran) {
            (Ok(Released::AlreadyLost), Ok(output)) => {
                let lost = Error::outlived(&name, UNKNOWN).with_store(backend.store());
                Err(lost.during("release").with_output(output))
            }
            (Err(error), Ok(output)) => {
                tracing::warn!(target: "dlock", %error, "{warning}");
                Ok(output)
            }
            (_, ran) => ran,
        }
    }

    /// Does not release parts that were lost and whose lock-delay still runs: the work that was
    /// dropped may have writes on their way. Gives the parts that are to be released.
    pub(crate) fn leave_lost(self) -> Option<Self> {
        if let GuardKind::Entered(_) = self.0 {
            return Some(self);
        }
        let (lost, left): (Vec<_>, Vec<_>) =
            self.into_parts().into_iter().partition(Held::is_lost_with_a_delay);
        lost.into_iter().for_each(Held::forget);
        (!left.is_empty()).then(|| Self::many(left))
    }
}

//! Work under a lock: it begins while the lock is held and ends when the lock is lost. Its output
//! is `Ok` only if the lock was held until the work ended.
//!
//! The clock is read before each poll of the work, so that the work takes no further step after the
//! local deadline, even if the timer of the deadline is late. The runtime can drop the work in time
//! only if its threads are not blocked. Work that blocks its thread past the lease ends later than
//! its lock. So the lock is checked once more after the work, and the store's answer to the release
//! counts as well, or, after a hand-off within the process, the answer that confirms it.

use std::sync::Arc;

use super::{Guard, GuardKind};
use crate::{Error, Released, engine::hold_ref::HoldRef};

/// The reason if the store reports at the release that the lock was lost.
const UNKNOWN: &str = "the store did not know the claim any more when it was released";

impl Guard {
    /// Runs `work` while the lock is held, and drops its future if the lock is lost. It sends
    /// nothing: a revocation that this process has not learned of yet is reported by
    /// [`finish`](Self::finish) at the end of the guard.
    ///
    /// # Errors
    /// `Lost`, also if `work` had not begun. Work that blocks its thread can't be dropped. If it
    /// outlived the lock, the error is `Lost` as well, and [`take_output`](Error::take_output)
    /// returns its output.
    ///
    /// # Cancel safety
    /// As the future of `work`. The guard stays.
    pub async fn run<F>(&self, work: F) -> Result<F::Output, Error>
    where
        F: Future,
        F::Output: Send + 'static,
    {
        self.check()?;
        let output = tokio::select! {
            // The end comes first: each poll of it reads the clock.
            biased;
            ended = self.lost() => {
                return Err(self.check().err().unwrap_or_else(|| {
                    Error::lost(self.name(), ended).during("run")
                }));
            }
            output = work => output,
        };
        self.check_after(output)
    }

    /// Releases the lock after work that ran without [`run`](Self::run), and returns the output of
    /// the work if the lock was held until then.
    ///
    /// If the release fails, the output is still returned, and the lease frees the lock. After a
    /// hand-off within the process it waits for an answer of the store, as
    /// [`with`](crate::LockExt::with) does. While the owner of a reentrant lock has another guard,
    /// nothing is sent: `finish` of its last guard reports a revocation that this process has not
    /// learned of yet.
    ///
    /// # Errors
    /// `Lost` if the work outlived the lock, even if only the release reveals the loss;
    /// [`take_output`](Error::take_output) returns the output.
    ///
    /// # Cancel safety
    /// If the future is dropped, the release continues in the background, and the output is lost.
    pub async fn finish<T: Send + 'static>(self, output: T) -> Result<T, Error> {
        let ran = self.check_after(output);
        self.end(ran, "release failed after the work was done").await
    }

    /// Returns the output of work that has just ended, if the lock is still held.
    fn check_after<T: Send + 'static>(&self, output: T) -> Result<T, Error> {
        match self.first_lost() {
            Some((held, how)) => Err(Error::outlived(held.name(), how)
                .with_store(held.store())
                .during("run")
                .with_output(output)),
            None => Ok(output),
        }
    }

    /// Releases the lock after [`run`](Self::run), which returned `ran`, and logs a warning if the
    /// release fails. Writes of dropped work may still be in flight.
    pub(crate) async fn end<T: Send + 'static>(
        self,
        ran: Result<T, Error>,
        warning: &'static str,
    ) -> Result<T, Error> {
        let dropped = ran.as_ref().is_err_and(|error| !error.has_output());
        let left = if dropped { self.leave_lost() } else { Some(self) };
        let Some(guard) = left else { return ran };
        let first = &guard.parts()[0];
        let only = (first.name().clone(), Arc::clone(first.backend()));
        let (released, lost) = match guard.0 {
            GuardKind::Many(parts) => Self::release_all(parts).await,
            one => (Self(one).release_with(HoldRef::release_after_work).await, None),
        };
        match (released, ran) {
            (Ok(Released::AlreadyLost), Ok(output)) => {
                let (name, backend) = lost.unwrap_or(only);
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

    /// Returns the parts that have to be released. Parts that were lost and whose lock-delay still
    /// runs are not released: the dropped work may have writes in flight.
    pub(crate) fn leave_lost(self) -> Option<Self> {
        if let GuardKind::Entered(_) = self.0 {
            return Some(self);
        }
        let (lost, left): (Vec<_>, Vec<_>) =
            self.into_parts().into_iter().partition(HoldRef::is_lost_with_a_delay);
        lost.into_iter().for_each(HoldRef::forget);
        (!left.is_empty()).then(|| Self::many(left))
    }
}

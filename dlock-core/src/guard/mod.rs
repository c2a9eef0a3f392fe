//! The guard, which represents a held lock, and work under it: it begins while the lock is held and
//! ends when the lock is lost. Its output is `Ok` only if the lock was held until the work ended.
//!
//! The clock is read before each poll of the work, so that the work takes no further step after the
//! local deadline, even if the timer of the deadline is late. The runtime can drop the work in time
//! only if its threads are not blocked. Work that blocks its thread past the lease ends later than
//! its lock. So the lock is checked once more after the work, and the store's answer to the release
//! counts as well, or, after a hand-off within the process, the answer that confirms it.

use std::{
    any::Any,
    fmt,
    pin::Pin,
    slice,
    sync::Arc,
    task::{Context, Poll},
    time::Duration,
};

use futures_util::{StreamExt, future::select_all, stream::FuturesUnordered};

use crate::{
    ClaimId, DynBackend, Ended, Error, ErrorKind, FencingToken, GuardState, Instant, LockName,
    Released, engine::hold_ref::HoldRef,
};

/// The reason if the store reports at the release that the lock was lost.
const UNKNOWN: &str = "the store did not know the claim any more when it was released";

/// A held lock. It owns its data, so it can move between tasks and into structs.
///
/// A background task renews the lock until the guard is released or dropped. The lock can be lost
/// anyway: the store was unreachable for a whole lease, somebody revoked the lock, or the process
/// was stopped. So work under a guard either runs in [`run`](Self::run), or watches
/// [`lost`](Self::lost), or calls [`check`](Self::check) before each step. Every write carries the
/// [`token`](Self::token), because a check can't rule out a pause between itself and the write.
///
/// Dropping a guard releases the lock in the background. It does not block and does not panic,
/// inside a runtime or outside. [`release`](Self::release) also reports the outcome. If a guard is
/// dropped just before `main` returns, its release does not reach the store, and the lock stays
/// held until its lease expires: await `release`, or [`Locks::shutdown`](crate::Locks::shutdown).
#[must_use = "the lock is released as soon as its guard is dropped"]
pub struct Guard(GuardKind);

enum GuardKind {
    One(HoldRef),
    Entered(Arc<Entered>),
    /// The parts of a multi-lock, sorted by name, never empty.
    Many(Vec<HoldRef>),
}

/// The state that the guards of one owner of a reentrant lock share. Dropping the last one releases
/// it.
pub(crate) struct Entered {
    held: HoldRef,
    // The table has only a weak reference to this value, so the last guard releases the lock.
    /// Keeps the table alive, so that the next entry finds this value.
    _table: Arc<dyn Any + Send + Sync>,
}

impl Entered {
    pub(crate) fn new(held: HoldRef, table: Arc<dyn Any + Send + Sync>) -> Self {
        Self { held, _table: table }
    }
}

impl Guard {
    pub(crate) const fn one(held: HoldRef) -> Self {
        Self(GuardKind::One(held))
    }

    pub(crate) const fn entered(entered: Arc<Entered>) -> Self {
        Self(GuardKind::Entered(entered))
    }

    /// Combines the parts of a multi-lock, of which there is at least one.
    pub(crate) fn many(mut parts: Vec<HoldRef>) -> Self {
        parts.sort_by(|a, b| a.name().cmp(b.name()));
        Self(GuardKind::Many(parts))
    }

    /// Returns the parts of a multi-lock, or the only part.
    pub(crate) fn into_parts(self) -> Vec<HoldRef> {
        match self.0 {
            GuardKind::One(held) => vec![held],
            GuardKind::Entered(_) => Vec::new(),
            GuardKind::Many(parts) => parts,
        }
    }

    fn parts(&self) -> &[HoldRef] {
        match &self.0 {
            GuardKind::One(held) => slice::from_ref(held),
            GuardKind::Entered(entered) => slice::from_ref(&entered.held),
            GuardKind::Many(parts) => parts,
        }
    }

    /// The name of the lock; of a multi-lock, its first name.
    pub fn name(&self) -> &LockName {
        self.parts()[0].name()
    }

    /// The id of the claim, by which [`inspect`](crate::Locks::inspect) shows the holder; of a
    /// multi-lock, that of its first name. Guards that share one claim of this process have the
    /// same. On a quorum whose first attempt failed, the masters know the claim by another id.
    pub fn claim(&self) -> ClaimId {
        self.parts()[0].claim()
    }

    /// The fencing token of this grant; of a multi-lock, the largest of [`tokens`](Self::tokens).
    pub fn token(&self) -> FencingToken {
        self.parts().iter().map(HoldRef::token).max().unwrap_or(FencingToken::MAX)
    }

    /// The token of each name, in the order of names. Send a resource the token of the name that
    /// protects it. Over several stores, compare only tokens of one store.
    pub fn tokens(&self) -> Vec<(LockName, FencingToken)> {
        self.parts().iter().map(|held| (held.name().clone(), held.token())).collect()
    }

    /// Returns whether the lock is still held, as far as this process can know.
    pub fn state(&self) -> GuardState {
        self.parts().iter().map(HoldRef::state).min().unwrap_or(GuardState::Lost)
    }

    /// Returns how long the lock stays held without a further renewal; zero once it is lost.
    pub fn remaining(&self) -> Duration {
        self.parts().iter().map(HoldRef::remaining).min().unwrap_or_default()
    }

    /// Returns the token if the lock is still held.
    ///
    /// # Errors
    /// `Lost`.
    pub fn check(&self) -> Result<FencingToken, Error> {
        match self.first_lost() {
            Some((held, how)) => Err(held.lost_error(how).during("check")),
            None => Ok(self.token()),
        }
    }

    /// Returns the first part that is lost.
    fn first_lost(&self) -> Option<(&HoldRef, Ended)> {
        self.parts().iter().find_map(|held| Some((held, held.lost()?)))
    }

    /// Resolves when the lock is lost: at the end of the lease by this process's clock at the
    /// latest, and so before the store grants the lock to another client. It also resolves when the
    /// guard is released. It borrows nothing, so any task can wait for it.
    ///
    /// Each poll reads the clock, so a late timer does not delay the result of a poll. A task that
    /// blocks its thread delays the timers of the runtime, and with them the wake-up of a task that
    /// waits for this future.
    pub fn lost(&self) -> Lost {
        // Each of these futures registers with its hold when it is created. So a loss between this
        // call and the first poll is not missed.
        if let [held] = self.parts() {
            return Lost(Box::pin(held.until_ended()));
        }
        let parts: Vec<_> = self.parts().iter().map(|held| Box::pin(held.until_ended())).collect();
        // Each poll polls all parts, since each of them reads the clock.
        Lost(Box::pin(async move { select_all(parts).await.0 }))
    }

    /// Releases the lock and reports whether it was held to the end. The guard of a reentrant lock
    /// leaves; the last one to leave releases the lock.
    ///
    /// # Errors
    /// A lock that was lost before is not an error but `AlreadyLost`. This is returned at once, or
    /// after one request to the store if the lock has a lock-delay to end. A multi-lock is
    /// `AlreadyLost` if one of its locks is. `Unavailable` if the store was unreachable for one
    /// lease, after which the lease has freed the lock. The release is still retried in the
    /// background, for at least 30 s: if the store's clock was ahead, the lease ends later there.
    ///
    /// # Cancel safety
    /// If the future is dropped, the release continues in the background.
    pub async fn release(self) -> Result<Released, Error> {
        self.release_with(HoldRef::release).await
    }

    /// Releases the lock with this function, which a part of a multi-lock does not need: it is
    /// never handed off.
    async fn release_with<F>(self, release: impl Fn(HoldRef) -> F) -> Result<Released, Error>
    where
        F: Future<Output = Result<Released, Error>>,
    {
        let parts = match self.0 {
            GuardKind::One(held) => return release(held).await,
            GuardKind::Entered(entered) => {
                // Read before the reference is dropped; after that another guard may release the
                // hold.
                let lost = entered.held.state() == GuardState::Lost;
                // `into_inner` returns the value to exactly one of several guards that are released
                // at the same time, and so exactly one of them releases. `try_unwrap` could fail
                // for all of them.
                return match Arc::into_inner(entered) {
                    Some(last) => release(last.held).await,
                    None if lost => Ok(Released::AlreadyLost),
                    None => Ok(Released::Released),
                };
            }
            GuardKind::Many(parts) => parts,
        };
        Self::release_all(parts).await.0
    }

    /// Releases the parts of a multi-lock. If one of them was lost, also returns its name and
    /// backend.
    async fn release_all(
        parts: Vec<HoldRef>,
    ) -> (Result<Released, Error>, Option<(LockName, DynBackend)>) {
        // All parts are released concurrently, since each takes a round trip. A slow part does not
        // delay the others.
        let release = |part: HoldRef| {
            let of = (part.name().clone(), Arc::clone(part.backend()));
            Box::pin(async move { (part.release().await, of) })
        };
        let mut all: FuturesUnordered<_> = parts.into_iter().map(release).collect();
        let (mut result, mut lost) = (Ok(Released::Released), None);
        while let Some((one, of)) = all.next().await {
            if matches!(one, Ok(Released::AlreadyLost)) {
                lost = Some(of);
            }
            // A loss outweighs an error, because after an error the lock may have been held to the
            // end.
            result = match (result, one) {
                (Ok(Released::AlreadyLost), _) | (_, Ok(Released::AlreadyLost)) => {
                    Ok(Released::AlreadyLost)
                }
                (Ok(_), one) => one,
                (result, _) => result,
            };
        }
        (result, lost)
    }

    /// Leaves the lock to the store until then: see [`HoldRef::part`]. The future resolves as
    /// `Released` once the store has received the time, or once the lock is lost; the request is
    /// also sent if the future is dropped. For a guard with one hold only; every other guard is
    /// released.
    pub(crate) fn part(self, until: Instant) -> Lost {
        // Registered while the guard exists. Afterwards the renewal task ends the hold.
        let over = self.lost();
        if let GuardKind::One(held) = self.0 {
            held.part(until);
        }
        over
    }

    /// Turns a held write into a read without a grant to another writer in between; waiting readers
    /// may join at once. The token stays.
    ///
    /// # Errors
    /// `Unsupported` for every guard except the write guard of a read-write lock; `Lost`;
    /// `Unavailable`. From the call on, the guard counts as a read, whatever the outcome: after an
    /// error the next renewal, if any, completes the downgrade.
    ///
    /// # Cancel safety
    /// As after an error.
    pub async fn downgrade(&mut self) -> Result<(), Error> {
        let held = match &self.0 {
            GuardKind::One(held) if held.is_writer() => held,
            _ => {
                return Err(Error::new(
                    ErrorKind::Unsupported,
                    "only the write guard of a read-write lock can be downgraded: take a guard \
                     with rw(name).write()",
                )
                .during("downgrade")
                .with_lock(self.name()));
            }
        };
        // A hold past its deadline is not downgraded: the renewal would extend it in the store,
        // although this process treats it as lost.
        self.check()?;
        held.downgrade().await
    }

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
    fn leave_lost(self) -> Option<Self> {
        if let GuardKind::Entered(_) = self.0 {
            return Some(self);
        }
        let (lost, left): (Vec<_>, Vec<_>) =
            self.into_parts().into_iter().partition(HoldRef::is_lost_with_a_delay);
        lost.into_iter().for_each(HoldRef::forget);
        (!left.is_empty()).then(|| Self::many(left))
    }
}

impl fmt::Debug for Guard {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Guard")
            .field("tokens", &self.tokens())
            .field("state", &self.state())
            .finish_non_exhaustive()
    }
}

/// Resolves when a guard's hold ends: see [`Guard::lost`].
#[must_use = "futures do nothing unless awaited"]
pub struct Lost(Pin<Box<dyn Future<Output = Ended> + Send>>);

impl Future for Lost {
    type Output = Ended;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Ended> {
        self.0.as_mut().poll(cx)
    }
}

impl fmt::Debug for Lost {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Lost")
    }
}

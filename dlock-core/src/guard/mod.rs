//! What a holder holds.

mod work;

use std::{
    any::Any,
    fmt,
    pin::Pin,
    slice,
    sync::Arc,
    task::{Context, Poll},
    time::Duration,
};

use futures_util::{StreamExt, stream::FuturesUnordered};

use crate::{
    Ended, Error, ErrorKind, FencingToken, GuardState, Instant, LockName, Released,
    engine::held::Held,
};

/// A held lock. It is owned and can be moved between tasks and kept in structs.
///
/// The lock is kept by renewal in the background until the guard is released or dropped. It can
/// be lost all the same: the store was out of reach for a whole lease, somebody broke the lock,
/// the process was stopped. So work under a guard either runs in [`run`](Self::run), or watches
/// [`lost`](Self::lost), or calls [`check`](Self::check) before each step; and what it writes
/// carries the [`token`](Self::token), because no check can rule out a pause between it and the
/// write.
///
/// Dropping a guard releases the lock in the background: it does not block and does not panic,
/// inside a runtime or outside. [`release`](Self::release) does the same and tells how it went.
/// What is dropped just before `main` returns does not reach the store, and its lease must end:
/// await `release`, or [`Locks::shutdown`](crate::Locks::shutdown).
#[must_use = "the lock is released as soon as its guard is dropped"]
pub struct Guard(GuardKind);

enum GuardKind {
    One(Held),
    Entered(Arc<Entered>),
    /// Of a multi-lock: sorted by name, never empty.
    Many(Vec<Held>),
}

/// What the entries of one owner of a reentrant lock share. The last one to go releases it.
pub(crate) struct Entered {
    held: Held,
    // The table has only a weak reference to this value, so the last guard releases the lock.
    /// Keeps the table alive in which the next entry looks for this one.
    _table: Arc<dyn Any + Send + Sync>,
}

impl Entered {
    pub(crate) fn new(held: Held, table: Arc<dyn Any + Send + Sync>) -> Self {
        Self { held, _table: table }
    }
}

impl Guard {
    pub(crate) const fn one(held: Held) -> Self {
        Self(GuardKind::One(held))
    }

    pub(crate) const fn entered(entered: Arc<Entered>) -> Self {
        Self(GuardKind::Entered(entered))
    }

    /// Of a multi-lock, which has at least one part.
    pub(crate) fn many(mut parts: Vec<Held>) -> Self {
        parts.sort_by(|a, b| a.name().cmp(b.name()));
        Self(GuardKind::Many(parts))
    }

    /// The parts of a multi-lock, or the one that there is.
    pub(crate) fn into_parts(self) -> Vec<Held> {
        match self.0 {
            GuardKind::One(held) => vec![held],
            GuardKind::Entered(_) => Vec::new(),
            GuardKind::Many(parts) => parts,
        }
    }

    fn parts(&self) -> &[Held] {
        match &self.0 {
            GuardKind::One(held) => slice::from_ref(held),
            GuardKind::Entered(entered) => slice::from_ref(&entered.held),
            GuardKind::Many(parts) => parts,
        }
    }

    /// The name of the lock; of a multi-lock, the first of its names.
    pub fn name(&self) -> &LockName {
        self.parts()[0].name()
    }

    /// The fencing token of this grant; of a multi-lock, the largest of [`tokens`](Self::tokens).
    pub fn token(&self) -> FencingToken {
        self.parts().iter().map(Held::token).max().unwrap_or(FencingToken::MAX)
    }

    /// The token of each name, in the order of names. A resource that is guarded by one of the
    /// names takes that one's. Over several stores, compare only tokens of one store.
    pub fn tokens(&self) -> Vec<(LockName, FencingToken)> {
        self.parts().iter().map(|held| (held.name().clone(), held.token())).collect()
    }

    /// Whether it still protects, as far as this process can know.
    pub fn state(&self) -> GuardState {
        self.parts().iter().map(Held::state).min().unwrap_or(GuardState::Lost)
    }

    /// How long it protects if no further renewal comes through; zero once it is lost.
    pub fn remaining(&self) -> Duration {
        self.parts().iter().map(Held::remaining).min().unwrap_or_default()
    }

    /// The token, if the lock is still held.
    ///
    /// # Errors
    /// `Lost`.
    pub fn check(&self) -> Result<FencingToken, Error> {
        match self.first_lost() {
            Some((held, how)) => Err(held.lost_error(how).during("check")),
            None => Ok(self.token()),
        }
    }

    /// The first part that is lost.
    fn first_lost(&self) -> Option<(&Held, Ended)> {
        self.parts().iter().find_map(|held| Some((held, held.lost()?)))
    }

    /// Resolves when the lock is lost, no later than the end of the lease by this process's clock
    /// and so before the store lets somebody else in; also when the guard is released. It borrows
    /// nothing: wait for it in any task.
    ///
    /// Timers are as exact as the runtime is idle: a task that blocks its thread delays it.
    pub fn lost(&self) -> Lost {
        // Each of these futures registers with its hold when it is made. So a loss between this
        // call and the first poll is not missed.
        let mut any: FuturesUnordered<_> = self.parts().iter().map(Held::until_ended).collect();
        Lost(Box::pin(async move { any.next().await.unwrap_or(Ended::Released) }))
    }

    /// Releases the lock and tells whether it was held to the end. The guard of a reentrant lock
    /// leaves; the last one to leave releases.
    ///
    /// # Errors
    /// None for a lock that was lost before, which is `AlreadyLost`: at once, or, if it has a
    /// lock-delay to be ended, after one request to the store. A multi-lock is `AlreadyLost` when one
    /// of its locks is.
    /// `Unavailable` when the store could not be asked for one lease, after which the lease has
    /// freed the lock. The release goes on in the background all the same, for 30 s at least: the
    /// lease of a store whose clock was ahead ends later.
    ///
    /// # Cancel safety
    /// When the future is dropped the release goes on in the background.
    pub async fn release(self) -> Result<Released, Error> {
        let parts = match self.0 {
            GuardKind::One(held) => return held.release().await,
            GuardKind::Entered(entered) => {
                // Read before the reference is given up, after which another guard may release the
                // hold.
                let lost = entered.held.state() == GuardState::Lost;
                // `into_inner` returns the value to exactly one of several guards that are released
                // at the same time, and so exactly one of them releases. `try_unwrap` could fail
                // for all of them.
                return match Arc::into_inner(entered) {
                    Some(last) => last.held.release().await,
                    None if lost => Ok(Released::AlreadyLost),
                    None => Ok(Released::Released),
                };
            }
            GuardKind::Many(parts) => parts,
        };
        // All at once, since each takes a round trip. A part that is slow does not delay the
        // others.
        let mut all: FuturesUnordered<_> =
            parts.into_iter().map(|part| Box::pin(part.release())).collect();
        let mut result = Ok(Released::Released);
        while let Some(one) = all.next().await {
            // A loss outweighs an error, after which the lock may have been held to the end.
            result = match (result, one) {
                (Ok(Released::AlreadyLost), _) | (_, Ok(Released::AlreadyLost)) => {
                    Ok(Released::AlreadyLost)
                }
                (Ok(_), one) => one,
                (result, _) => result,
            };
        }
        result
    }

    /// Leaves the lock to the store until then: see [`Held::part`]. What it gives resolves once the
    /// store has been told, as `Released`, or once the lock is lost; the store is told also when it
    /// is dropped. Of one hold only; every other guard is released.
    pub(crate) fn part(self, until: Instant) -> Lost {
        // Registered while the guard is there. Afterwards the renewal task ends the hold.
        let over = self.lost();
        if let GuardKind::One(held) = self.0 {
            held.part(until);
        }
        over
    }

    /// Turns a held write into a read without letting a writer in between; readers that wait may
    /// join at once. The token stays.
    ///
    /// # Errors
    /// `Unsupported` for every guard but a read-write lock's write guard; `Lost`; `Unavailable`.
    /// From the call on the guard counts as a read, whatever the outcome: after an error the next
    /// renewal, if there is one, completes it.
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
        // A hold past its deadline is not downgraded: the renewal would revive it only in the
        // store.
        self.check()?;
        held.downgrade().await
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

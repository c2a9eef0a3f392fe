//! The reentrant lock.

use std::{fmt, sync::Arc, time::Duration};

use async_trait::async_trait;

use super::{
    Mutex, Takes,
    owners::{Cell, Owners},
};
use crate::{
    Error, ErrorKind, Guard, LockName, Owner, ReentrantLock,
    guard::Entered,
    support::retry::{Wait, within},
};

/// A lock that its owner can enter again. Created by [`Locks::reentrant`](crate::Locks::reentrant).
///
/// Handles share their holds if they have the same name and come from one
/// [`Locks`](crate::Locks), or from its clones and its views with other options. An owner that
/// holds the lock enters it with any options; the hold keeps those with which it was acquired.
/// Other processes, and other `Locks`, count as other owners.
#[derive(Clone)]
pub struct ReentrantMutex {
    lock: Mutex,
    owners: Arc<Owners>,
}

impl ReentrantMutex {
    pub(crate) fn new(lock: Mutex) -> Self {
        let name = &lock.base.name;
        let owners = lock.base.client.owners.get((name, None), || Owners::new(name));
        Self { lock, owners }
    }

    /// The name of the lock.
    pub fn name(&self) -> &LockName {
        self.lock.name()
    }

    /// Takes the lock if it is free, or enters it again if this owner holds it; returns `None` if
    /// it is busy. Waits for the store's answer, but not for a holder.
    ///
    /// # Errors
    /// `Unavailable` if the store is unreachable. `Config` and `Unsupported` at once: see
    /// [`ReentrantLock`](crate::ReentrantLock).
    ///
    /// # Cancel safety
    /// Dropping the future cancels the claim; a lock that was granted meanwhile is released.
    pub async fn try_lock_as(&self, owner: &Owner) -> Result<Option<Guard>, Error> {
        self.take(owner, Wait::Try).await
    }

    /// Waits for the lock for the time that the options set, or enters it again if this owner holds
    /// it.
    ///
    /// # Errors
    /// `Timeout` after the limit. `Unavailable` if the store is unreachable. `Config` and
    /// `Unsupported` at once: see [`ReentrantLock`](crate::ReentrantLock).
    ///
    /// # Cancel safety
    /// Dropping the future cancels the claim; a lock that was granted meanwhile is released.
    pub async fn lock_as(&self, owner: &Owner) -> Result<Guard, Error> {
        self.lock_timeout_as(owner, self.lock.base.options.wait()).await
    }

    /// As [`lock_as`](Self::lock_as), but waits for `wait` at most. Zero is one attempt;
    /// `Duration::MAX` is no limit.
    ///
    /// # Errors
    /// `Timeout` after the limit. `Unavailable` if the store is unreachable. `Config` and
    /// `Unsupported` at once: see [`ReentrantLock`](crate::ReentrantLock).
    ///
    /// # Cancel safety
    /// Dropping the future cancels the claim; a lock that was granted meanwhile is released.
    pub async fn lock_timeout_as(&self, owner: &Owner, wait: Duration) -> Result<Guard, Error> {
        let taken = self.take(owner, Wait::for_at_most(wait)).await;
        self.lock.base.granted(taken)
    }

    /// The number of live guards of this owner; zero if it does not hold the lock.
    pub fn hold_count(&self, owner: &Owner) -> usize {
        self.owners.count(owner)
    }

    async fn take(&self, owner: &Owner, wait: Wait) -> Result<Option<Guard>, Error> {
        let cell = self.owners.cell(owner);
        // Entering again never waits.
        if let Some(guard) = enter_again(&cell)? {
            return Ok(Some(guard));
        }
        let seen = cell.times_given_up();
        let _turn = match wait {
            Wait::Try => match cell.gate.try_lock() {
                Ok(turn) => turn,
                // Another task of this owner is acquiring the lock, perhaps from an unreachable
                // store. If the lock is free, it belongs to that task.
                Err(_) => return self.lock.acquire(wait).await.map(|_free| None),
            },
            Wait::Until(deadline) => {
                let turn = within(deadline, self.name(), async { Ok(cell.gate.lock().await) });
                turn.await.map_err(|_| self.lock.timed_out())?
            }
        };
        if let Some(guard) = enter_again(&cell)? {
            return Ok(Some(guard));
        }
        cell.given_up_since(seen)?;
        let taken = self.lock.acquire_held(wait).await.inspect_err(|error| {
            if error.kind() == ErrorKind::Unavailable && !matches!(wait, Wait::Try) {
                cell.give_up(error.clone());
            }
        });
        let Some(held) = taken? else { return Ok(None) };
        let entered = Arc::new(Entered::new(held, Arc::clone(&self.owners) as _));
        cell.set_held(&entered);
        Ok(Some(Guard::entered(entered)))
    }
}

/// Enters again, if the owner holds the lock.
fn enter_again(cell: &Cell) -> Result<Option<Guard>, Error> {
    let Some(entered) = cell.held() else { return Ok(None) };
    let guard = Guard::entered(entered);
    guard.check().map_err(|error| error.during("re-entry"))?;
    Ok(Some(guard))
}

#[async_trait]
impl ReentrantLock for ReentrantMutex {
    fn name(&self) -> &LockName {
        self.name()
    }

    async fn try_lock_as(&self, owner: &Owner) -> Result<Option<Guard>, Error> {
        self.try_lock_as(owner).await
    }

    async fn lock_as(&self, owner: &Owner) -> Result<Guard, Error> {
        self.lock_as(owner).await
    }

    async fn lock_timeout_as(&self, owner: &Owner, wait: Duration) -> Result<Guard, Error> {
        self.lock_timeout_as(owner, wait).await
    }

    fn hold_count(&self, owner: &Owner) -> usize {
        self.hold_count(owner)
    }
}

impl fmt::Debug for ReentrantMutex {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ReentrantMutex").field("lock", &self.lock).finish_non_exhaustive()
    }
}

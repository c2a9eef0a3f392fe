//! The reentrant lock.

use std::{
    collections::HashMap,
    fmt,
    sync::{Arc, Weak},
    time::Duration,
};

use async_trait::async_trait;

use super::{Mutex, Takes};
use crate::{
    Error, ErrorKind, Guard, GuardState, LockName, LockOptions, Owner, ReentrantLock, Released,
    engine::OfHandles,
    support::retry::{Wait, within},
    sync,
};

/// A lock that its owner can enter again: what [`Locks::reentrant`](crate::Locks::reentrant)
/// makes.
///
/// The handles of one name and one set of options that come from one [`Locks`](crate::Locks) know
/// each other's holds; other processes and other options meet in the store, as another owner.
#[derive(Clone)]
pub struct Reentrant {
    lock: Mutex,
    entries: Arc<Entries>,
}

/// The owners of this process, each with what it holds.
pub(crate) struct Entries {
    name: LockName,
    options: Arc<LockOptions>,
    owners: sync::Mutex<Owners>,
}

#[derive(Default)]
struct Owners {
    cells: HashMap<Owner, Arc<Cell>>,
    /// At this size cells of owners that hold nothing are looked for.
    sweep_at: usize,
}

#[derive(Default)]
struct Cell {
    /// One task of an owner at a time goes to the store; the others then find the hold.
    gate: tokio::sync::Mutex<()>,
    held: sync::Mutex<Weak<Guard>>,
    /// How often one has asked a store that was away until it gave up, and the last error.
    given_up: sync::Mutex<(u64, Option<Error>)>,
}

/// One entry of an owner. The last one to go drops the guard.
pub(crate) struct Entry {
    guard: Arc<Guard>,
    /// Keeps the table alive in which the next entry looks for this one.
    _entries: Arc<Entries>,
}

impl Entry {
    pub(crate) fn guard(&self) -> &Guard {
        &self.guard
    }

    /// Leaves: gives the guard to the last one, and to others whether the lock is still held.
    pub(crate) fn leave(self) -> Result<Guard, Released> {
        let lost = self.guard.state() == GuardState::Lost;
        Arc::into_inner(self.guard).ok_or(if lost {
            Released::AlreadyLost
        } else {
            Released::Released
        })
    }
}

impl OfHandles for Entries {
    fn key(&self) -> (&LockName, &LockOptions) {
        (&self.name, &self.options)
    }
}

impl Entries {
    fn new(name: &LockName, options: &Arc<LockOptions>) -> Self {
        Self { name: name.clone(), options: Arc::clone(options), owners: sync::Mutex::default() }
    }

    fn cell(&self, owner: &Owner) -> Arc<Cell> {
        let mut owners = self.owners.lock();
        if let Some(cell) = owners.cells.get(owner) {
            return Arc::clone(cell);
        }
        if owners.cells.len() >= owners.sweep_at {
            owners.cells.retain(|_, cell| Arc::strong_count(cell) > 1 || cell.count() > 0);
            owners.sweep_at = 64.max(2 * owners.cells.len());
        }
        let cell = Arc::<Cell>::default();
        owners.cells.insert(*owner, Arc::clone(&cell));
        cell
    }
}

impl Cell {
    fn count(&self) -> usize {
        self.held.lock().strong_count()
    }

    /// The error of one that has given up after `seen` was looked at.
    fn given_up_since(&self, seen: u64) -> Result<(), Error> {
        let given_up = self.given_up.lock();
        match &*given_up {
            (times, Some(error)) if *times != seen => Err(error.clone()),
            _ => Ok(()),
        }
    }

    /// Tells those at the gate of a store that is away.
    fn give_up(&self, error: Error) {
        let mut given_up = self.given_up.lock();
        *given_up = (given_up.0 + 1, Some(error));
    }
}

impl Reentrant {
    pub(crate) fn new(lock: Mutex) -> Self {
        let base = &lock.base;
        let make = || Entries::new(&base.name, &base.options);
        let entries = base.engine.reentrants.get(&base.name, &base.options, make);
        Self { lock, entries }
    }

    /// The name.
    pub fn name(&self) -> &LockName {
        self.lock.name()
    }

    /// See [`ReentrantLock::try_lock_as`].
    pub async fn try_lock_as(&self, owner: &Owner) -> Result<Option<Guard>, Error> {
        self.take(owner, Wait::Try).await
    }

    /// See [`ReentrantLock::lock_as`].
    pub async fn lock_as(&self, owner: &Owner) -> Result<Guard, Error> {
        self.lock_timeout_as(owner, self.lock.base.options.wait()).await
    }

    /// See [`ReentrantLock::lock_timeout_as`].
    pub async fn lock_timeout_as(&self, owner: &Owner, wait: Duration) -> Result<Guard, Error> {
        let taken = self.take(owner, Wait::for_at_most(wait)).await;
        self.lock.base.granted(taken)
    }

    /// See [`ReentrantLock::hold_count`].
    pub fn hold_count(&self, owner: &Owner) -> usize {
        self.entries.owners.lock().cells.get(owner).map_or(0, |cell| cell.count())
    }

    async fn take(&self, owner: &Owner, wait: Wait) -> Result<Option<Guard>, Error> {
        let cell = self.entries.cell(owner);
        // Entering again waits for nobody.
        if let Some(guard) = self.enter_again(&cell)? {
            return Ok(Some(guard));
        }
        let seen = cell.given_up.lock().0;
        let _turn = match wait {
            Wait::Try => match cell.gate.try_lock() {
                Ok(turn) => turn,
                // Another task of this owner is on the way, perhaps to a store that is away. A free
                // lock is that task's.
                Err(_) => return self.lock.acquire(wait).await.map(|_free| None),
            },
            Wait::Until(deadline) => {
                let turn = within(deadline, self.name(), async { Ok(cell.gate.lock().await) });
                turn.await.map_err(|_| self.lock.timed_out())?
            }
        };
        if let Some(guard) = self.enter_again(&cell)? {
            return Ok(Some(guard));
        }
        cell.given_up_since(seen)?;
        let taken = self.lock.acquire(wait).await.inspect_err(|error| {
            if error.kind() == ErrorKind::Unavailable && !matches!(wait, Wait::Try) {
                cell.give_up(error.clone());
            }
        });
        let Some(guard) = taken? else { return Ok(None) };
        let guard = Arc::new(guard);
        *cell.held.lock() = Arc::downgrade(&guard);
        Ok(Some(self.entry(guard)))
    }

    fn enter_again(&self, cell: &Cell) -> Result<Option<Guard>, Error> {
        let held = cell.held.lock().upgrade();
        let Some(guard) = held else { return Ok(None) };
        guard.check().map_err(|error| error.during("re-entry"))?;
        Ok(Some(self.entry(guard)))
    }

    fn entry(&self, guard: Arc<Guard>) -> Guard {
        Guard::entered(Entry { guard, _entries: Arc::clone(&self.entries) })
    }
}

#[async_trait]
impl ReentrantLock for Reentrant {
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

impl fmt::Debug for Reentrant {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Reentrant").field("lock", &self.lock).finish_non_exhaustive()
    }
}

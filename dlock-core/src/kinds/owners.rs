//! The owners of a reentrant lock in this process.
//!
//! `cells`, `held` and `given_up` each have a mutex, which is locked only for a moment. The `gate`
//! is locked while one task of an owner acquires the lock from the store, across awaits. `held` is
//! a weak reference: the guards own the hold, so dropping the last guard releases it.

use std::{
    collections::HashMap,
    sync::{Arc, Weak},
};

use super::shared::OfHandles;
use crate::{Error, LockName, LockOptions, Owner, guard::Entered, sync};

/// The owners of this process, each with its hold.
pub(super) struct Owners {
    name: LockName,
    cells: sync::Mutex<Cells>,
}

#[derive(Default)]
struct Cells {
    of: HashMap<Owner, Arc<Cell>>,
    /// The size at which cells of owners without a hold are removed.
    sweep_at: usize,
}

#[derive(Default)]
pub(super) struct Cell {
    /// One task of an owner at a time acquires from the store; the others then find the hold.
    pub(super) gate: tokio::sync::Mutex<()>,
    held: sync::Mutex<Weak<Entered>>,
    /// The number of tasks that gave up after an outage of the store, and the last error.
    given_up: sync::Mutex<(u64, Option<Error>)>,
}

impl OfHandles for Owners {
    fn key(&self) -> (&LockName, Option<&LockOptions>) {
        (&self.name, None)
    }
}

impl Owners {
    pub(super) fn new(name: &LockName) -> Self {
        Self { name: name.clone(), cells: sync::Mutex::default() }
    }

    /// Returns the number of live guards of this owner.
    pub(super) fn count(&self, owner: &Owner) -> usize {
        self.cells.lock().of.get(owner).map_or(0, |cell| cell.count())
    }

    /// Returns the cell of this owner.
    pub(super) fn cell(&self, owner: &Owner) -> Arc<Cell> {
        let mut cells = self.cells.lock();
        if let Some(cell) = cells.of.get(owner) {
            return Arc::clone(cell);
        }
        if cells.of.len() >= cells.sweep_at {
            cells.of.retain(|_, cell| Arc::strong_count(cell) > 1 || cell.count() > 0);
            cells.sweep_at = 64.max(2 * cells.of.len());
        }
        let cell = Arc::<Cell>::default();
        cells.of.insert(*owner, Arc::clone(&cell));
        cell
    }
}

impl Cell {
    /// Returns the owner's hold, if it holds the lock.
    pub(super) fn held(&self) -> Option<Arc<Entered>> {
        self.held.lock().upgrade()
    }

    pub(super) fn set_held(&self, held: &Arc<Entered>) {
        *self.held.lock() = Arc::downgrade(held);
    }

    /// Returns how many times a task has given up.
    pub(super) fn times_given_up(&self) -> u64 {
        self.given_up.lock().0
    }

    fn count(&self) -> usize {
        self.held.lock().strong_count()
    }

    /// Returns the last error if a task has given up since the count was `seen`.
    pub(super) fn given_up_since(&self, seen: u64) -> Result<(), Error> {
        let given_up = self.given_up.lock();
        match &*given_up {
            (times, Some(error)) if *times != seen => Err(error.clone()),
            _ => Ok(()),
        }
    }

    /// Records that a task gave up, so that the tasks at the gate fail with its error.
    pub(super) fn give_up(&self, error: Error) {
        let mut given_up = self.given_up.lock();
        *given_up = (given_up.0 + 1, Some(error));
    }
}

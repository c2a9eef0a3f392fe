//! A table of the values that handles and guards with one key share within a process: the name, for
//! some values with the options.

use std::{
    hash::BuildHasher,
    sync::{Arc, Weak},
};

use hashbrown::{DefaultHashBuilder, HashTable};

use crate::{LockName, LockOptions, hold::local_queue::LocalQueue, sync::Mutex};

/// The table. An entry lives as long as one of the handles and guards that share it.
pub(crate) struct Shared<T> {
    hasher: DefaultHashBuilder,
    table: Mutex<Table<T>>,
}

/// A value that handles share, and that knows its lock.
pub(crate) trait OfHandles {
    /// The name, and the options if handles with other options do not share the value.
    fn key(&self) -> (&LockName, Option<&LockOptions>);
}

struct Table<T> {
    entries: HashTable<Weak<T>>,
    /// The size at which dead entries are removed.
    sweep_at: usize,
}

impl<T> Default for Shared<T> {
    fn default() -> Self {
        let table = Table { entries: HashTable::new(), sweep_at: 64 };
        Self { hasher: DefaultHashBuilder::default(), table: Mutex::new(table) }
    }
}

impl<T: OfHandles> Shared<T> {
    pub(crate) fn get(
        &self,
        key: (&LockName, Option<&LockOptions>),
        make: impl FnOnce() -> T,
    ) -> Arc<T> {
        let hash = self.hasher.hash_one(key);
        let mut table = self.table.lock();
        let mut found = None;
        table.entries.find(hash, |weak| {
            found = weak.upgrade().filter(|entry| entry.key() == key);
            found.is_some()
        });
        if let Some(found) = found {
            return found;
        }
        if table.entries.len() >= table.sweep_at {
            table.entries.retain(|weak| weak.strong_count() > 0);
            table.sweep_at = 64.max(2 * table.entries.len());
        }
        let made = Arc::new(make());
        table.entries.insert_unique(hash, Arc::downgrade(&made), |weak| {
            // A dead entry may land in any bucket; it is swept later.
            weak.upgrade().map_or(0, |entry| self.hasher.hash_one(entry.key()))
        });
        made
    }
}

impl<H> OfHandles for LocalQueue<H> {
    fn key(&self) -> (&LockName, Option<&LockOptions>) {
        (self.name(), Some(self.options()))
    }
}

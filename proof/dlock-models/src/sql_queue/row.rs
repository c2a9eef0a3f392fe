//! The row, stored as a log that clients replay.

use std::{cell::RefCell, collections::HashMap, rc::Rc};

use dlock_core::machine::text::{Replayed, replay};

#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub(super) struct Row {
    pub(super) base: u64,
    pub(super) snap: String,
    pub(super) log: String,
}

/// The results of replaying rows, by snapshot and log.
type Read = HashMap<(String, String), Option<Rc<Replayed>>>;

thread_local! {
    /// A cache: many states have the same row, and replaying it takes most of the time.
    static READ: RefCell<Read> = RefCell::default();
}

impl Row {
    /// Returns `None` for an unreadable row.
    pub(super) fn read(&self) -> Option<Rc<Replayed>> {
        let row = (self.snap.clone(), self.log.clone());
        READ.with_borrow_mut(|read| {
            let (snap, log) = (&self.snap, &self.log);
            read.entry(row).or_insert_with(|| replay(snap, log).ok().map(Rc::new)).clone()
        })
    }

    pub(super) fn replay(&self) -> Rc<Replayed> {
        self.read().unwrap_or_else(|| Self::default().read().expect("an empty row can be read"))
    }
}

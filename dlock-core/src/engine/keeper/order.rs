//! The holds in the order in which they are due.
//!
//! A list for each tick, in which they stand in no order, instead of an entry of a map for each
//! hold: 8 bytes for each, and moving one, which every renewal does twice, takes no search.

use std::{
    collections::{BTreeMap, btree_map::Entry},
    sync::Arc,
};

use crate::engine::hold::Hold;

/// How long a tick is: 2^26 ns, or 67 ms.
const TICK: u32 = 26;

/// The old ones of the keeper's holds.
#[derive(Default)]
pub(super) struct Order(BTreeMap<u64, List>);

/// Those of one tick, at least one.
#[derive(Default)]
struct List {
    holds: Vec<Arc<Hold>>,
    /// When the first is due; `None` when that was taken out.
    first: Option<u64>,
}

impl Order {
    pub(super) fn insert(&mut self, hold: Arc<Hold>) {
        let due = hold.due();
        let list = self.0.entry(due >> TICK).or_default();
        if list.holds.is_empty() || list.first.is_some_and(|first| due < first) {
            list.first = Some(due);
        }
        hold.place.set(list.holds.len(), true);
        list.holds.push(hold);
    }

    /// Takes a hold out, if it is here.
    pub(super) fn remove(&mut self, hold: &Hold) -> Option<Arc<Hold>> {
        let (at, true) = hold.place.get()? else { return None };
        let Entry::Occupied(mut entry) = self.0.entry(hold.due() >> TICK) else { return None };
        let list = entry.get_mut();
        let last = list.holds.pop()?;
        let taken = match list.holds.get_mut(at) {
            Some(place) => {
                last.place.set(at, true);
                std::mem::replace(place, last)
            }
            None => last,
        };
        taken.place.clear();
        if list.first == Some(hold.due()) {
            list.first = None;
        }
        if list.holds.is_empty() {
            entry.remove();
        }
        Some(taken)
    }

    /// When the first of them is due.
    pub(super) fn first(&mut self) -> Option<u64> {
        let mut first = self.0.first_entry()?;
        let list = first.get_mut();
        if list.first.is_none() {
            list.first = list.holds.iter().map(|hold| hold.due()).min();
        }
        list.first
    }

    /// Those that are due by then.
    pub(super) fn until(&self, then: u64) -> impl Iterator<Item = &Arc<Hold>> {
        let lists = self.0.range(..=then >> TICK).flat_map(|(_, list)| &list.holds);
        lists.filter(move |hold| hold.due() <= then)
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = &Arc<Hold>> {
        self.0.values().flat_map(|list| &list.holds)
    }
}

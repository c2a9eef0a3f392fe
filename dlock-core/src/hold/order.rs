//! The holds in the order in which they are due.
//!
//! Each tick has an unordered list; the holds have no map entries. So a hold takes only 8 bytes,
//! and a move needs no search. Each renewal makes two moves. All of this, with the slots of the
//! holds, is used only under the lock of the books.
//!
//! Invariant: a hold in a list has its index there in `slot.at`, and its list is that of
//! `slot.due`.

use std::{
    collections::{BTreeMap, btree_map::Entry},
    sync::Arc,
};

use super::Hold;
use crate::Instant;

/// The binary logarithm of a tick in nanoseconds: 2^26 ns, or 67 ms.
const TICK: u32 = 26;

#[derive(Default)]
pub(super) struct Order {
    lists: BTreeMap<u64, List>,
    /// The memory of a small list that was removed, for the next list. An uncontended lock is often
    /// alone in its list; without this it would allocate with each renewal.
    spare: Vec<Arc<Hold>>,
}

/// The largest capacity of a list whose memory is kept.
const SMALL: usize = 16;

/// The holds of one tick, at least one.
struct List {
    holds: Vec<Arc<Hold>>,
    /// The time at which the first hold is due. `None` after that hold was removed: then `first`
    /// computes it again.
    first: Option<Instant>,
}

const fn tick(due: Instant) -> u64 {
    due.as_nanos() >> TICK
}

impl Order {
    pub(super) fn insert(&mut self, hold: Arc<Hold>, due: Instant) {
        hold.slot.set_due(due);
        let spare = &mut self.spare;
        let list = self
            .lists
            .entry(tick(due))
            .or_insert_with(|| List { holds: std::mem::take(spare), first: None });
        if list.holds.is_empty() || list.first.is_some_and(|first| due < first) {
            list.first = Some(due);
        }
        hold.slot.set_at(Some(list.holds.len()));
        list.holds.push(hold);
    }

    /// Removes a hold, if it is in a list.
    pub(super) fn remove(&mut self, hold: &Hold) -> Option<Arc<Hold>> {
        let (at, due) = (hold.slot.at()?, hold.slot.due());
        let Entry::Occupied(mut entry) = self.lists.entry(tick(due)) else { return None };
        let list = entry.get_mut();
        // The last hold fills the gap, so that no other index changes.
        let last = list.holds.pop()?;
        let taken = match list.holds.get_mut(at) {
            Some(place) => {
                last.slot.set_at(Some(at));
                std::mem::replace(place, last)
            }
            None => last,
        };
        taken.slot.set_at(None);
        if list.first == Some(due) {
            list.first = None;
        }
        if list.holds.is_empty() {
            let holds = entry.remove().holds;
            if holds.capacity() <= SMALL {
                self.spare = holds;
            }
        }
        Some(taken)
    }

    /// Returns the time at which the first hold is due.
    pub(super) fn first(&mut self) -> Option<Instant> {
        let mut first = self.lists.first_entry()?;
        let list = first.get_mut();
        if list.first.is_none() {
            list.first = list.holds.iter().map(|hold| hold.slot.due()).min();
        }
        list.first
    }

    /// Returns the holds that are due by then.
    pub(super) fn until(&self, then: Instant) -> impl Iterator<Item = &Arc<Hold>> {
        let lists = self.lists.range(..=tick(then)).flat_map(|(_, list)| &list.holds);
        lists.filter(move |hold| hold.slot.due() <= then)
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = &Arc<Hold>> {
        self.lists.values().flat_map(|list| &list.holds)
    }
}

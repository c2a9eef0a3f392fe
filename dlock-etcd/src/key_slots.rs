//! The slots of a session's claims: see [`key`](crate::key).
//!
//! The claims of one name that exist at the same time have different slots. A slot is free again
//! when the last user of its claim is gone, so after its key is deleted: the task that deletes a
//! key has the claim until the outcome is certain. A slot whose key may be deleted later is
//! retired: it is never used again.

use std::collections::{BTreeSet, HashMap};

use parking_lot::Mutex;

/// The numbers in use, by the prefix of the lock's keys.
#[derive(Debug, Default)]
pub(crate) struct KeySlots(Mutex<HashMap<String, BTreeSet<u32>>>);

impl KeySlots {
    /// Takes the smallest free number of this lock.
    pub(crate) fn take(&self, prefix: &str) -> u32 {
        let mut all = self.0.lock();
        let used = all.entry(prefix.to_owned()).or_default();
        let free = (0..).zip(&*used).find(|(number, used)| number != *used);
        let number = free.map_or(used.last().map_or(0, |last| last + 1), |(number, _)| number);
        used.insert(number);
        number
    }

    /// Frees a number.
    pub(crate) fn free(&self, prefix: &str, number: u32) {
        let mut all = self.0.lock();
        if let Some(used) = all.get_mut(prefix) {
            used.remove(&number);
            if used.is_empty() {
                all.remove(prefix);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_smallest_free_number_is_taken() {
        let slots = KeySlots::default();
        assert_eq!([(); 3].map(|()| slots.take("a/")), [0, 1, 2]);
        assert_eq!(slots.take("b/"), 0);
        slots.free("a/", 1);
        assert_eq!([(); 2].map(|()| slots.take("a/")), [1, 3]);
        for number in 0..4 {
            slots.free("a/", number);
        }
        slots.free("b/", 0);
        assert!(slots.0.lock().is_empty());
    }
}

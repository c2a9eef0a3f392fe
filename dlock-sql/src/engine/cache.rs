//! What the worker remembers of the rows that it has seen: their folded form, and who is held.
//!
//! It is a memory of hints. A fold is taken by the database only where it fits, and a lock that
//! is remembered as held is looked at before a try is refused.

use std::collections::HashMap;

use dlock_core::{
    LockName,
    machine::text::{Replayed, snapshot},
};

use super::row::{Fold, Row};

/// A log is folded when it is longer than this and than half of the snapshot: so replaying stays
/// short, and a long queue is not written out for each operation. (A row of more than a quarter of
/// SQLite's page takes a second page.)
const FOLD_ABOVE: usize = 128;

/// However long the snapshot is. (PostgreSQL writes values of a row of more than 2 KiB elsewhere:
/// the snapshot may stand there, the log should not.)
const FOLD_ANYWAY: usize = 1024;

/// Memory of a bounded number of names: when the young half is full, the old half is forgotten.
#[derive(Debug)]
pub(crate) struct Cache {
    young: HashMap<LockName, Known>,
    old: HashMap<LockName, Known>,
    half: usize,
}

#[derive(Debug)]
struct Known {
    fold: Option<Fold>,
    held: bool,
}

impl Cache {
    /// Remembers up to `names` names.
    pub(crate) fn new(names: usize) -> Self {
        Self { young: HashMap::new(), old: HashMap::new(), half: (names / 2).max(1) }
    }

    /// Whether somebody held the lock when it was last seen.
    pub(crate) fn is_held(&self, name: &LockName) -> bool {
        self.known(name).is_some_and(|known| known.held)
    }

    /// The folded row, for the next statement about it.
    pub(crate) fn fold(&self, name: &LockName) -> Option<Fold> {
        self.known(name)?.fold.clone()
    }

    /// Learns from a row that a statement returned.
    ///
    /// `snap` is how long its snapshot is, and `written` how much the statement appended.
    pub(crate) fn learn(
        &mut self,
        name: &LockName,
        row: &Row,
        replayed: &Replayed,
        snap: usize,
        written: usize,
    ) {
        let fold = folds(row.log.len(), snap, written)
            .then(|| Fold { mark: row.mark(), snap: snapshot(&replayed.machine).into() });
        let held = !replayed.machine.is_free(replayed.now);
        if fold.is_none() && !held {
            self.forget(name);
            return;
        }
        if self.young.len() >= self.half && !self.young.contains_key(name) {
            self.old = std::mem::take(&mut self.young);
        }
        self.young.insert(name.clone(), Known { fold, held });
    }

    /// Forgets a name.
    pub(crate) fn forget(&mut self, name: &LockName) {
        self.young.remove(name);
        self.old.remove(name);
    }

    fn known(&self, name: &LockName) -> Option<&Known> {
        self.young.get(name).or_else(|| self.old.get(name))
    }
}

/// Whether a log is due to be folded, by whoever appended so much to it last.
///
/// A long snapshot goes to the database with the next operation of each who folds, and only the
/// first of them is taken. So it is on him who made the log too long; should he have gone, on all.
fn folds(log: usize, snap: usize, written: usize) -> bool {
    let due = FOLD_ABOVE.max(snap / 2).min(FOLD_ANYWAY);
    let made_it_so = log.saturating_sub(written) <= due;
    log > due && (made_it_so || snap < FOLD_ANYWAY || log > 4 * due)
}

#[cfg(test)]
mod tests {
    use dlock_core::machine::text::replay;

    use super::*;

    fn name(n: usize) -> LockName {
        LockName::new(&format!("n{n}")).unwrap()
    }

    /// A row with so many acquire and release pairs, and then perhaps a holder.
    fn row(pairs: usize, held: bool) -> (Row, Replayed) {
        let mut log = String::new();
        for n in 0..pairs {
            log += &format!("A {n:032x} 9 9 1000000 1 0 Q {n};R {n:032x} 0 {n};");
        }
        if held {
            log += &format!("A {:032x} 9 9 1000000 1 0 Q {pairs};", u128::MAX);
        }
        let row = Row { base: 3, snap: String::new(), log };
        let replayed = replay(&row.snap, &row.log).unwrap();
        (row, replayed)
    }

    #[test]
    fn a_quiet_lock_is_not_remembered() {
        let mut cache = Cache::new(8);
        let (row, replayed) = row(1, false);
        cache.learn(&name(1), &row, &replayed, 0, 50);
        assert!(cache.fold(&name(1)).is_none() && !cache.is_held(&name(1)));
        assert!(cache.young.is_empty());
    }

    #[test]
    fn a_long_log_is_folded_to_the_same_state() {
        let mut cache = Cache::new(8);
        let (row, replayed) = row(10, true);
        cache.learn(&name(1), &row, &replayed, 0, 50);
        let fold = cache.fold(&name(1)).unwrap();
        assert_eq!(fold.mark, row.mark());
        assert_eq!(replay(&fold.snap, "").unwrap().machine, replayed.machine);
        assert!(cache.is_held(&name(1)));
    }

    #[test]
    fn it_stays_bounded_and_keeps_the_latest() {
        let mut cache = Cache::new(8);
        let (row, replayed) = row(0, true);
        for n in 0..1000 {
            cache.learn(&name(n), &row, &replayed, 0, 50);
        }
        assert!(cache.young.len() + cache.old.len() <= 8);
        assert!(cache.is_held(&name(999)) && !cache.is_held(&name(0)));
    }

    #[test]
    fn a_long_snapshot_is_replaced_by_one_client() {
        let snap = 40_000;
        assert!(!folds(FOLD_ANYWAY, snap, 90));
        assert!(folds(FOLD_ANYWAY + 1, snap, 90));
        assert!(!folds(FOLD_ANYWAY + 91, snap, 90));
        assert!(folds(4 * FOLD_ANYWAY + 1, snap, 90));
        assert!(folds(FOLD_ABOVE + 91, 100, 90));
    }
}

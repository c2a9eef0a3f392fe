//! What the worker remembers of the rows that it has seen: their folded form, and who is held.
//!
//! It is a memory of hints. A fold is taken by the database only where it fits, and a lock that
//! is remembered as held is looked at before a try is refused.

use std::time::Duration;

use dlock_core::{
    Format, Instant, LockName,
    machine::{
        Op,
        text::{Replayed, snapshot_in},
    },
};
use hashbrown::HashMap;

use super::row::{Fold, Row};

/// A log is folded when it is longer than this and than half of the snapshot: so replaying stays
/// short, and a long queue is not written out for each operation. (A row of more than a quarter of
/// SQLite's page takes a second page.)
const FOLD_ABOVE: usize = 128;

/// However long the snapshot is. (PostgreSQL writes values of a row of more than 2 KiB elsewhere:
/// the snapshot may stand there, the log should not.)
const FOLD_ANYWAY: usize = 1024;

/// How many names are remembered.
const NAMES: usize = 8192;

/// How many more of those that are only renewed, if their log is due. Who holds many locks comes
/// back to each after all the others: were it forgotten by then, the log would grow as long as the
/// lock is held. Each takes some 350 bytes, so not all of them have their turn at once.
const RENEWED: usize = 16_384;

/// Who saw a lock held so long ago takes it for held: holders give a lock that many want back soon.
const FRESH: Duration = Duration::from_secs(1);

/// Memory of names that were used of late, and of what else is to be folded.
#[derive(Debug)]
pub(crate) struct Cache {
    used: Halves<Known>,
    /// Of locks that `used` has forgotten.
    renewed: Halves<Fold>,
    /// In which format rows are folded.
    format: Format,
}

#[derive(Debug)]
struct Known {
    fold: Option<Fold>,
    /// How long its state is as a text, or longer.
    length: usize,
    /// When it was seen to be held.
    held: Option<Instant>,
}

/// A row as a statement returned it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Seen<'a> {
    pub(crate) row: &'a Row,
    pub(crate) replayed: &'a Replayed,
    /// How long its snapshot is.
    pub(crate) snap: usize,
    /// When the statement was sent.
    pub(crate) at: Instant,
}

impl Cache {
    pub(crate) fn new(format: Format) -> Self {
        Self { used: Halves::new(NAMES), renewed: Halves::new(RENEWED), format }
    }

    /// Whether somebody held the lock when it was last seen.
    pub(crate) fn is_held(&self, name: &LockName) -> bool {
        self.used.get(name).is_some_and(|known| known.held.is_some())
    }

    /// Whether somebody held the lock a moment ago.
    pub(crate) fn was_just_held(&self, name: &LockName, now: Instant) -> bool {
        let held = self.used.get(name).and_then(|known| known.held);
        held.is_some_and(|seen| now.since(seen) < FRESH)
    }

    /// How long the state of a lock is as a text, or longer, as far as it is remembered.
    pub(crate) fn length(&self, name: &LockName) -> usize {
        self.used.get(name).map_or(0, |known| known.length)
    }

    /// The folded row, for the next statement about it.
    pub(crate) fn fold(&self, name: &LockName) -> Option<Fold> {
        match self.used.get(name) {
            Some(known) => known.fold.clone(),
            None => self.renewed.get(name).cloned(),
        }
    }

    /// Learns from a row that a statement with these operations returned.
    ///
    /// `written` is how much the statement appended.
    pub(crate) fn learn<'a>(
        &mut self,
        name: &LockName,
        ops: impl IntoIterator<Item = &'a Op>,
        written: usize,
        seen: Seen<'_>,
    ) {
        let Seen { row, replayed, snap, at } = seen;
        let fold = folds(row.log.len(), snap, written).then(|| Fold {
            mark: row.mark(),
            time: replayed.now,
            snap: snapshot_in(self.format, &replayed.machine).into(),
        });
        let held = !replayed.machine.is_free(replayed.now);
        let renews = ops.into_iter().all(|op| matches!(op, Op::Renew { .. }));
        if renews && held && self.used.get(name).is_none() {
            return match fold {
                Some(fold) => self.renewed.insert_if_room(name, fold),
                None => self.renewed.remove(name),
            };
        }
        self.renewed.remove(name);
        match fold.is_some() || held {
            true => {
                let length = fold.as_ref().map_or(snap + row.log.len(), |fold| fold.snap.len());
                self.used.insert(name, Known { fold, length, held: held.then_some(at) });
            }
            false => self.used.remove(name),
        }
    }

    /// Forgets a name.
    pub(crate) fn forget(&mut self, name: &LockName) {
        self.used.remove(name);
        self.renewed.remove(name);
    }
}

/// Memory of a bounded number of names: when the young half is full, the old half is forgotten.
#[derive(Debug)]
struct Halves<T> {
    young: HashMap<LockName, T>,
    old: HashMap<LockName, T>,
    half: usize,
}

impl<T> Halves<T> {
    fn new(names: usize) -> Self {
        Self { young: HashMap::new(), old: HashMap::new(), half: names / 2 }
    }

    fn get(&self, name: &LockName) -> Option<&T> {
        self.young.get(name).or_else(|| self.old.get(name))
    }

    fn insert(&mut self, name: &LockName, known: T) {
        if self.young.len() >= self.half && !self.young.contains_key(name) {
            self.old = std::mem::take(&mut self.young);
        }
        self.young.insert(name.clone(), known);
    }

    /// As `insert`, but those that have not been asked for stay, unless there are few.
    fn insert_if_room(&mut self, name: &LockName, known: T) {
        let full = self.young.len() >= self.half && !self.young.contains_key(name);
        if !full || self.old.len() <= self.half / 2 {
            self.insert(name, known);
        }
    }

    fn remove(&mut self, name: &LockName) {
        self.young.remove(name);
        self.old.remove(name);
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
    use dlock_core::{ClaimId, Mode, machine::text::replay};

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

    fn seen<'a>(row: &'a Row, replayed: &'a Replayed) -> Seen<'a> {
        Seen { row, replayed, snap: 0, at: Instant::from_nanos(1) }
    }

    fn renewal() -> Op {
        Op::Renew { claim: ClaimId::from_bits(u128::MAX), mode: Mode::Exclusive, lease: 9 }
    }

    fn release() -> Op {
        Op::Release { claim: ClaimId::from_bits(u128::MAX), used: 0, bar: 0 }
    }

    #[test]
    fn a_quiet_lock_is_not_remembered() {
        let mut cache = Cache::new(Format::OLDEST);
        let (row, replayed) = row(1, false);
        cache.learn(&name(1), [&release()], 50, seen(&row, &replayed));
        assert!(cache.fold(&name(1)).is_none() && !cache.is_held(&name(1)));
        assert!(cache.used.young.is_empty() && cache.renewed.young.is_empty());
    }

    #[test]
    fn a_long_log_is_folded_to_the_same_state() {
        let mut cache = Cache::new(Format::OLDEST);
        let (row, replayed) = row(10, true);
        cache.learn(&name(1), [&release()], 50, seen(&row, &replayed));
        let fold = cache.fold(&name(1)).unwrap();
        assert_eq!((fold.mark, fold.time), (row.mark(), replayed.now));
        assert_eq!(replay(&fold.snap, "").unwrap().machine, replayed.machine);
        assert_eq!(cache.length(&name(1)), fold.snap.len());
        assert!(cache.is_held(&name(1)));
    }

    #[test]
    fn what_was_held_long_ago_is_not_taken_for_held() {
        let mut cache = Cache::new(Format::OLDEST);
        let (held, of_held) = row(0, true);
        let (free, of_free) = row(1, false);
        let after = |time| Instant::from_nanos(1).saturating_add(time);
        cache.learn(&name(1), [&release()], 50, seen(&held, &of_held));
        assert!(cache.was_just_held(&name(1), after(FRESH / 2)));
        assert!(!cache.was_just_held(&name(1), after(FRESH)));
        cache.learn(&name(1), [&release()], 50, seen(&free, &of_free));
        assert!(!cache.was_just_held(&name(1), after(FRESH / 2)));
    }

    #[test]
    fn it_stays_bounded_and_keeps_the_latest() {
        let mut cache =
            Cache { used: Halves::new(8), renewed: Halves::new(8), format: Format::OLDEST };
        let (row, replayed) = row(10, true);
        for op in [release(), renewal()] {
            for n in 0..1000 {
                cache.learn(&name(n), [&op], 50, seen(&row, &replayed));
            }
        }
        assert!(cache.used.young.len() + cache.used.old.len() <= 8);
        assert!(cache.renewed.young.len() + cache.renewed.old.len() <= 8);
        assert!(cache.is_held(&name(999)) && !cache.is_held(&name(0)));
    }

    #[test]
    fn locks_that_are_renewed_in_turns_are_folded_however_many() {
        let mut cache =
            Cache { used: Halves::new(8), renewed: Halves::new(64), format: Format::OLDEST };
        let (fresh, due) = (row(0, true), row(10, true));
        let mut logs = [0; 400];
        for _ in 0..100 {
            for (n, log) in logs.iter_mut().enumerate() {
                let name = name(n);
                *log = if cache.fold(&name).is_some() { 1 } else { *log + 1 };
                let (row, replayed) = if *log < 3 { &fresh } else { &due };
                cache.learn(&name, [&renewal()], 50, seen(row, replayed));
            }
        }
        // A seventh of them has room.
        assert!(logs.iter().all(|log| *log < 16), "{logs:?}");
    }

    #[test]
    fn what_was_folded_or_given_back_is_forgotten() {
        let mut cache = Cache::new(Format::OLDEST);
        let (long, replayed) = row(10, true);
        for n in 0..4 {
            cache.learn(&name(n), [&renewal()], 50, seen(&long, &replayed));
            assert!(cache.fold(&name(n)).is_some());
        }
        let (short, replayed) = row(0, true);
        cache.learn(&name(1), [&renewal()], 50, seen(&short, &replayed));
        let (free, replayed) = row(1, false);
        cache.learn(&name(2), [&release()], 50, seen(&free, &replayed));
        cache.learn(&name(3), [&renewal()], 50, seen(&free, &replayed));
        let left = (0..4).filter(|n| cache.fold(&name(*n)).is_some());
        assert_eq!(left.collect::<Vec<_>>(), [0]);
        assert_eq!(cache.renewed.young.len(), 1);
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

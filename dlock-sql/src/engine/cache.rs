//! A worker's cache of the rows that it has seen: their folded form, and whether the lock was held.
//!
//! All entries are hints, and may be out of date. The database takes a fold only if the row still
//! has the same base and log. A lock that is remembered as held is read again before a try is
//! refused. So the cache needs no invalidation when other clients write. One worker owns it,
//! without a lock.

use std::time::Duration;

use dlock_core::{
    Instant, LockName,
    machine::{
        Op,
        text::{Replayed, snapshot},
    },
};
use hashbrown::HashMap;

use super::row::{Fold, Row};

/// The worker folds a log if it is longer than this and than half of the snapshot. So a replay
/// stays short, and not every operation writes out a long queue. (A row of more than a quarter of
/// SQLite's page takes a second page.)
const FOLD_ABOVE: usize = 128;

/// The length above which a log is folded, regardless of the snapshot. (PostgreSQL stores values of
/// a row of more than 2 KiB elsewhere: this is fine for the snapshot, but not for the log.)
const FOLD_ANYWAY: usize = 1024;

/// The number of names that are remembered.
const NAMES: usize = 8192;

/// The number of further names that are only renewed and whose log is due. A client with many locks
/// renews each of them only after all others. If the name were forgotten by then, the log would
/// grow for as long as the lock is held. Each entry takes about 350 bytes, so not all names have
/// one at the same time.
const RENEWED: usize = 16_384;

/// A lock that was seen held this recently counts as held. The time is short, since the holder of a
/// contended lock releases it soon.
const FRESH: Duration = Duration::from_secs(1);

/// The names that were used recently, and further names that are to be folded.
#[derive(Debug)]
pub(crate) struct Cache {
    used: Halves<CachedName>,
    /// The folds of locks that `used` has forgotten.
    renewed: Halves<Fold>,
}

#[derive(Debug)]
struct CachedName {
    fold: Option<Fold>,
    /// An upper bound of the length of its state as text.
    length: usize,
    /// The time when it was seen held.
    held: Option<Instant>,
}

/// A row as a statement returned it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct SeenRow<'a> {
    pub(crate) row: &'a Row,
    pub(crate) replayed: &'a Replayed,
    /// The length of its snapshot.
    pub(crate) snap: usize,
    /// When the statement was sent.
    pub(crate) at: Instant,
}

impl Cache {
    pub(crate) fn new() -> Self {
        Self { used: Halves::new(NAMES), renewed: Halves::new(RENEWED) }
    }

    /// Returns whether the lock was held when it was last seen.
    pub(crate) fn is_held(&self, name: &LockName) -> bool {
        self.used.get(name).is_some_and(|known| known.held.is_some())
    }

    /// Returns whether the lock was held a moment ago.
    pub(crate) fn was_just_held(&self, name: &LockName, now: Instant) -> bool {
        let held = self.used.get(name).and_then(|known| known.held);
        held.is_some_and(|seen| now.since(seen) < FRESH)
    }

    /// Returns an upper bound of the length of a lock's state as text, if it is remembered.
    pub(crate) fn length(&self, name: &LockName) -> usize {
        self.used.get(name).map_or(0, |known| known.length)
    }

    /// Returns the folded row, for the next statement about it.
    pub(crate) fn fold(&self, name: &LockName) -> Option<Fold> {
        match self.used.get(name) {
            Some(known) => known.fold.clone(),
            None => self.renewed.get(name).cloned(),
        }
    }

    /// Learns from a row that a statement with these operations returned.
    ///
    /// `written` is the length that the statement appended.
    pub(crate) fn learn<'a>(
        &mut self,
        name: &LockName,
        ops: impl IntoIterator<Item = &'a Op>,
        written: usize,
        seen: SeenRow<'_>,
    ) {
        let SeenRow { row, replayed, snap, at } = seen;
        let fold = folds(row.log.len(), snap, written).then(|| Fold {
            mark: row.mark(),
            time: replayed.now,
            snap: snapshot(&replayed.machine).into(),
        });
        // Free at the time of the last operation. If a lease has expired since, the next read
        // notices.
        let held = !replayed.machine.is_free(replayed.now);
        let renews = ops.into_iter().all(|op| matches!(op, Op::Renew { .. }));
        // A name that is only renewed does not push out names in use: it goes into the second part.
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
                self.used.insert(name, CachedName { fold, length, held: held.then_some(at) });
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

/// A map with a bounded number of names. When the young half is full, it becomes the old half, and
/// the old half before it is dropped. That is cheaper than an order of use for each name.
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

    /// Like `insert`, but a full map keeps its entries, unless the old half has become small.
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

/// Returns whether this client has to fold a log, to which it has just appended `written` bytes.
///
/// A short snapshot is cheap, so every client folds it. A long one goes to the database with the
/// next operation of each client that folds, and the database takes only the first. So only the
/// client that made the log too long folds it. If that client has ended, the log grows to four
/// times the limit, and then every client folds.
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

    /// Returns a row with this number of acquire and release pairs, and then perhaps a holder.
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

    fn seen<'a>(row: &'a Row, replayed: &'a Replayed) -> SeenRow<'a> {
        SeenRow { row, replayed, snap: 0, at: Instant::from_nanos(1) }
    }

    fn renewal() -> Op {
        Op::Renew {
            claim: ClaimId::from_bits(u128::MAX),
            mode: Mode::Exclusive,
            lease: 9,
            is_last: false,
        }
    }

    fn release() -> Op {
        Op::Release { claim: ClaimId::from_bits(u128::MAX), used: 0, bar: 0 }
    }

    #[test]
    fn an_uncontended_lock_is_not_remembered() {
        let mut cache = Cache::new();
        let (row, replayed) = row(1, false);
        cache.learn(&name(1), [&release()], 50, seen(&row, &replayed));
        assert!(cache.fold(&name(1)).is_none() && !cache.is_held(&name(1)));
        assert!(cache.used.young.is_empty() && cache.renewed.young.is_empty());
    }

    #[test]
    fn a_long_log_is_folded_to_the_same_state() {
        let mut cache = Cache::new();
        let (row, replayed) = row(10, true);
        cache.learn(&name(1), [&release()], 50, seen(&row, &replayed));
        let fold = cache.fold(&name(1)).unwrap();
        assert_eq!((fold.mark, fold.time), (row.mark(), replayed.now));
        assert_eq!(replay(&fold.snap, "").unwrap().machine, replayed.machine);
        assert_eq!(cache.length(&name(1)), fold.snap.len());
        assert!(cache.is_held(&name(1)));
    }

    #[test]
    fn a_lock_held_long_ago_is_not_assumed_held() {
        let mut cache = Cache::new();
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
    fn the_cache_stays_bounded_and_keeps_the_latest() {
        let mut cache = Cache { used: Halves::new(8), renewed: Halves::new(8) };
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
    fn locks_renewed_in_turns_are_folded_whatever_their_number() {
        let mut cache = Cache { used: Halves::new(8), renewed: Halves::new(64) };
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
        // There is room for a seventh of them.
        assert!(logs.iter().all(|log| *log < 16), "{logs:?}");
    }

    #[test]
    fn a_folded_or_released_row_is_forgotten() {
        let mut cache = Cache::new();
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

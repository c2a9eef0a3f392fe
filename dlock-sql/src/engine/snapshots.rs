//! The long snapshots that were read last. A long queue makes a long snapshot, with few operations
//! behind it. So the database sends it once, and the client parses it once, however many operations
//! follow.
//!
//! The workers and the reader share the map, under its mutex. An entry can't be wrong, only
//! useless: it is used only for a row with the same base, and no two snapshots of a row have the
//! same base.

use std::sync::Arc;

use dlock_core::{
    Error, LockName,
    machine::text::{Replayed, resume, snapshot_of},
};
use hashbrown::HashMap;
use parking_lot::Mutex;

use super::row::{KnownSnapshot, Row, Wanted};

/// The shortest length that is kept: shorter snapshots are cheap to read again. (This is the length
/// with two waiters.)
const LONG: usize = 256;

/// The largest number of snapshots that are kept.
const MOST: usize = 64;

#[derive(Debug, Default)]
pub(crate) struct Snapshots {
    long: Mutex<HashMap<LockName, Arc<KnownSnapshot>>>,
}

impl Snapshots {
    /// Returns the snapshot of a name, if it is kept.
    pub(crate) fn known(&self, name: &LockName) -> Option<Arc<KnownSnapshot>> {
        self.long.lock().get(name).cloned()
    }

    /// Returns a name to read, with its known snapshot.
    pub(crate) fn wanted(&self, name: &LockName) -> Wanted {
        Wanted { name: name.clone(), known: self.known(name) }
    }

    /// Returns the state of a row, and the length of its snapshot. `known` is the snapshot that was
    /// known when the row was requested: the map may have changed since.
    pub(crate) fn replay(
        &self,
        name: &LockName,
        row: &Row,
        known: Option<&KnownSnapshot>,
    ) -> Result<(Replayed, usize), Error> {
        if let Some(known) = known.filter(|known| known.is_of(row)) {
            return Ok((resume(known.machine.clone(), &row.log)?, known.len));
        }
        let len = row.snap.len();
        if len < LONG {
            if known.is_some() {
                self.long.lock().remove(name);
            }
            return Ok((row.replay()?, len));
        }
        let machine = snapshot_of(&row.snap)?;
        let known = Arc::new(KnownSnapshot { base: row.base, len, machine: machine.clone() });
        let mut long = self.long.lock();
        if long.len() >= MOST && !long.contains_key(name) {
            long.clear();
        }
        long.insert(name.clone(), known);
        drop(long);
        Ok((resume(machine, &row.log)?, len))
    }
}

#[cfg(test)]
mod tests {
    use dlock_core::{
        ClaimId, Mode, Queue,
        machine::{Machine, Op, text::op_text, text::snapshot},
    };

    use super::*;

    fn name(n: usize) -> LockName {
        LockName::new(&format!("n{n}")).unwrap()
    }

    fn acquire(n: u128) -> Op {
        let (claim, mode, queue) = (ClaimId::from_bits(n), Mode::Exclusive, Queue::Enqueue);
        Op::Acquire { claim, mode, lease: 99, block: 1, queue, home: 0, note: None }
    }

    /// Returns a row with this number of waiters in its snapshot.
    fn row(base: i64, claims: u128) -> Row {
        let mut machine = Machine::default();
        for n in 0..claims {
            machine.apply(&acquire(n), 1, &mut Vec::new());
        }
        let log = format!("{} 2;", op_text(&acquire(99)));
        Row { base, snap: snapshot(&machine), log }
    }

    #[test]
    fn a_row_without_its_snapshot_replays_to_the_same_state() {
        let (snapshots, name, whole) = (Snapshots::default(), name(1), row(7, 9));
        assert!(snapshots.known(&name).is_none());
        let (first, len) = snapshots.replay(&name, &whole, None).unwrap();
        assert_eq!(len, whole.snap.len());

        let wanted = snapshots.wanted(&name);
        assert_eq!(wanted.known_base(), 7);
        let part = Row { snap: String::new(), ..whole.clone() };
        let (again, len) = snapshots.replay(&name, &part, wanted.known.as_deref()).unwrap();
        assert_eq!((again.machine, len), (first.machine, whole.snap.len()));
    }

    #[test]
    fn a_newer_snapshot_replaces_the_known_one() {
        let (snapshots, name) = (Snapshots::default(), name(1));
        snapshots.replay(&name, &row(7, 9), None).unwrap();
        let known = snapshots.known(&name);
        let (newer, _) = snapshots.replay(&name, &row(8, 12), known.as_deref()).unwrap();
        assert_eq!(newer.machine, row(8, 12).replay().unwrap().machine);
        assert_eq!(snapshots.wanted(&name).known_base(), 8);
        // A short snapshot is not kept.
        let known = snapshots.known(&name);
        snapshots.replay(&name, &row(9, 1), known.as_deref()).unwrap();
        assert_eq!(snapshots.wanted(&name).known_base(), 0);
    }

    #[test]
    fn a_changed_snapshot_of_a_known_base_is_read() {
        let (snapshots, name) = (Snapshots::default(), name(1));
        snapshots.replay(&name, &row(7, 9), None).unwrap();
        let known = snapshots.known(&name);
        let (changed, _) = snapshots.replay(&name, &row(7, 12), known.as_deref()).unwrap();
        assert_eq!(changed.machine, row(7, 12).replay().unwrap().machine);
        let later = Row { snap: "v9 1 1;".to_owned(), ..row(7, 9) };
        assert!(snapshots.replay(&name, &later, known.as_deref()).is_err());
    }

    #[test]
    fn snapshots_stay_bounded() {
        let snapshots = Snapshots::default();
        for n in 0..1000 {
            snapshots.replay(&name(n), &row(7, 9), None).unwrap();
        }
        assert!(snapshots.long.lock().len() <= MOST);
        assert!(snapshots.known(&name(999)).is_some());
    }
}

//! The row of a lock: the arguments and the result of a statement.
//!
//! A row is a snapshot of the lock's machine and the log of the operations since. Every client that
//! reads it replays the same text, which includes the time of each operation, and so reaches the
//! same state. `base` identifies the snapshot, and grows with each one.
//!
//! A statement appends to the log, and never computes a state. So two clients that write at the
//! same time need no agreement: the database orders their operations. A fold replaces a snapshot
//! and its log by an equal, shorter snapshot. It changes no state, so it may be lost or refused at
//! any time.

use std::sync::Arc;

use dlock_core::{
    Error, ErrorKind, LockName,
    machine::{
        Machine, Micros,
        text::{self, Replayed},
    },
};

/// A row as the database stores it.
#[derive(Clone, Debug)]
pub(crate) struct Row {
    pub(crate) base: i64,
    /// Empty if the client knew it.
    pub(crate) snap: String,
    pub(crate) log: String,
}

impl Row {
    /// Returns the state of a complete row.
    pub(crate) fn replay(&self) -> Result<Replayed, Error> {
        text::replay(&self.snap, &self.log)
    }

    /// Returns the state of a row whose snapshot may have been left out, because the client knew
    /// it.
    pub(crate) fn replay_on(&self, known: Option<&KnownSnapshot>) -> Result<Replayed, Error> {
        match known.filter(|known| known.is_of(self)) {
            Some(known) => text::resume(known.machine.clone(), &self.log),
            None => self.replay(),
        }
    }

    /// Identifies this state of the row: the log of one base only grows.
    pub(crate) fn mark(&self) -> Mark {
        Mark { base: self.base, len: self.len() }
    }

    /// Returns the length of the log. It is ASCII, so bytes and characters are the same.
    pub(crate) fn len(&self) -> i64 {
        i64::try_from(self.log.len()).unwrap_or(i64::MAX)
    }
}

/// A state of a row.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Mark {
    pub(crate) base: i64,
    pub(crate) len: i64,
}

/// A snapshot that has been read. The database need not send it again, since no two snapshots of a
/// row have the same base.
#[derive(Debug)]
pub(crate) struct KnownSnapshot {
    pub(crate) base: i64,
    /// The length of its text.
    pub(crate) len: usize,
    pub(crate) machine: Machine,
}

impl KnownSnapshot {
    /// Returns whether this is the snapshot of a row. The row may have it, or have it left out.
    pub(crate) fn is_of(&self, row: &Row) -> bool {
        // Another program may have changed the snapshot, but not its base.
        self.base == row.base && [0, self.len].contains(&row.snap.len())
    }
}

/// A row to read.
#[derive(Clone, Debug)]
pub(crate) struct Wanted {
    pub(crate) name: LockName,
    pub(crate) known: Option<Arc<KnownSnapshot>>,
}

impl Wanted {
    /// Returns the base whose snapshot need not be sent, or 0.
    pub(crate) fn known_base(&self) -> i64 {
        base_of(self.known.as_deref())
    }
}

/// Operations for a row.
#[derive(Debug)]
pub(crate) struct Write {
    pub(crate) name: LockName,
    /// Their text, to which the statement appends the time.
    pub(crate) op: String,
    /// A shorter form of the row.
    pub(crate) fold: Option<Fold>,
    pub(crate) known: Option<Arc<KnownSnapshot>>,
    /// Whether a crash may lose it.
    #[cfg_attr(not(feature = "postgres"), expect(dead_code, reason = "no other has such writes"))]
    pub(crate) skips_sync: bool,
}

impl Write {
    /// The arguments of a statement that folds nothing: no row has base 0.
    pub(crate) const NO_FOLD: (i64, i64, i64, &'static str) = (0, 0, 0, "");

    /// Returns the arguments `seen`, `cut`, `time` and `snap` of the statement.
    pub(crate) fn fold_args(&self) -> (i64, i64, i64, &str) {
        let Some(Fold { mark, time, snap }) = &self.fold else { return Self::NO_FOLD };
        (mark.base, mark.len, i64::try_from(*time).unwrap_or(i64::MAX), snap)
    }

    /// Returns the base whose snapshot need not be returned, or 0.
    pub(crate) fn known_base(&self) -> i64 {
        base_of(self.known.as_deref())
    }

    /// Returns the length of that snapshot, or 0.
    #[cfg(feature = "postgres")]
    pub(crate) fn known_len(&self) -> i64 {
        self.known.as_deref().map_or(0, |known| i64::try_from(known.len).unwrap_or(i64::MAX))
    }

    /// Returns a lower bound of its size as text.
    #[cfg(any(feature = "mysql", feature = "sqlite"))]
    pub(crate) fn room(&self) -> usize {
        let snap = self.fold.as_ref().map_or(0, |fold| fold.snap.len());
        2 * self.name.as_str().len() + self.op.len() + snap + 64
    }
}

/// Returns the rows of the writes, in their order, which is that of their names.
pub(crate) fn in_order<N: AsRef<str>>(
    writes: &[Write],
    mut found: Vec<(N, Result<Row, Error>)>,
) -> Result<Vec<Result<Row, Error>>, Error> {
    found.sort_by(|a, b| a.0.as_ref().cmp(b.0.as_ref()));
    let names = writes.iter().map(|write| write.name.as_str());
    if !names.eq(found.iter().map(|(name, _)| name.as_ref())) {
        let text = "the database returned other rows than were written: check that no other \
                    program writes to dlock's tables";
        return Err(Error::new(ErrorKind::Protocol, text));
    }
    Ok(found.into_iter().map(|(_, row)| row).collect())
}

/// No row has base 0.
fn base_of(known: Option<&KnownSnapshot>) -> i64 {
    known.map_or(0, |known| known.base)
}

/// The snapshot of a row at a mark. The statement takes it, and removes the log up to the mark,
/// only if the row still has that base and this operation at its place. So a late client can't undo
/// operations that others appended or folded. Nor can a client bring back operations that the
/// database has lost in a crash.
#[derive(Clone, Debug)]
pub(crate) struct Fold {
    pub(crate) mark: Mark,
    /// The time of the last operation before the mark.
    pub(crate) time: Micros,
    pub(crate) snap: Arc<str>,
}

#[cfg(test)]
mod tests {
    use dlock_core::FORMAT;

    use super::*;

    /// The statements check the marker, because a client that knows the snapshot does not read it.
    #[test]
    fn statements_append_to_the_format_that_is_read() {
        // The statements compare the first three characters of the row.
        let markers = format!("'', 'v{FORMAT} '");
        for statement in [
            include_str!("../sqlite/apply_one.sql"),
            include_str!("../sqlite/apply_many.sql"),
            include_str!("../postgres/apply_one.sql"),
            include_str!("../postgres/apply_many.sql"),
            include_str!("../mysql/apply_one.sql"),
            include_str!("../mysql/apply_many.sql"),
        ] {
            let is_there = [format!("IN ({markers})"), format!("ARRAY[{markers}]")];
            assert!(is_there.iter().any(|it| statement.contains(it)), "{markers}: {statement}");
        }
    }

    #[test]
    fn rows_come_in_the_order_of_the_writes_and_none_is_missing() {
        let write = |name| Write {
            name: LockName::new(name).unwrap(),
            op: String::new(),
            fold: None,
            known: None,
            skips_sync: false,
        };
        let (writes, row) = ([write("a"), write("b")], |name, base| {
            (name, Ok(Row { base, snap: String::new(), log: String::new() }))
        });
        let rows = in_order(&writes, vec![row("b", 2), row("a", 1)]).unwrap();
        assert_eq!(rows.iter().flatten().map(|row| row.base).collect::<Vec<_>>(), [1, 2]);
        for others in [vec![row("a", 1)], vec![row("a", 1), row("c", 2)]] {
            assert_eq!(in_order(&writes, others).unwrap_err().kind(), ErrorKind::Protocol);
        }
    }
}

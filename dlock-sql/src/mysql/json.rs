//! Arguments for many rows as one JSON array, which the server parses.
//!
//! Names are sent as hexadecimal digits. Operations, snapshots and numbers contain no character
//! that JSON escapes. So all of it is ASCII, and no character set can change it. A statement has a
//! maximum size: folds that do not fit are left out, and operations that do not fit go into another
//! statement.

use std::fmt::Write as _;

use dlock_core::LockName;

use super::error::too_large;
use crate::engine::{Fault, Mark, Write};

/// The size of a statement in addition to [`Write::room`].
pub(super) const AROUND: usize = 256;

/// Returns the argument of `apply_many.sql`, with at most `most` bytes. Folds that do not fit are
/// left out: a later statement of this or another client has them.
pub(super) fn writes(writes: &[Write], most: usize) -> String {
    let room = writes.iter().map(Write::room).sum();
    let mut left = most.saturating_sub(least(writes));
    array(room, writes, |out, write| {
        let fitting = left.checked_sub(folds(write));
        left = fitting.unwrap_or(left);
        let fold = fitting.map(|_| write.fold_args());
        let (seen, cut, time, snap) = fold.unwrap_or(Write::NO_FOLD);
        let (cut, op) = (marked(cut), &write.op);
        push_name(out, write.name.as_str());
        let _ = write!(out, ",{seen},{cut},\"{op}\",\"{snap}\",{time}");
    })
}

/// Returns the size of these writes without any fold, in bytes.
pub(super) fn least(writes: &[Write]) -> usize {
    let without: usize = writes.iter().map(|write| write.room() - folds(write)).sum();
    AROUND + without
}

fn folds(write: &Write) -> usize {
    write.fold.as_ref().map_or(0, |fold| fold.snap.len())
}

/// Fails if these writes are too large for one statement. The worker then splits them.
pub(super) fn check_size(writes: &[Write], packet: usize) -> Result<(), Fault> {
    match least(writes) > packet {
        true => Err(too_large()),
        false => Ok(()),
    }
}

/// Returns the number of names that fit into a statement of this size.
pub(super) fn most_names(packet: usize) -> usize {
    (packet.saturating_sub(AROUND) / (2 * LockName::MAX_BYTES + 32)).max(1)
}

/// Returns the argument `cut` of a statement that folds, with a random number for this sending. It
/// lets the statement distinguish its own assignment from a value that it has found. (`cut` itself
/// is at most the length of a row.)
pub(super) fn marked(cut: i64) -> i64 {
    match cut {
        0 => 0,
        _ => rand::random_range(1..1_i64 << 39) << 24 | cut,
    }
}

/// Returns the argument of `read.sql`: names, and the bases whose snapshots are known.
pub(crate) fn wanted<'a>(wanted: impl IntoIterator<Item = (&'a LockName, i64)>) -> String {
    array(0, wanted, |out, (name, known)| {
        push_name(out, name.as_str());
        let _ = write!(out, ",{known}");
    })
}

/// Returns the argument of `delete.sql`.
pub(super) fn marks(rows: &[(String, Mark)]) -> String {
    array(0, rows, |out, (name, mark)| {
        push_name(out, name);
        let _ = write!(out, ",{},{}", mark.base, mark.len);
    })
}

/// Returns an array of arrays, of about `room` bytes. (Writing to a String does not fail.)
fn array<T>(
    room: usize,
    items: impl IntoIterator<Item = T>,
    mut put: impl FnMut(&mut String, T),
) -> String {
    let mut out = String::with_capacity(room);
    out.push('[');
    for item in items {
        out.push_str(if out.len() > 1 { ",[" } else { "[" });
        put(&mut out, item);
        out.push(']');
    }
    out.push(']');
    out
}

fn push_name(out: &mut String, name: &str) {
    let digit = |nibble: u8| char::from(b"0123456789abcdef"[usize::from(nibble)]);
    out.push('"');
    for byte in name.bytes() {
        out.push(digit(byte >> 4));
        out.push(digit(byte & 15));
    }
    out.push('"');
}

#[cfg(test)]
mod tests {
    use dlock_core::{
        ClaimId, Mode, Note, Queue,
        machine::{
            Machine, Op,
            text::{op_text, snapshot},
        },
    };

    use super::*;

    #[test]
    fn names_are_written_in_hexadecimal() {
        let name = |text| LockName::new(text).unwrap();
        assert_eq!(
            wanted([(&name("a\"\\"), 0), (&name("ä🔒"), 7)]),
            r#"[["61225c",0],["c3a4f09f9492",7]]"#
        );
        let op = "R 1".to_owned();
        let write = Write { name: name("é"), op, fold: None, known: None, skips_sync: false };
        assert_eq!(writes(&[write], 1 << 20), r#"[["c3a9",0,0,"R 1","",0]]"#);
        let mark = Mark { base: 7, len: 9 };
        assert_eq!(
            marks(&[("b".to_owned(), mark), ("c".to_owned(), mark)]),
            r#"[["62",7,9],["63",7,9]]"#
        );
        assert_eq!(wanted([]), "[]");
    }

    #[test]
    fn each_fold_gets_a_new_mark_and_an_empty_one_gets_none() {
        assert_eq!(marked(0), 0);
        let longest = (1 << 24) - 1;
        for cut in [1, 129, longest] {
            let (one, other) = (marked(cut), marked(cut));
            assert!(one > longest && one != other, "{one} {other}");
            assert_eq!((one % (1 << 24), other % (1 << 24)), (cut, cut));
        }
    }

    #[test]
    fn other_arguments_need_no_escaping() {
        let claim = ClaimId::random();
        let (mode, queue) = (Mode::Exclusive, Queue::Enqueue);
        let note = Note::new("\"é\\'; %").ok();
        let ops = [
            Op::Acquire { claim, mode, lease: 9, block: 1, queue, home: 0, note },
            Op::Renew { claim, mode, lease: 9, is_last: false },
            Op::Release { claim, used: 1, bar: 0 },
            Op::Raise { above: 1 },
        ];
        let mut machine = Machine::default();
        machine.apply(&ops[0], 1, &mut Vec::new());
        let texts = ops.iter().map(op_text).chain([snapshot(&machine)]);
        for text in texts {
            let plain = |byte: u8| byte.is_ascii_alphanumeric() || b" ;=%-._".contains(&byte);
            assert!(text.bytes().all(plain), "{text}");
        }
    }
}

//! Arguments for many rows as one JSON array, which the server takes apart again.
//!
//! Names go as hexadecimal digits. Operations, snapshots and numbers hold no character that JSON
//! escapes. So all of it is ASCII, and no character set can change it.

use std::fmt::Write as _;

use dlock_core::LockName;

use crate::engine::{Mark, Write};

/// For `apply_many.sql`.
pub(super) fn writes(writes: &[Write]) -> String {
    array(writes, |out, write| {
        let (seen, cut, time, snap) = write.fold_args();
        let (name, op) = (hex(write.name.as_str()), &write.op);
        let _ = write!(out, "[\"{name}\",{seen},{cut},\"{op}\",\"{snap}\",{time}]");
    })
}

/// For `read.sql`: names, and the bases whose snapshots are known.
pub(crate) fn wanted<'a>(wanted: impl IntoIterator<Item = (&'a LockName, i64)>) -> String {
    array(wanted, |out, (name, known)| {
        let _ = write!(out, "[\"{}\",{known}]", hex(name.as_str()));
    })
}

/// For `delete.sql`.
pub(super) fn marks(rows: &[(String, Mark)]) -> String {
    array(rows, |out, (name, mark)| {
        let _ = write!(out, "[\"{}\",{},{}]", hex(name), mark.base, mark.len);
    })
}

/// The items in brackets. (Writing to a String does not fail.)
fn array<T>(items: impl IntoIterator<Item = T>, mut put: impl FnMut(&mut String, T)) -> String {
    let mut out = String::from("[");
    for item in items {
        if out.len() > 1 {
            out.push(',');
        }
        put(&mut out, item);
    }
    out.push(']');
    out
}

fn hex(text: &str) -> String {
    let digit = |nibble: u8| char::from_digit(nibble.into(), 16).unwrap_or_default();
    text.bytes().flat_map(|byte| [digit(byte >> 4), digit(byte & 15)]).collect()
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
    fn names_are_hexadecimal_whatever_they_hold() {
        let name = |text| LockName::new(text).unwrap();
        assert_eq!(
            wanted([(&name("a\"\\"), 0), (&name("ä🔒"), 7)]),
            r#"[["61225c",0],["c3a4f09f9492",7]]"#
        );
        let op = "R 1".to_owned();
        let write = Write { name: name("é"), op, fold: None, known: None, hurries: false };
        assert_eq!(writes(&[write]), r#"[["c3a9",0,0,"R 1","",0]]"#);
        let mark = Mark { base: 7, len: 9 };
        assert_eq!(
            marks(&[("b".to_owned(), mark), ("c".to_owned(), mark)]),
            r#"[["62",7,9],["63",7,9]]"#
        );
        assert_eq!(wanted([]), "[]");
    }

    #[test]
    fn nothing_else_needs_escaping() {
        let claim = ClaimId::random();
        let (mode, queue) = (Mode::Exclusive, Queue::Enqueue);
        let note = Note::new("\"é\\'; %").ok();
        let ops = [
            Op::Acquire { claim, mode, lease: 9, block: 1, queue, home: 0, note },
            Op::Renew { claim, mode, lease: 9 },
            Op::Release { claim, used: 1 },
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

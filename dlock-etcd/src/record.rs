//! The value of a claim's key: `<mode> <lease in ms> <claim>`, then an optional marker of the format,
//! then an optional note: `x 30000 0f6b2c19a4e35d7810c9b8a7f6e5d4c3 web-3 pid 4711`.
//!
//! The mode is `x` (exclusive), `s` (shared) or `2/5` (2 of 5 permits). A downgrade writes the same
//! key with another mode. The lease is information for people and for
//! [`inspect`](dlock_core::Backend::inspect). Go's mutex writes an empty value.

use std::time::Duration;

use dlock_core::{ClaimId, Mode, Note};

/// The start of a word with the number of a format. No note contains this character.
const FORMAT: char = '\u{1}';

/// The value of a claim's key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Record {
    pub(crate) mode: Mode,
    pub(crate) lease: Duration,
    pub(crate) claim: ClaimId,
    pub(crate) note: Option<Note>,
    /// The number of its format, if that is not the one of this version.
    pub(crate) newer: Option<u64>,
}

impl Record {
    pub(crate) fn text(&self) -> String {
        let mode = match self.mode {
            Mode::Shared => "s".to_owned(),
            Mode::Permits { n, of } => format!("{n}/{of}"),
            _ => "x".to_owned(),
        };
        let mut text = format!("{mode} {} {}", self.lease.as_millis(), self.claim);
        if let Some(format) = self.newer {
            text += &format!(" {FORMAT}{format}");
        }
        if let Some(note) = &self.note {
            text += " ";
            text += note.as_str();
        }
        text
    }

    /// Parses a value. Returns `None` if another program wrote it.
    pub(crate) fn parse(bytes: &[u8]) -> Option<Self> {
        let text = std::str::from_utf8(bytes).ok()?;
        let (mode, text) = text.split_once(' ')?;
        let mode = match mode {
            "x" => Mode::Exclusive,
            "s" => Mode::Shared,
            permits => {
                let (n, of) = permits.split_once('/')?;
                Mode::permits(number(n)?, number(of)?).ok()?
            }
        };
        let (lease, text) = text.split_once(' ')?;
        let (claim, behind) = text.split_once(' ').unwrap_or((text, ""));
        let marked = behind.strip_prefix(FORMAT).and_then(|behind| {
            let (format, note) = behind.split_once(' ').unwrap_or((behind, ""));
            Some((Some(number(format)?), note))
        });
        let (newer, note) = marked.unwrap_or((None, behind));
        // An invalid note is left out: the queue depends on the mode.
        let note = Note::new(note).ok();
        let lease = Duration::from_millis(number(lease)?);
        Some(Self { mode, lease, claim: claim.parse().ok()?, note, newer })
    }
}

fn number<T: std::str::FromStr>(text: &str) -> Option<T> {
    text.bytes().all(|byte| byte.is_ascii_digit()).then(|| text.parse().ok())?
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn records_round_trip() {
        let lease = Duration::from_secs(30);
        for note in [None, Note::new("web-3 pid 4711 é").ok()] {
            for mode in [Mode::Exclusive, Mode::Shared, Mode::permits(2, 5).unwrap()] {
                for newer in [None, Some(9)] {
                    let claim = ClaimId::random();
                    let record = Record { mode, lease, claim, note: note.clone(), newer };
                    assert_eq!(Record::parse(record.text().as_bytes()), Some(record));
                }
            }
        }
    }

    #[test]
    fn a_later_format_is_named_and_its_mode_is_read() {
        let text = |rest: &str| format!("2/5 1 {} {rest}", ClaimId::from_bits(7));
        let read = Record::parse(text("\u{1}9 web-3").as_bytes()).unwrap();
        assert_eq!((read.newer, read.mode), (Some(9), Mode::permits(2, 5).unwrap()));
    }

    #[test]
    fn a_note_that_can_not_be_changes_nothing_else() {
        for note in ["", "a\n", &"x".repeat(Note::MAX_BYTES + 1)] {
            let claim = ClaimId::from_bits(7);
            let read = Record::parse(format!("s 1 {claim} {note}").as_bytes()).unwrap();
            assert_eq!((read.mode, read.note, read.newer), (Mode::Shared, None, None));
        }
    }

    #[test]
    fn a_foreign_value_is_no_record() {
        let claim = ClaimId::from_bits(7);
        for mode in ["0/5", "6/5", "/", "y", ""] {
            assert_eq!(Record::parse(format!("{mode} 1 {claim}").as_bytes()), None, "{mode}");
        }
        for bytes in [&b""[..], b"x", b"x ", b"x 1", b"x 1 7", b"x y", b"\xff"] {
            assert_eq!(Record::parse(bytes), None, "{bytes:?}");
        }
        assert_eq!(Record::parse(format!("x y {claim}").as_bytes()), None);
    }
}

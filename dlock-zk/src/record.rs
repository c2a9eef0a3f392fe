//! The data of a claim's node: `lease=30000ms`, then an optional mark, then an optional note:
//! `lease=30000ms shared note=web-3 pid 4711`.
//!
//! The lease is information for people and for [`inspect`](dlock_core::Backend::inspect). A mark
//! changes the meaning of the node without a new node, so that it keeps its place in the queue:
//! `shared` for a writer that has become a reader, `granted` for permits that had to wait. The mark
//! notifies clients that watch the node. A note is for people, and never changes.

use std::time::Duration;

use dlock_core::Note;

/// The text before a note. It does not occur earlier in the data.
const NOTE: &str = " note=";

/// The start of a note that begins with the number of a format. No note contains this character, so
/// a version that knows no such marker shows no note, and reads the rest.
const FORMAT: char = '\u{1}';

/// The data of a claim's node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Record {
    pub(crate) lease: Duration,
    pub(crate) mark: Option<Mark>,
    pub(crate) note: Option<Note>,
    /// The number of its format, if that is not the one of this version.
    pub(crate) newer: Option<u64>,
}

/// A change of the claim since the creation of its node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Mark {
    /// It is a reader now.
    Shared,
    /// It has its permits.
    Granted,
}

impl Record {
    /// Creates the data of a new node.
    pub(crate) const fn of(lease: Duration, note: Option<Note>) -> Self {
        Self { lease, mark: None, note, newer: None }
    }

    pub(crate) fn marked(self, mark: Mark) -> Self {
        Self { mark: Some(mark), ..self }
    }

    pub(crate) fn text(&self) -> String {
        let mark = match self.mark {
            None => "",
            Some(Mark::Shared) => " shared",
            Some(Mark::Granted) => " granted",
        };
        let mut text = format!("lease={}ms{mark}", self.lease.as_millis());
        let marker = self.newer.map(|format| format!("{FORMAT}{format}"));
        let note = self.note.as_ref().map(|note| note.as_str().to_owned());
        let behind: Vec<_> = marker.into_iter().chain(note).collect();
        if !behind.is_empty() {
            text += NOTE;
            text += &behind.join(" ");
        }
        text
    }

    /// Parses a node's data. Returns `None` if another program wrote it.
    pub(crate) fn parse(bytes: &[u8]) -> Option<Self> {
        let text = std::str::from_utf8(bytes).ok()?;
        let (text, behind) = text.split_once(NOTE).unwrap_or((text, ""));
        let (newer, note) = behind.strip_prefix(FORMAT).and_then(marked).unwrap_or((None, behind));
        // An invalid note is left out. The mark must still be read, since the queue depends on it.
        let note = Note::new(note).ok();
        let (lease, mark) = match text.split_once(' ') {
            None => (text, None),
            Some((lease, "shared")) => (lease, Some(Mark::Shared)),
            Some((lease, "granted")) => (lease, Some(Mark::Granted)),
            Some(_) => return None,
        };
        let lease = lease.strip_prefix("lease=")?.strip_suffix("ms")?.parse().ok()?;
        Some(Self { lease: Duration::from_millis(lease), mark, note, newer })
    }

    /// Returns whether these bytes have this mark.
    pub(crate) fn has(bytes: &[u8], mark: Mark) -> bool {
        Self::parse(bytes).is_some_and(|record| record.mark == Some(mark))
    }
}

/// Returns the number of the format in a marker, and the note behind it.
fn marked(text: &str) -> Option<(Option<u64>, &str)> {
    let (format, note) = text.split_once(' ').unwrap_or((text, ""));
    Some((Some(format.parse().ok()?), note))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn data_round_trips() {
        let lease = Duration::from_secs(30);
        for note in [None, Note::new("web-3 note= shared é").ok()] {
            let plain = Record::of(lease, note);
            let marked = [Mark::Shared, Mark::Granted].map(|mark| plain.clone().marked(mark));
            for record in marked.into_iter().chain([plain]) {
                assert_eq!(Record::parse(record.text().as_bytes()), Some(record));
            }
        }
        assert_eq!(Record::of(lease, None).text(), "lease=30000ms");
        let note = Note::new("web-3 pid 1").ok();
        let text = Record::of(lease, note).marked(Mark::Shared).text();
        assert_eq!(text, "lease=30000ms shared note=web-3 pid 1");
    }

    #[test]
    fn a_note_that_can_not_be_changes_nothing_else() {
        let lease = Duration::from_millis(1);
        let record = Record::of(lease, None).marked(Mark::Shared);
        for note in ["", "a\n", &"x".repeat(Note::MAX_BYTES + 1)] {
            let text = format!("lease=1ms shared note={note}");
            assert_eq!(Record::parse(text.as_bytes()), Some(record.clone()));
        }
    }

    #[test]
    fn a_later_format_is_named_and_its_lease_and_mark_are_read() {
        let record = Record::of(Duration::from_millis(1), None).marked(Mark::Shared);
        for (behind, note) in [("\u{1}9", None), ("\u{1}9 web-3 x", Note::new("web-3 x").ok())] {
            let text = format!("lease=1ms shared note={behind}");
            let read = Record::parse(text.as_bytes()).unwrap();
            assert_eq!(read.text(), text);
            assert_eq!(read, Record { newer: Some(9), note, ..record.clone() });
        }
    }

    #[test]
    fn foreign_data_is_ignored() {
        for bytes in [
            &b""[..],
            b"10.0.0.1",
            b"lease=ms",
            b"lease=1ms?",
            b"lease=1ms x",
            b"lease=1ms x note=a",
            b"\xff",
        ] {
            assert_eq!(Record::parse(bytes), None);
        }
    }
}

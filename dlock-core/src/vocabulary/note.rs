//! Notes: texts that identify a claim to people.

use std::{fmt, str::FromStr, sync::Arc};

use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, percent_decode_str, utf8_percent_encode};

use crate::{ConfigIssue, Error};

/// The characters that are percent-encoded in a note's ASCII form.
const ENCODED: &AsciiSet = &NON_ALPHANUMERIC.remove(b'-').remove(b'.').remove(b'_');

/// A short text that tells people which client made a claim, such as `web-3 pid 4711 migrate`: any
/// UTF-8 of 1 to 128 bytes without control characters.
///
/// A client sets one on all its claims with `ConnectOptions::with_note` or with
/// [`Noted`](crate::Noted), and [`ClaimState::note`](crate::ClaimState) shows it. No secrets:
/// **everybody with read access to the store sees it**, and backups and logs contain it. No lock
/// depends on it. Cloning is cheap.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Note(Arc<str>);

impl Note {
    /// The longest note, in bytes.
    pub const MAX_BYTES: usize = 128;

    /// Checks a text and creates the note.
    ///
    /// # Errors
    /// `Config(Note)` if the text is empty, longer than [`MAX_BYTES`](Self::MAX_BYTES), or contains
    /// a control character.
    pub fn new(note: &str) -> Result<Self, Error> {
        let refuse = |why: String| Err(Error::config(ConfigIssue::Note, why));
        if note.is_empty() {
            return refuse(format!(
                "a note is empty: give it 1 to {} bytes, or leave it out",
                Self::MAX_BYTES
            ));
        }
        if note.len() > Self::MAX_BYTES {
            return refuse(format!(
                "a note has {} bytes: use at most {}, such as the host and the process id",
                note.len(),
                Self::MAX_BYTES
            ));
        }
        if let Some((at, c)) = note.char_indices().find(|(_, c)| c.is_control()) {
            return refuse(format!(
                "a note has the control character {c:?} at byte {at}: leave it out"
            ));
        }
        Ok(Self(note.into()))
    }

    /// Returns the text without its control characters, cut to [`MAX_BYTES`](Self::MAX_BYTES);
    /// `None` if nothing remains.
    pub fn fitted(text: &str) -> Option<Self> {
        let mut fits = String::with_capacity(Self::MAX_BYTES);
        for c in text.chars().filter(|c| !c.is_control()) {
            if fits.len() + c.len_utf8() > Self::MAX_BYTES {
                break;
            }
            fits.push(c);
        }
        Self::new(&fits).ok()
    }

    /// Returns the note as text.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// Returns the note as one word of ASCII, for stores whose records have fields: letters,
    /// digits, `-`, `.` and `_` remain, everything else is percent-encoded.
    pub fn to_ascii(&self) -> String {
        utf8_percent_encode(&self.0, ENCODED).to_string()
    }

    /// Reads the output of [`to_ascii`](Self::to_ascii); returns `None` for other text.
    pub fn from_ascii(word: &str) -> Option<Self> {
        let note = Self::new(&percent_decode_str(word).decode_utf8().ok()?).ok()?;
        (note.to_ascii() == word).then_some(note)
    }
}

impl fmt::Display for Note {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl fmt::Debug for Note {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&*self.0, f)
    }
}

impl FromStr for Note {
    type Err = Error;

    fn from_str(note: &str) -> Result<Self, Error> {
        Self::new(note)
    }
}

impl TryFrom<&str> for Note {
    type Error = Error;

    fn try_from(note: &str) -> Result<Self, Error> {
        Self::new(note)
    }
}

impl TryFrom<String> for Note {
    type Error = Error;

    fn try_from(note: String) -> Result<Self, Error> {
        Self::new(&note)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ErrorKind;

    #[test]
    fn good_notes_have_an_ascii_form_without_space_or_semicolon() {
        for text in ["a", " ", "web-3 pid 4711 migrate", "a;b", "100%", "n%20", "caf\u{e9} 🔒"] {
            let note = Note::new(text).unwrap();
            let word = note.to_ascii();
            assert!(word.bytes().all(|b| b.is_ascii_graphic() && b != b';'), "{word}");
            assert_eq!(Note::from_ascii(&word), Some(note));
        }
        assert_eq!(Note::new("web-3 pid 1").unwrap().to_ascii(), "web-3%20pid%201");
        assert!(Note::new(&"x".repeat(Note::MAX_BYTES)).is_ok());
    }

    #[test]
    fn bad_notes_are_refused_with_the_reason() {
        for (note, says) in [
            (String::new(), "empty"),
            ("x".repeat(Note::MAX_BYTES + 1), "129 bytes"),
            ("a\nb".into(), "at byte 1"),
            ("\u{85}".into(), "control character"),
        ] {
            let error = Note::new(&note).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::Config(ConfigIssue::Note));
            assert!(error.to_string().contains(says), "{error}");
        }
    }

    #[test]
    fn text_outside_of_a_note_is_not_read() {
        for word in ["", "%", "%2", "%0A", "%FF", "a b", "%61", "%3b", "é", &"x".repeat(129)] {
            assert_eq!(Note::from_ascii(word), None, "{word}");
        }
    }

    #[test]
    fn a_long_note_is_cut_between_characters() {
        let long = format!("a{}", "é".repeat(100));
        assert_eq!(Note::fitted(&long).unwrap().as_str().len(), 127);
        assert_eq!(Note::fitted("a\tb\n").unwrap().as_str(), "ab");
        assert_eq!(Note::fitted("\n"), None);
    }
}

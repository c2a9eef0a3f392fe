//! The messages that a PostgreSQL server sends.

use super::{First, Reader};

/// The maximum length of a message.
const LONGEST: usize = 1 << 30;

/// Parses messages: a letter, a length that counts itself, and the rest.
#[derive(Debug, Default)]
pub(super) struct Messages {
    /// `false` before the first message: then the server answers with one letter whether it
    /// supports encryption.
    started: bool,
}

impl Reader for Messages {
    fn first(&mut self, bytes: &[u8]) -> First {
        match bytes.first() {
            None => return First::Part,
            Some(b'N') if !self.started => return First::Answer(1),
            Some(b'R' | b'E' | b'v') => self.started = true,
            // All bytes after this one are encrypted.
            Some(_) if !self.started => return First::Foreign,
            Some(_) => {}
        }
        let Some(length) = bytes.get(1..5).and_then(|length| length.first_chunk::<4>()) else {
            return First::Part;
        };
        match usize::try_from(u32::from_be_bytes(*length)) {
            Ok(length @ 4..=LONGEST) if length >= bytes.len() => First::Part,
            Ok(length @ 4..=LONGEST) if bytes[0] == b'A' => First::Push(length + 1),
            Ok(length @ 4..=LONGEST) => First::Answer(length + 1),
            _ => First::Foreign,
        }
    }
}

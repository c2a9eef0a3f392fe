//! The records that a ZooKeeper server sends.

use super::{First, Reader};

/// The maximum length, beyond which servers refuse records by default. A text, which answers a
/// four-letter word, would have a greater length if it were read as a record.
const LONGEST: usize = 16 * 1024 * 1024;

/// The request number of an event.
const EVENT: [u8; 4] = (-1_i32).to_be_bytes();

/// Parses records: a length, the number of the request, and the rest.
#[derive(Debug, Default)]
pub(super) struct Records {
    /// `false` before the first record, which is about the session and has no number.
    greeted: bool,
}

impl Reader for Records {
    fn first(&mut self, bytes: &[u8]) -> First {
        let Some((length, rest)) = bytes.split_first_chunk::<4>() else {
            return First::Part;
        };
        match usize::try_from(u32::from_be_bytes(*length)) {
            Ok(length @ ..=LONGEST) if length > rest.len() => First::Part,
            Ok(length @ ..=LONGEST) if self.greeted && rest.starts_with(&EVENT) => {
                First::Push(length + 4)
            }
            Ok(length @ ..=LONGEST) => {
                self.greeted = true;
                First::Answer(length + 4)
            }
            Err(_) | Ok(_) => First::Foreign,
        }
    }
}

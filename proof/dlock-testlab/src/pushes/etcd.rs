//! The frames of HTTP/2 that an etcd server sends, as far as they carry messages of gRPC.
//!
//! Only frames with the events of watches are removed. Headers are not, because the two ends of a
//! connection share a table of them.

use super::{First, Reader};

/// The length of a frame's header: a length of three bytes, the kind, flags, and the stream.
const HEADER: usize = 9;

/// The maximum length of a frame, unless a client asks for longer ones. The bytes of TLS and of
/// HTTP/1 would have a greater length if they were read as a frame.
const LONGEST: usize = 16 * 1024;

/// The kind of frames with data.
const DATA: u8 = 0;

/// The field of a `WatchResponse` with its events. No other answer of etcd that dlock uses has a
/// field of this number and type.
const EVENTS: u64 = 11 << 3 | 2;

/// Parses frames.
#[derive(Debug, Default)]
pub(super) struct Frames;

impl Reader for Frames {
    fn first(&mut self, bytes: &[u8]) -> First {
        let Some((&[a, b, c, kind, ..], rest)) = bytes.split_first_chunk::<HEADER>() else {
            return First::Part;
        };
        match usize::from(a) << 16 | usize::from(b) << 8 | usize::from(c) {
            length if length > LONGEST => First::Foreign,
            length if length > rest.len() => First::Part,
            length if kind != DATA => First::Other(HEADER + length),
            length if has_events(&rest[..length]) => First::Push(HEADER + length),
            length => First::Answer(HEADER + length),
        }
    }
}

/// Whether these are the data of a whole message that has events.
fn has_events(data: &[u8]) -> bool {
    // Not compressed, and the length.
    let Some((&[0, a, b, c, d], mut message)) = data.split_first_chunk::<5>() else {
        return false;
    };
    if usize::try_from(u32::from_be_bytes([a, b, c, d])) != Ok(message.len()) {
        return false;
    }
    while let Some(field) = number(&mut message) {
        // Varints and parts with a length are all that answers of etcd contain.
        let skipped = match field & 7 {
            _ if field == EVENTS => return true,
            0 => number(&mut message).map(|_| 0),
            2 => number(&mut message).and_then(|length| usize::try_from(length).ok()),
            _ => None,
        };
        match skipped.and_then(|skipped| message.get(skipped..)) {
            Some(rest) => message = rest,
            None => return false,
        }
    }
    false
}

/// Reads a varint.
fn number(bytes: &mut &[u8]) -> Option<u64> {
    let mut number = 0;
    for shift in (0..64).step_by(7) {
        let (&byte, rest) = bytes.split_first()?;
        *bytes = rest;
        number |= u64::from(byte & 0x7f) << shift;
        if byte < 0x80 {
            return Some(number);
        }
    }
    None
}

//! Finds the messages that a server pushes in the stream of its answers, and removes them.
//!
//! Only whole messages are removed, so the client can parse the remaining bytes and can't detect
//! the loss.

#[cfg(test)]
mod tests;

use std::fmt;

/// A protocol in which servers push messages.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Protocol {
    /// RESP2 and RESP3. Pushed messages are those of channels, patterns and shards, and cache
    /// invalidations.
    Redis,
    /// Version 3 of PostgreSQL's protocol. Pushed messages are notifications.
    Postgres,
    /// The protocol of ZooKeeper's clients. Pushed messages are the events of watches and of
    /// sessions.
    ZooKeeper,
    /// gRPC as etcd speaks it. Pushed messages are the events of watches.
    Etcd,
}

/// The first message in a stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum First {
    /// An answer of this length.
    Answer(usize),
    /// A pushed message of this length.
    Push(usize),
    /// Something of this length that is no message.
    Other(usize),
    /// An incomplete message.
    Part,
    /// Bytes of another protocol, such as TLS.
    Foreign,
}

/// Parses a server's stream, message by message.
trait Reader: fmt::Debug + Send {
    fn first(&mut self, bytes: &[u8]) -> First;
}

/// Removes pushed messages from the stream of one connection.
#[derive(Debug)]
pub(super) struct Filter {
    /// `None` after bytes that the reader can't parse.
    reader: Option<Box<dyn Reader>>,
    unread: Vec<u8>,
}

/// The number of complete messages.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Seen {
    pub(super) answers: u64,
    pub(super) pushes: u64,
    /// The number of pushed messages that were removed.
    pub(super) lost: u64,
}

impl Filter {
    /// Returns a filter for a connection that has just opened.
    pub(super) fn new(protocol: Protocol) -> Self {
        let reader: Box<dyn Reader> = match protocol {
            Protocol::Redis => Box::<Values>::default(),
            Protocol::Postgres => Box::<Messages>::default(),
            Protocol::ZooKeeper => Box::<Records>::default(),
            Protocol::Etcd => Box::<Frames>::default(),
        };
        Self { reader: Some(reader), unread: Vec::new() }
    }

    /// Takes the next bytes and leaves in `bytes` those that may be forwarded now; none, if they
    /// are part of an incomplete message. Returns the numbers of complete messages.
    pub(super) fn pass(&mut self, bytes: &mut Vec<u8>, lose: bool) -> Seen {
        let mut seen = Seen::default();
        let Some(reader) = &mut self.reader else {
            return seen;
        };
        self.unread.append(bytes);
        let mut read = 0;
        loop {
            let rest = &self.unread[read..];
            let length = match reader.first(rest) {
                First::Push(length) => {
                    seen.pushes += 1;
                    if lose {
                        seen.lost += 1;
                        read += length;
                        continue;
                    }
                    length
                }
                First::Answer(length) => {
                    seen.answers += 1;
                    length
                }
                First::Other(length) => length,
                First::Part => break,
                First::Foreign => {
                    self.reader = None;
                    bytes.append(&mut self.unread.split_off(read));
                    self.unread.clear();
                    return seen;
                }
            };
            bytes.extend(&rest[..length]);
            read += length;
        }
        self.unread.drain(..read);
        seen
    }

    /// Returns the bytes of a message that was never completed.
    pub(super) fn rest(&mut self) -> Vec<u8> {
        std::mem::take(&mut self.unread)
    }
}

/// The maximum length. The values of a server that keeps locks are shorter.
const LONGEST_VALUE: i64 = 512 * 1024 * 1024;

/// Values in RESP2 and RESP3.
#[derive(Debug, Default)]
struct Values {
    /// Whether the client has subscribed. In RESP2 a pushed message looks like any other list, but
    /// only subscribers get one.
    subscribed: bool,
}

impl Reader for Values {
    fn first(&mut self, bytes: &[u8]) -> First {
        let length = match length(bytes) {
            Length::Whole(length) => length,
            Length::Part => return First::Part,
            Length::Foreign => return First::Foreign,
        };
        let (is_push, is_list) = (bytes[0] == b'>', bytes[0] == b'*');
        match first_word(bytes) {
            b"message" | b"pmessage" | b"smessage" if is_push || is_list && self.subscribed => {
                return First::Push(length);
            }
            b"invalidate" if is_push => return First::Push(length),
            b"subscribe" | b"psubscribe" | b"ssubscribe" if is_list => self.subscribed = true,
            _ => {}
        }
        First::Answer(length)
    }
}

enum Length {
    Whole(usize),
    Part,
    Foreign,
}

/// Returns the length of the first value with all values that it contains.
fn length(bytes: &[u8]) -> Length {
    let (mut at, mut due) = (0_usize, 1_usize);
    while due > 0 {
        let Some(rest) = bytes.get(at..).filter(|rest| !rest.is_empty()) else {
            return Length::Part;
        };
        let kind = rest[0];
        if !b"+-:,_#($!=*~>%|".contains(&kind) {
            return Length::Foreign;
        }
        let Some(end) = line_end(rest) else {
            return Length::Part;
        };
        at += end + 2;
        due -= 1;
        if b"+-:,_#(".contains(&kind) {
            continue;
        }
        let number = std::str::from_utf8(&rest[1..end]).ok().and_then(|text| text.parse().ok());
        let Some(number @ -1..=LONGEST_VALUE) = number else {
            return Length::Foreign;
        };
        // A null value has the length -1.
        let Ok(number) = usize::try_from(number) else {
            continue;
        };
        match kind {
            b'$' | b'!' | b'=' => at += number + 2,
            b'%' => due += 2 * number,
            // The value that the attribute describes follows it.
            b'|' => due += 2 * number + 1,
            _ => due += number,
        }
    }
    if at <= bytes.len() { Length::Whole(at) } else { Length::Part }
}

/// Returns the first text of a list.
fn first_word(bytes: &[u8]) -> &[u8] {
    let word = || {
        let rest = &bytes[line_end(bytes)? + 2..];
        let end = line_end(rest).filter(|_| rest[0] == b'$')?;
        let word = &rest[end + 2..];
        word.get(..line_end(word)?)
    };
    word().unwrap_or_default()
}

fn line_end(bytes: &[u8]) -> Option<usize> {
    bytes.windows(2).position(|pair| pair == b"\r\n")
}

/// The maximum length of a message.
const LONGEST_MESSAGE: usize = 1 << 30;

/// Parses messages: a letter, a length that counts itself, and the rest.
#[derive(Debug, Default)]
struct Messages {
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
            Ok(length @ 4..=LONGEST_MESSAGE) if length >= bytes.len() => First::Part,
            Ok(length @ 4..=LONGEST_MESSAGE) if bytes[0] == b'A' => First::Push(length + 1),
            Ok(length @ 4..=LONGEST_MESSAGE) => First::Answer(length + 1),
            _ => First::Foreign,
        }
    }
}

/// The maximum length, beyond which servers refuse records by default. A text, which answers a
/// four-letter word, would have a greater length if it were read as a record.
const LONGEST_RECORD: usize = 16 * 1024 * 1024;

/// The request number of an event.
const EVENT: [u8; 4] = (-1_i32).to_be_bytes();

/// Parses records: a length, the number of the request, and the rest.
#[derive(Debug, Default)]
struct Records {
    /// `false` before the first record, which is about the session and has no number.
    greeted: bool,
}

impl Reader for Records {
    fn first(&mut self, bytes: &[u8]) -> First {
        let Some((length, rest)) = bytes.split_first_chunk::<4>() else {
            return First::Part;
        };
        match usize::try_from(u32::from_be_bytes(*length)) {
            Ok(length @ ..=LONGEST_RECORD) if length > rest.len() => First::Part,
            Ok(length @ ..=LONGEST_RECORD) if self.greeted && rest.starts_with(&EVENT) => {
                First::Push(length + 4)
            }
            Ok(length @ ..=LONGEST_RECORD) => {
                self.greeted = true;
                First::Answer(length + 4)
            }
            Err(_) | Ok(_) => First::Foreign,
        }
    }
}

/// The length of a frame's header: a length of three bytes, the kind, flags, and the stream.
const HEADER: usize = 9;

/// The maximum length of a frame, unless a client asks for longer ones. The bytes of TLS and of
/// HTTP/1 would have a greater length if they were read as a frame.
const LONGEST_FRAME: usize = 16 * 1024;

/// The kind of frames with data.
const DATA: u8 = 0;

/// The field of a `WatchResponse` with its events. No other answer of etcd that dlock uses has a
/// field of this number and type.
const EVENTS: u64 = 11 << 3 | 2;

/// Parses the frames of HTTP/2, as far as they carry messages of gRPC. Only frames with the events
/// of watches are removed. Headers are not, because the two ends of a connection share a table of
/// them.
#[derive(Debug, Default)]
struct Frames;

impl Reader for Frames {
    fn first(&mut self, bytes: &[u8]) -> First {
        let Some((&[a, b, c, kind, ..], rest)) = bytes.split_first_chunk::<HEADER>() else {
            return First::Part;
        };
        match usize::from(a) << 16 | usize::from(b) << 8 | usize::from(c) {
            length if length > LONGEST_FRAME => First::Foreign,
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

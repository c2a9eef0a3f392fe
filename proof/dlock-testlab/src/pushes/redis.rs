//! The values that a Redis server sends.

use super::{First, Reader};

/// The maximum length. The values of a server that keeps locks are shorter.
const LONGEST: i64 = 512 * 1024 * 1024;

/// Values in RESP2 and RESP3.
#[derive(Debug, Default)]
pub(super) struct Values {
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
        let Some(number @ -1..=LONGEST) = number else {
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

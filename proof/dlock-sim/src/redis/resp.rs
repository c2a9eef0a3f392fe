//! The protocol of Redis: commands, and answers as RESP3 has them.
//!
//! See <https://redis.io/docs/latest/develop/reference/protocol-spec/>.

pub(super) type Bytes = Vec<u8>;

/// An answer or a message.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Value {
    Null,
    Integer(i64),
    Text(Bytes),
    Verbatim(String),
    Status(Bytes),
    Error(Bytes),
    Score(f64),
    Array(Vec<Value>),
    /// Members with their scores: pairs for a client, and a flat list for a script.
    Scored(Vec<(f64, Bytes)>),
    Map(Vec<(Value, Value)>),
    Push(Vec<Value>),
}

impl Value {
    pub(super) fn ok() -> Self {
        Self::Status(b"OK".to_vec())
    }

    pub(super) fn text(text: impl AsRef<[u8]>) -> Self {
        Self::Text(text.as_ref().to_vec())
    }

    pub(super) fn error(text: impl AsRef<[u8]>) -> Self {
        Self::Error(text.as_ref().to_vec())
    }

    pub(super) fn count(number: usize) -> Self {
        Self::Integer(i64::try_from(number).unwrap_or(i64::MAX))
    }

    /// Returns the value as a client receives it.
    pub(super) fn encoded(&self) -> Bytes {
        let mut bytes = Bytes::new();
        self.write(&mut bytes);
        bytes
    }

    /// Writes the value as a client receives it.
    pub(super) fn write(&self, out: &mut Bytes) {
        match self {
            Self::Null => line(out, b'_', b""),
            Self::Integer(number) => line(out, b':', number.to_string().as_bytes()),
            Self::Text(text) => long(out, b'$', text),
            Self::Verbatim(text) => long(out, b'=', format!("txt:{text}").as_bytes()),
            Self::Status(text) => line(out, b'+', &on_one_line(text)),
            Self::Error(text) => {
                let end = text.iter().rposition(|byte| !b"\r\n".contains(byte));
                line(out, b'-', &on_one_line(&text[..end.map_or(0, |end| end + 1)]));
            }
            Self::Score(score) => line(out, b',', number_text(*score).as_bytes()),
            Self::Array(values) => list(out, b'*', values),
            Self::Scored(members) => {
                let pairs = members.iter().map(|(score, member)| {
                    Self::Array(vec![Self::text(member), Self::Score(*score)])
                });
                list(out, b'*', &Vec::from_iter(pairs));
            }
            Self::Map(pairs) => {
                line(out, b'%', pairs.len().to_string().as_bytes());
                for (name, value) in pairs {
                    name.write(out);
                    value.write(out);
                }
            }
            Self::Push(values) => list(out, b'>', values),
        }
    }
}

fn line(out: &mut Bytes, kind: u8, text: &[u8]) {
    out.push(kind);
    out.extend_from_slice(text);
    out.extend_from_slice(b"\r\n");
}

fn long(out: &mut Bytes, kind: u8, text: &[u8]) {
    line(out, kind, text.len().to_string().as_bytes());
    out.extend_from_slice(text);
    out.extend_from_slice(b"\r\n");
}

fn list(out: &mut Bytes, kind: u8, values: &[Value]) {
    line(out, kind, values.len().to_string().as_bytes());
    for value in values {
        value.write(out);
    }
}

fn on_one_line(text: &[u8]) -> Bytes {
    text.iter().map(|&byte| if b"\r\n".contains(&byte) { b' ' } else { byte }).collect()
}

/// Takes the next command from the bytes that a connection has received. `None` while it is
/// incomplete.
pub(super) fn next_command(received: &mut Bytes) -> Option<Vec<Bytes>> {
    let (count, mut at) = length(received, 0, b'*')?;
    let mut words = Vec::with_capacity(count);
    for _ in 0..count {
        let (length, begin) = length(received, at, b'$')?;
        at = begin + length + 2;
        words.push(received.get(begin..at)?[..length].to_vec());
    }
    received.drain(..at);
    Some(words)
}

/// Reads a line with a length at this position. Returns the length, and where the line ends.
fn length(received: &[u8], at: usize, kind: u8) -> Option<(usize, usize)> {
    let line = received.get(at..)?;
    let end = line.windows(2).position(|two| two == b"\r\n")?;
    let digits = line[..end].strip_prefix(&[kind]).and_then(|text| str::from_utf8(text).ok());
    let length = digits.and_then(|digits| digits.parse().ok());
    Some((length.expect("clients send commands as lists of texts"), at + end + 2))
}

/// Returns a number as `%.17g` of C shows it.
pub(super) fn number_text(number: f64) -> String {
    if !number.is_finite() {
        return number.to_string().to_lowercase();
    }
    let scientific = format!("{number:.16e}");
    let (digits, exponent) = scientific.split_once('e').expect("it has an exponent");
    let exponent: i32 = exponent.parse().expect("an exponent is a number");
    match usize::try_from(16 - exponent) {
        Ok(decimals) if exponent >= -4 => trimmed(&format!("{number:.decimals$}")).to_owned(),
        _ => {
            let sign = if exponent < 0 { '-' } else { '+' };
            format!("{}e{sign}{:02}", trimmed(digits), exponent.abs())
        }
    }
}

fn trimmed(digits: &str) -> &str {
    match digits.contains('.') {
        true => digits.trim_end_matches('0').trim_end_matches('.'),
        false => digits,
    }
}

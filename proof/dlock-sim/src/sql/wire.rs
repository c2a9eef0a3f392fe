//! Messages between the engine and the simulated server: texts, each with its length before it.
//!
//! `dlock-sql` contains this file, too, in builds with `cfg(dlock_sim)`.

/// A null in an answer.
pub(crate) const NULL: &str = "\\N";
/// The first text of a refusal, and of a notification. That of an answer with rows is "rows".
pub(crate) const ERROR: &str = "error";
pub(crate) const NOTIFICATION: &str = "notification";

/// Returns the bytes of a message.
pub(crate) fn encoded<T: AsRef<str>>(texts: &[T]) -> Vec<u8> {
    let with_length = |text: &str| format!("{} {text}", text.len());
    let texts = texts.iter().map(|text| with_length(text.as_ref())).collect::<Vec<_>>();
    format!("{} {}", texts.len(), texts.concat()).into_bytes()
}

/// Takes the next message out of these bytes, if it is complete.
pub(crate) fn take(bytes: &mut Vec<u8>) -> Option<Vec<String>> {
    let mut at = 0;
    let texts = length(bytes, &mut at)?;
    let mut message = Vec::with_capacity(texts);
    for _ in 0..texts {
        let end = length(bytes, &mut at)? + at;
        message.push(String::from_utf8_lossy(bytes.get(at..end)?).into_owned());
        at = end;
    }
    bytes.drain(..at);
    Some(message)
}

fn length(bytes: &[u8], at: &mut usize) -> Option<usize> {
    let rest = &bytes[*at..];
    let end = rest.iter().position(|byte| *byte == b' ')?;
    *at += end + 1;
    str::from_utf8(&rest[..end]).ok()?.parse().ok()
}

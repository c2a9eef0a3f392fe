//! Arguments for many rows as one JSON array, which SQLite parses.

use std::fmt::Write as _;

/// A JSON array under construction.
#[derive(Debug)]
pub(crate) struct Array(String);

impl Array {
    pub(crate) fn new() -> Self {
        Self::with_room(0)
    }

    /// Creates an array with room for this many bytes.
    pub(crate) fn with_room(bytes: usize) -> Self {
        let mut text = String::with_capacity(bytes);
        text.push('[');
        Self(text)
    }

    /// Adds a text.
    pub(crate) fn text(mut self, text: &str) -> Self {
        self.comma();
        self.0.push('"');
        let mut rest = text;
        // Only ASCII characters are escaped, and most texts have none of them.
        while let Some(at) = rest.bytes().position(|b| b == b'"' || b == b'\\' || b < b' ') {
            self.0.push_str(&rest[..at]);
            // Writing to a String does not fail.
            let _ = write!(self.0, "\\u{:04x}", rest.as_bytes()[at]);
            rest = &rest[at + 1..];
        }
        self.0.push_str(rest);
        self.0.push('"');
        self
    }

    /// Adds a number.
    pub(crate) fn number(mut self, number: i64) -> Self {
        self.comma();
        // Writing to a String does not fail.
        let _ = write!(self.0, "{number}");
        self
    }

    /// Adds an array, which `fill` fills.
    pub(crate) fn array(mut self, fill: impl FnOnce(Self) -> Self) -> Self {
        self.comma();
        self.0.push('[');
        Self(fill(self).finish())
    }

    /// Returns the array as text.
    pub(crate) fn finish(mut self) -> String {
        self.0.push(']');
        self.0
    }

    fn comma(&mut self) {
        if !self.0.ends_with('[') {
            self.0.push(',');
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_are_escaped() {
        let array = Array::new()
            .array(|array| array.text("a\"b\\c\u{1}🔒").number(-5).text("[").text("]"))
            .array(|array| array);
        assert_eq!(array.finish(), "[[\"a\\u0022b\\u005cc\\u0001🔒\",-5,\"[\",\"]\"],[]]");
    }
}

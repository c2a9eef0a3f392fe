//! Arguments for many rows as one JSON array, which SQLite takes apart again.

use std::fmt::Write as _;

/// A JSON array under construction.
#[derive(Debug)]
pub(crate) struct Array(String);

impl Array {
    pub(crate) fn new() -> Self {
        Self(String::from("["))
    }

    /// Adds a text.
    pub(crate) fn text(mut self, text: &str) -> Self {
        self.comma();
        self.0.push('"');
        for c in text.chars() {
            match c {
                '"' | '\\' => self.0.extend(['\\', c]),
                c if c < ' ' => self.0.push_str(&format!("\\u{:04x}", u32::from(c))),
                c => self.0.push(c),
            }
        }
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

    /// Adds an array of what `fill` adds.
    pub(crate) fn array(mut self, fill: impl FnOnce(Self) -> Self) -> Self {
        self.comma();
        self.0.push('[');
        Self(fill(self).finish())
    }

    /// The array as text.
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
        assert_eq!(array.finish(), "[[\"a\\\"b\\\\c\\u0001🔒\",-5,\"[\",\"]\"],[]]");
    }
}

//! Arguments for many rows as one JSON array, which SQLite takes apart again.

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
        self.0.push_str(&number.to_string());
        self
    }

    /// Adds an array.
    pub(crate) fn array(mut self, array: Self) -> Self {
        self.comma();
        self.0.push_str(&array.finish());
        self
    }

    /// The array as text.
    pub(crate) fn finish(mut self) -> String {
        self.0.push(']');
        self.0
    }

    fn comma(&mut self) {
        if self.0.len() > 1 {
            self.0.push(',');
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_are_escaped() {
        let array = Array::new().text("a\"b\\c\u{1}🔒").number(-5);
        let array = Array::new().array(array).array(Array::new());
        assert_eq!(array.finish(), "[[\"a\\\"b\\\\c\\u0001🔒\",-5],[]]");
    }
}

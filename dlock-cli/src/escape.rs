//! Characters that change the direction of text, in output for people.
//!
//! A name or a note may contain one of them, and would turn the rest of its line around, so that it
//! looks like another line. JSON has each text as it is.

use std::borrow::Cow;

/// Returns the text with these characters escaped, as in `\u{202e}`.
pub(crate) fn escaped(text: &str) -> Cow<'_, str> {
    if !text.contains(turns) {
        return text.into();
    }
    let mut shown = String::with_capacity(text.len());
    for c in text.chars() {
        match turns(c) {
            true => shown.extend(c.escape_unicode()),
            false => shown.push(c),
        }
    }
    shown.into()
}

/// Whether Unicode lists the character as `Bidi_Control`.
const fn turns(c: char) -> bool {
    matches!(
        c,
        '\u{61c}' | '\u{200e}' | '\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}'
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_characters_that_change_the_direction_are_escaped() {
        for text in ["", "a/b", "caf\u{e9}", "日本語", "\u{5e9}\u{5dc}\u{5d5}\u{5dd}", "\\u{202e}"]
        {
            assert_eq!(escaped(text), text);
        }
        assert_eq!(escaped("a\u{202e}b"), "a\\u{202e}b");
        assert_eq!(escaped("\u{61c}\u{200f}\u{2069}"), "\\u{61c}\\u{200f}\\u{2069}");
    }
}

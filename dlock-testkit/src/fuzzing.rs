//! The laws of the lines that processes write down, for arbitrary bytes: each panics where one is
//! broken.
//!
//! `fuzz/` runs them for long, the tests below for short. Not part of a normal build.

use crate::load::{belief, line::Line};

/// A line of a log: what is read can be written, and reads as itself.
pub fn line(data: &[u8]) {
    let Ok(text) = std::str::from_utf8(data) else { return };
    // What is read has no line feed in it.
    let text = text.lines().next().unwrap_or_default();
    if let Ok(line) = text.parse::<Line>() {
        let written = line.to_string();
        assert_eq!(written.parse::<Line>().ok(), Some(line), "{written}");
    }
}

/// A whole log: one tale for each hold, of the process that wrote it.
pub fn log(data: &[u8]) {
    let Ok(text) = std::str::from_utf8(data) else { return };
    if let Ok(tales) = belief::read(text, 3, None) {
        assert!(tales.is_sorted_by_key(|tale| tale.hold));
        assert!(tales.iter().all(|tale| (3000..4000).contains(&tale.actor)));
        assert!(tales.iter().all(|tale| tale.ended() <= tale.until));
    }
}

#[cfg(test)]
mod tests {
    use crate::inputs::try_on;

    const LINES: &[&str] = &[
        "1 ask 0 storm x 1 a",
        "1 ask 2 well 2/3 1 a b",
        "1 got 5 7 80",
        "1 keep 70",
        "1 share 8",
        "1 let 30",
        "1 left 31 released",
        "1 lost 20 revoked",
        "1 not 5 busy ",
        "\n",
        "\r",
        "1",
        " ",
        "ask",
        "18446744073709551615",
        "+1",
        "x",
    ];

    #[test]
    fn lines() {
        try_on(LINES, super::line);
    }

    #[test]
    fn logs() {
        try_on(LINES, super::log);
    }
}

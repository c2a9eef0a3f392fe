//! The laws of the log lines for arbitrary bytes. Each function panics if a law is broken.
//!
//! `proof/fuzz/` runs them for a long time, the tests below for a short time. They are not part of a
//! normal build.

use std::collections::BTreeMap;

use crate::{history, line::Line};

/// A line of a log: a parsed line survives a round trip through its text.
pub fn line(data: &[u8]) {
    let Ok(text) = std::str::from_utf8(data) else { return };
    // A line that is read contains no line feed.
    let text = text.lines().next().unwrap_or_default();
    if let Ok(line) = text.parse::<Line>() {
        let written = line.to_string();
        assert_eq!(written.parse::<Line>().ok(), Some(line), "{written}");
    }
}

/// A whole log: each hold gives one acquisition, which does not last longer than was promised.
pub fn log(data: &[u8]) {
    let Ok(text) = std::str::from_utf8(data) else { return };
    let Ok(lines) = history::read(text) else { return };
    if let Ok(acquisitions) = history::acquisitions(&lines, &BTreeMap::new()) {
        assert!(acquisitions.is_sorted_by_key(|acquisition| acquisition.hold));
        assert!(acquisitions.iter().all(|acquisition| acquisition.ended() <= acquisition.until));
    }
}

#[cfg(test)]
mod tests {
    use dlock_testkit::inputs::try_on;

    const LINES: &[&str] = &[
        r#"{"process":3,"hold":1,"at":1,"did":"ask","task":0,"kind":"fair","phase":"storm","mode":"x","name":"a"}"#,
        r#"{"process":3,"hold":1,"at":1,"did":"ask","task":2,"kind":"mutex","phase":"well","mode":"2/3","name":"b"}"#,
        r#"{"process":3,"hold":1,"at":5,"did":"got","token":7,"until":80}"#,
        r#"{"process":3,"hold":1,"at":9,"did":"keep","until":70}"#,
        r#"{"process":3,"hold":1,"at":8,"did":"share"}"#,
        r#"{"process":3,"hold":1,"at":30,"did":"let"}"#,
        r#"{"process":3,"hold":1,"at":31,"did":"left","how":"released"}"#,
        r#"{"process":3,"hold":1,"at":20,"did":"lost","how":"revoked"}"#,
        r#"{"process":3,"hold":1,"at":5,"did":"not","how":"busy","text":""}"#,
        r#"{"process":3,"at":50,"did":"late","since":4}"#,
        r#"{"process":3,"at":50,"did":"abort","below":4}"#,
        r#"{"process":3,"at":50,"did":"uses","when":"early","fds":1,"tasks":2,"threads":3}"#,
        "{",
        "}",
        "\"hold\":",
        "\n",
        "\r",
        "1",
        " ",
        ",",
        "18446744073709551615",
        "-1",
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

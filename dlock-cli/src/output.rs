//! The output of commands: locks and claims as JSON with stable names, or as plain text.

use std::{
    io::{ErrorKind, Write},
    time::Duration,
};

use dlock::{
    LockName,
    admin::{ClaimState, LockState, Mode},
};
use serde::Serialize;
use unicode_width::UnicodeWidthStr as _;

use crate::{
    escape::escaped,
    failure::{Failure, code},
};

/// The JSON form of a lock.
#[derive(Debug, Serialize)]
pub(crate) struct LockView {
    pub(crate) name: String,
    /// Whether the lock has no holder and no waiter.
    pub(crate) free: bool,
    pub(crate) holders: Vec<ClaimView>,
    pub(crate) waiters: Vec<ClaimView>,
    pub(crate) last_token: Option<u64>,
}

/// The JSON form of a claim.
#[derive(Debug, Serialize)]
pub(crate) struct ClaimView {
    pub(crate) claim: String,
    /// `exclusive`, `shared` or `permits`.
    pub(crate) mode: &'static str,
    /// The number of permits, and of how many, if the mode is `permits`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) permits: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) of: Option<u32>,
    pub(crate) token: Option<u64>,
    /// The time since the claim was granted or began to wait; null if the store does not know it.
    age_ms: Option<u64>,
    /// The time until the lease expires without renewal; null if it never does.
    remaining_ms: Option<u64>,
    /// The note of the claim's client; null if the client sets none or the store keeps no notes.
    pub(crate) note: Option<String>,
}

impl LockView {
    pub(crate) fn new(name: &LockName, state: &LockState) -> Self {
        Self {
            name: name.to_string(),
            free: state.is_free(),
            holders: state.holders.iter().map(ClaimView::new).collect(),
            waiters: state.waiters.iter().map(ClaimView::new).collect(),
            last_token: state.last_token.map(dlock::FencingToken::get),
        }
    }

    /// A lock without holders and waiters. The store may have deleted its other data.
    pub(crate) fn gone(name: String) -> Self {
        Self { name, free: true, holders: Vec::new(), waiters: Vec::new(), last_token: None }
    }

    /// Returns one line: `jobs/7: held by 1 (exclusive, token 12), 2 waiting (first db-1)`.
    pub(crate) fn line(&self) -> String {
        format!("{}: {}", self.name, self.state())
    }

    /// Returns the line without the name, with the notes of the first holder and the first waiter:
    /// `held by 1 (exclusive, token 12, for 3s, web-3 pid 4711 sh), 2 waiting (first db-1)`.
    pub(crate) fn state(&self) -> String {
        if self.free {
            return "free".to_owned();
        }
        let mut line = match self.holders.as_slice() {
            [] => "held by nobody".to_owned(),
            [first, ..] => {
                let token = first.token.map_or(String::new(), |token| format!(", token {token}"));
                let age = first.age_ms.map_or(String::new(), |age| format!(", for {}", short(age)));
                let (count, mode) = (self.holders.len(), first.mode());
                let note = first.note.as_ref().map_or(String::new(), |note| format!(", {note}"));
                format!("held by {count} ({mode}{token}{age}{note})")
            }
        };
        if !self.waiters.is_empty() {
            let first = self.waiters.first().and_then(|first| first.note.as_ref());
            let note = first.map_or(String::new(), |note| format!(" (first {note})"));
            line += &format!(", {} waiting{note}", self.waiters.len());
        }
        line
    }

    /// Returns all details in several lines.
    pub(crate) fn text(&self) -> String {
        let mut text = format!("{}\n", self.line());
        if let Some(token) = self.last_token {
            text += &format!("last token {token}\n");
        }
        if !self.free {
            let head = ["", "MODE", "TOKEN", "SINCE", "LEFT", "CLAIM", "NOTE"];
            let head = head.map(str::to_owned).to_vec();
            let holders = self.holders.iter().map(|claim| claim.row("holds"));
            let waiters = self.waiters.iter().map(|claim| claim.row("waits"));
            let rows: Vec<_> = std::iter::once(head).chain(holders).chain(waiters).collect();
            text += &table(&rows);
        }
        text
    }
}

impl ClaimView {
    pub(crate) fn new(state: &ClaimState) -> Self {
        let (mode, permits) = match state.mode {
            Mode::Exclusive => ("exclusive", None),
            Mode::Shared => ("shared", None),
            Mode::Permits { n, of } => ("permits", Some((n, of))),
            _ => ("unknown", None),
        };
        Self {
            claim: state.claim.to_string(),
            mode,
            permits: permits.map(|(n, _)| n),
            of: permits.map(|(_, of)| of),
            token: state.token.map(dlock::FencingToken::get),
            age_ms: state.age.map(millis),
            remaining_ms: (state.remaining < Duration::MAX).then(|| millis(state.remaining)),
            note: state.note.as_ref().map(dlock::admin::Note::to_string),
        }
    }

    pub(crate) fn mode(&self) -> String {
        match (self.permits, self.of) {
            (Some(n), Some(of)) => format!("{n} of {of}"),
            _ => self.mode.to_owned(),
        }
    }

    /// Returns for people how long it lasts without renewal.
    pub(crate) fn left(&self) -> String {
        self.remaining_ms.map_or("for ever".into(), short)
    }

    fn row(&self, what: &str) -> Vec<String> {
        vec![
            what.to_owned(),
            self.mode(),
            self.token.map_or("-".into(), |token| token.to_string()),
            self.age_ms.map_or("-".into(), short),
            self.left(),
            self.claim.clone(),
            self.note.clone().unwrap_or_else(|| "-".into()),
        ]
    }
}

/// Returns the rows with aligned columns.
pub(crate) fn table(rows: &[Vec<String>]) -> String {
    // Before the widths are known.
    let rows: Vec<Vec<String>> = rows
        .iter()
        .map(|row| row.iter().map(|cell| escaped(cell).into_owned()).collect())
        .collect();
    let columns = rows.iter().map(Vec::len).max().unwrap_or(0);
    let wide = |column: usize| {
        rows.iter().filter_map(|row| row.get(column)).map(|cell| cell.width()).max()
    };
    let widths: Vec<usize> = (0..columns).map(|column| wide(column).unwrap_or(0)).collect();
    let mut text = String::new();
    for row in &rows {
        let cells = row
            .iter()
            .zip(&widths)
            .map(|(cell, width)| format!("{cell}{:1$}", "", width.saturating_sub(cell.width())));
        text += cells.collect::<Vec<_>>().join("  ").trim_end();
        text.push('\n');
    }
    text
}

/// Returns the time in whole milliseconds.
pub(crate) fn millis(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
}

/// Returns a time for people: in whole seconds if it is a second or longer.
pub(crate) fn short(ms: u64) -> String {
    let exact = if ms < 1000 { ms } else { ms - ms % 1000 };
    humantime::format_duration(Duration::from_millis(exact)).to_string()
}

/// Prints one value on one line of stdout.
pub(crate) fn print_json(value: &impl Serialize) -> Result<(), Failure> {
    let line = serde_json::to_string(value).map_err(|error| {
        Failure::misuse(format!("the result can't be written as JSON ({error}): remove --json"))
    })?;
    write(&format!("{line}\n"))
}

/// Prints a text for people to stdout.
pub(crate) fn print(text: &str) -> Result<(), Failure> {
    write(&escaped(text))
}

fn write(text: &str) -> Result<(), Failure> {
    let mut out = std::io::stdout().lock();
    out.write_all(text.as_bytes()).and_then(|()| out.flush()).map_err(|error| match error.kind() {
        ErrorKind::BrokenPipe => Failure::new(code::PIPE, ""),
        _ => Failure::misuse(format!(
            "writing to stdout failed ({error}): check where the output goes"
        )),
    })
}

#[cfg(test)]
mod tests {
    use dlock::{
        FencingToken,
        admin::{ClaimId, Note},
    };

    use super::*;

    fn claim(mode: Mode, token: Option<u64>) -> ClaimState {
        ClaimState::new(
            ClaimId::from_bits(7),
            mode,
            token.map(|token| FencingToken::new(token).unwrap()),
            Duration::from_millis(29_400),
        )
        .with_age(token.map(|_| Duration::from_millis(3_900)))
        .with_note(token.and_then(|_| Note::new("web-3 pid 4711 sh").ok()))
    }

    #[test]
    fn the_first_waiter_is_shown() {
        let waiter = |note: &str| claim(Mode::Exclusive, None).with_note(Note::new(note).ok());
        let state = LockState::new(Vec::new(), vec![waiter("db-1"), waiter("db-2")], None);
        let view = LockView::new(&LockName::new("a").unwrap(), &state);
        assert_eq!(view.line(), "a: held by nobody, 2 waiting (first db-1)");
    }

    fn view() -> LockView {
        let holder = claim(Mode::Exclusive, Some(12));
        let waiter = claim(Mode::permits(2, 5).unwrap(), None);
        let state = LockState::new(vec![holder], vec![waiter], FencingToken::new(12).ok());
        LockView::new(&LockName::new("jobs/7").unwrap(), &state)
    }

    #[test]
    fn a_lock_is_shown_as_a_row_and_as_a_table() {
        let view = view();
        let line = "jobs/7: held by 1 (exclusive, token 12, for 3s, web-3 pid 4711 sh), 1 waiting";
        assert_eq!(view.line(), line);
        let text = view.text();
        assert!(text.contains("\nholds  exclusive  12     3s     29s   0000"), "{text}");
        assert!(text.contains("\nwaits  2 of 5     -      -      29s   0000"), "{text}");
        assert!(text.contains("007  web-3 pid 4711 sh\n") && text.ends_with("007  -\n"), "{text}");
        assert_eq!(LockView::gone("a".into()).text(), "a: free\n");
    }

    #[test]
    fn a_name_that_turns_text_around_does_not_shift_the_columns() {
        let rows = [["a\u{202e}b", "x"], ["c", "y"]].map(|row| row.map(str::to_owned).to_vec());
        assert_eq!(table(&rows), "a\\u{202e}b  x\nc           y\n");
        let json = serde_json::to_string(&LockView::gone("a\u{202e}b".into())).unwrap();
        assert!(json.contains("a\u{202e}b"), "{json}");
    }

    #[test]
    fn a_claim_that_never_expires_has_no_remaining_time() {
        let holder = ClaimState::new(ClaimId::UNKNOWN, Mode::Exclusive, None, Duration::MAX);
        let state = LockState::new(vec![holder], Vec::new(), None);
        let view = LockView::new(&LockName::new("a").unwrap(), &state);
        assert!(view.text().contains("  for ever  "), "{}", view.text());
        // Many parsers can't represent the largest 64-bit number.
        assert!(serde_json::to_value(view).unwrap()["holders"][0]["remaining_ms"].is_null());
    }

    #[test]
    fn json_names_stay() {
        let json = serde_json::to_value(view()).unwrap();
        assert_eq!(json["holders"][0]["token"], 12);
        assert_eq!(json["holders"][0]["age_ms"], 3_900);
        assert_eq!(json["holders"][0]["remaining_ms"], 29_400);
        assert_eq!(json["waiters"][0]["permits"], 2);
        assert_eq!(json["waiters"][0]["of"], 5);
        assert!(json["waiters"][0]["age_ms"].is_null());
        assert_eq!(json["holders"][0]["note"], "web-3 pid 4711 sh");
        assert!(json["waiters"][0]["note"].is_null());
        assert!(json["holders"][0].get("permits").is_none());
    }
}

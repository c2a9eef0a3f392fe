//! The table that `dlock watch` draws on a terminal.

use unicode_width::{UnicodeWidthChar as _, UnicodeWidthStr as _};

use crate::{
    escape::escaped,
    output::{self, ClaimView, LockView},
};

/// The names of the columns.
const HEAD: [&str; 6] = ["LOCK", "STATE", "HOLDER", "TOKEN", "LEFT", "WAITERS"];

/// The columns that are cut if the terminal is too narrow: names and notes.
const CUT: [usize; 2] = [0, 2];

/// The smallest width that a column is cut to.
const LEAST: usize = 8;

/// The lines that are not locks: the store, the names of the columns, the count of further locks,
/// and the cursor's.
const OTHER_LINES: usize = 4;

/// The size of the terminal, in characters.
#[derive(Clone, Copy, Debug)]
pub(super) struct Size {
    pub(super) rows: usize,
    pub(super) columns: usize,
}

/// Returns the content of the screen: the store, and a row for each lock that fits.
pub(super) fn screen(store: &str, views: &[LockView], size: Size) -> String {
    let room = size.rows.saturating_sub(OTHER_LINES).max(1);
    let mut lines = vec![format!("{store}: {}", count(views))];
    if !views.is_empty() {
        let head = HEAD.map(str::to_owned).to_vec();
        let mut rows = vec![head];
        rows.extend(views.iter().take(room).map(row));
        narrow(&mut rows, size.columns);
        lines.extend(output::table(&rows).lines().map(str::to_owned));
    }
    if views.len() > room {
        lines.push(format!("and {} more", views.len() - room));
    }
    lines.iter().map(|line| cut(line, size.columns) + "\n").collect()
}

fn count(views: &[LockView]) -> String {
    match views.iter().filter(|view| !view.free).count() {
        0 => "no lock is held or waited for".to_owned(),
        1 => "1 lock is held or waited for".to_owned(),
        many => format!("{many} locks are held or waited for"),
    }
}

/// Returns the row of a lock, with its first holder and the number of other holders.
fn row(view: &LockView) -> Vec<String> {
    let none = || "-".to_owned();
    let first = view.holders.first();
    let others = match view.holders.len() {
        0 | 1 => String::new(),
        many => format!(" (+{})", many - 1),
    };
    let state = match first {
        None if view.free => "free".to_owned(),
        None => "waiting".to_owned(),
        Some(first) => match first.of {
            // The sum of the permits of all holders.
            Some(of) => {
                let held: u32 = view.holders.iter().filter_map(|holder| holder.permits).sum();
                format!("{held} of {of}")
            }
            None => first.mode(),
        },
    };
    let note = first.and_then(|first| first.note.clone()).unwrap_or_else(none);
    vec![
        escaped(&view.name).into_owned(),
        state,
        escaped(&note).into_owned() + &others,
        first.and_then(|first| first.token).map_or_else(none, |token| token.to_string()),
        first.map_or_else(none, ClaimView::left),
        view.waiters.len().to_string(),
    ]
}

/// Cuts the wider of the two columns until the rows fit, so that a long name leaves the note room.
fn narrow(rows: &mut [Vec<String>], columns: usize) {
    let width = |column: usize| {
        rows.iter().filter_map(|row| row.get(column)).map(|cell| cell.width()).max().unwrap_or(0)
    };
    let mut widths: Vec<usize> = (0..HEAD.len()).map(width).collect();
    let total = widths.iter().sum::<usize>() + 2 * (HEAD.len() - 1);
    for _ in columns..total {
        let [first, second] = CUT;
        let wider = if widths[first] > widths[second] { first } else { second };
        if widths[wider] <= LEAST {
            break;
        }
        widths[wider] -= 1;
    }
    for column in CUT {
        for cell in rows.iter_mut().filter_map(|row| row.get_mut(column)) {
            *cell = cut(cell, widths[column]);
        }
    }
}

/// Returns a text of at most this width on a terminal, where some characters take two columns. If
/// it is longer, its end marks the cut.
fn cut(text: &str, width: usize) -> String {
    if text.width() <= width {
        return text.to_owned();
    }
    let mut short = String::new();
    let mut room = width.saturating_sub(1);
    for c in text.chars() {
        let wide = c.width().unwrap_or(0);
        if wide > room {
            break;
        }
        room -= wide;
        short.push(c);
    }
    if width > 0 {
        short.push('…');
    }
    short
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use dlock::{
        FencingToken, LockName,
        admin::{ClaimId, ClaimState, LockState, Mode, Note},
    };

    use super::*;

    const WIDE: Size = Size { rows: 24, columns: 100 };

    fn holder(mode: Mode, token: u64, note: &str) -> ClaimState {
        let token = FencingToken::new(token).unwrap();
        ClaimState::new(ClaimId::from_bits(7), mode, Some(token), Duration::from_millis(28_700))
            .with_note(Note::new(note).ok())
    }

    fn waiter() -> ClaimState {
        let left = Duration::from_secs(30);
        ClaimState::new(ClaimId::from_bits(8), Mode::Exclusive, None, left)
    }

    fn lock(name: &str, holders: Vec<ClaimState>, waiters: Vec<ClaimState>) -> LockView {
        LockView::new(&LockName::new(name).unwrap(), &LockState::new(holders, waiters, None))
    }

    fn job() -> LockView {
        let held = holder(Mode::Exclusive, 1_795_430_128_330_001, "web-3 pid 471 report.sh");
        lock("nightly-job", vec![held], vec![waiter()])
    }

    fn pool() -> LockView {
        let held = |n| holder(Mode::permits(n, 4).unwrap(), 7, "");
        lock("pool", vec![held(1), held(2)], Vec::new())
    }

    #[test]
    fn the_table_is_the_one_that_the_readme_shows() {
        let shows = "\
redis://localhost:6379: 2 locks are held or waited for
LOCK         STATE      HOLDER                   TOKEN             LEFT  WAITERS
nightly-job  exclusive  web-3 pid 471 report.sh  1795430128330001  28s   1
pool         3 of 4     - (+1)                   7                 28s   0
";
        assert_eq!(screen("redis://localhost:6379", &[job(), pool()], WIDE), shows);
        assert!(include_str!("../../README.md").contains(shows));
    }

    #[test]
    fn a_lock_that_was_removed_has_no_row() {
        let before = screen("s", &[job(), pool()], WIDE);
        let after = screen("s", &[pool()], WIDE);
        assert!(before.contains("\nnightly-job "));
        assert_eq!(
            after,
            "s: 1 lock is held or waited for\n\
             LOCK  STATE   HOLDER  TOKEN  LEFT  WAITERS\n\
             pool  3 of 4  - (+1)  7      28s   0\n"
        );
    }

    #[test]
    fn an_empty_table_is_one_row() {
        assert_eq!(screen("s", &[], WIDE), "s: no lock is held or waited for\n");
    }

    #[test]
    fn a_free_lock_and_one_with_waiters_only_have_no_holder() {
        let views = [lock("a", Vec::new(), Vec::new()), lock("b", Vec::new(), vec![waiter()])];
        assert_eq!(
            screen("s", &views, WIDE),
            "s: 1 lock is held or waited for\n\
             LOCK  STATE    HOLDER  TOKEN  LEFT  WAITERS\n\
             a     free     -       -      -     0\n\
             b     waiting  -       -      -     1\n"
        );
    }

    #[test]
    fn the_wider_of_names_and_notes_is_cut() {
        let size = |columns| Size { rows: 24, columns };
        let long = || lock("inventory/0123456789", vec![], vec![]);
        assert_eq!(
            screen("s", &[job(), long()], size(80)),
            "s: 1 lock is held or waited for\n\
             LOCK               STATE      HOLDER             TOKEN             LEFT  WAITERS\n\
             nightly-job        exclusive  web-3 pid 471 re…  1795430128330001  28s   1\n\
             inventory/012345…  free       -                  -                 -     0\n"
        );
        assert_eq!(
            screen("s", &[job(), long()], size(64)),
            "s: 1 lock is held or waited for\n\
             LOCK       STATE      HOLDER     TOKEN             LEFT  WAITERS\n\
             nightly-…  exclusive  web-3 pi…  1795430128330001  28s   1\n\
             inventor…  free       -          -                 -     0\n"
        );
        let longest = || lock(&"n".repeat(200), vec![], vec![]);
        let text = screen("s", &[job(), longest()], size(100));
        assert!(text.contains("web-3 pid 471 report.sh"), "{text}");
        for columns in [0, 1, 20] {
            let text = screen("a-long-store", &[job(), long()], size(columns));
            assert!(text.lines().all(|line| line.chars().count() <= columns), "{text}");
        }
    }

    #[test]
    fn wide_characters_take_two_columns() {
        let views = [lock("日本語/ロック", vec![], vec![]), lock("a", vec![], vec![])];
        assert_eq!(
            screen("s", &views, WIDE),
            "s: no lock is held or waited for\n\
             LOCK           STATE  HOLDER  TOKEN  LEFT  WAITERS\n\
             日本語/ロック  free   -       -      -     0\n\
             a              free   -       -      -     0\n"
        );
        assert_eq!(cut("日本語", 5), "日本…");
        assert_eq!(cut("日本語", 4), "日…");
        // A combining accent takes no column.
        assert_eq!(cut("e\u{301}a", 2), "e\u{301}a");
    }

    #[test]
    fn characters_that_turn_text_around_are_escaped_before_a_cut() {
        let held = holder(Mode::Exclusive, 7, "web\u{202e}3");
        let views = [lock("a\u{2066}b", vec![held], vec![])];
        let text = screen("s", &views, Size { rows: 24, columns: 54 });
        assert!(text.contains("\na\\u{2066}b  exclusive  web\\u{20…  7"), "{text}");
        assert!(text.lines().all(|line| line.width() <= 54), "{text}");
    }

    #[test]
    fn rows_that_do_not_fit_are_counted() {
        let views = ["a", "b", "c"].map(|name| lock(name, vec![], vec![waiter()]));
        let text = screen("s", &views, Size { rows: 6, columns: 100 });
        assert_eq!(text.lines().count(), 5, "{text}");
        assert!(text.ends_with("b     waiting  -       -      -     1\nand 1 more\n"), "{text}");
    }
}

//! The table that `dlock watch` draws on a terminal.

use crate::output::{self, LockView};

/// The names of the columns.
const HEAD: [&str; 6] = ["LOCK", "STATE", "HOLDER", "TOKEN", "LEFT", "WAITERS"];

/// The columns that are cut if the terminal is too narrow, in this order: notes, then names.
const CUT: [usize; 2] = [2, 0];

/// The smallest number of characters that a column is cut to.
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
        view.name.clone(),
        state,
        note + &others,
        first.and_then(|first| first.token).map_or_else(none, |token| token.to_string()),
        first.map_or_else(none, |first| output::short(first.remaining_ms)),
        view.waiters.len().to_string(),
    ]
}

/// Cuts columns until the rows fit.
fn narrow(rows: &mut [Vec<String>], columns: usize) {
    let width = |rows: &[Vec<String>], column: usize| {
        rows.iter().filter_map(|row| row.get(column)).map(|cell| cell.chars().count()).max()
    };
    let widths = (0..HEAD.len()).map(|column| width(rows, column).unwrap_or(0));
    let total = widths.sum::<usize>() + 2 * (HEAD.len() - 1);
    let mut over = total.saturating_sub(columns);
    for column in CUT {
        let wide = width(rows, column).unwrap_or(0);
        let to = wide - over.min(wide.saturating_sub(LEAST));
        over -= wide - to;
        for cell in rows.iter_mut().filter_map(|row| row.get_mut(column)) {
            *cell = cut(cell, to);
        }
    }
}

/// Returns at most `width` characters. If the text is longer, the last one marks the cut.
fn cut(text: &str, width: usize) -> String {
    if text.chars().count() <= width {
        return text.to_owned();
    }
    let mut short: String = text.chars().take(width.saturating_sub(1)).collect();
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
        let held = holder(Mode::Exclusive, 1_795_430_128_330_001, "web-3 pid 4711 report.sh");
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
LOCK         STATE      HOLDER                    TOKEN             LEFT  WAITERS
nightly-job  exclusive  web-3 pid 4711 report.sh  1795430128330001  28s   1
pool         3 of 4     - (+1)                    7                 28s   0
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
    fn no_locks_have_one_line() {
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
    fn notes_are_cut_first_and_then_names() {
        let size = |columns| Size { rows: 24, columns };
        let long = || lock("inventory/0123456789", vec![], vec![]);
        assert_eq!(
            screen("s", &[job(), long()], size(80)),
            "s: 1 lock is held or waited for\n\
             LOCK                  STATE      HOLDER          TOKEN             LEFT  WAITERS\n\
             nightly-job           exclusive  web-3 pid 471…  1795430128330001  28s   1\n\
             inventory/0123456789  free       -               -                 -     0\n"
        );
        assert_eq!(
            screen("s", &[job(), long()], size(64)),
            "s: 1 lock is held or waited for\n\
             LOCK        STATE      HOLDER    TOKEN             LEFT  WAITERS\n\
             nightly-j…  exclusive  web-3 p…  1795430128330001  28s   1\n\
             inventory…  free       -         -                 -     0\n"
        );
        for columns in [0, 1, 20] {
            let text = screen("a-long-store", &[job(), long()], size(columns));
            assert!(text.lines().all(|line| line.chars().count() <= columns), "{text}");
        }
    }

    #[test]
    fn rows_that_do_not_fit_are_counted() {
        let views = ["a", "b", "c"].map(|name| lock(name, vec![], vec![waiter()]));
        let text = screen("s", &views, Size { rows: 6, columns: 100 });
        assert_eq!(text.lines().count(), 5, "{text}");
        assert!(text.ends_with("b     waiting  -       -      -     1\nand 1 more\n"), "{text}");
    }
}

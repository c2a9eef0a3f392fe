//! The table of the measurements.

use std::{fmt::Write as _, time::Duration};

use crate::figures::Figures;

type Row = (&'static str, fn(&Figures) -> String);

const ROWS: [Row; 11] = [
    ("lock and release, p50", |f| time(f.speed.p50)),
    ("lock and release, p99", |f| time(f.speed.p99)),
    ("hand-offs a second", |f| format!("{:.0}", f.speed.hand_offs)),
    ("a waiter is woken by", |f| f.speed.guarantees.wake_up.to_string()),
    ("holder killed: next has it", |f| time(f.faults.orphan)),
    ("holder cut off: it knows", |f| f.faults.cut.map_or_else(none, |cut| time(cut.told))),
    ("holder cut off: next has it", |f| f.faults.cut.map_or_else(none, |cut| time(cut.passed))),
    ("server killed: it is up again", |f| f.faults.restart.map_or_else(none, |r| time(r.up))),
    ("server killed: it answers", |f| f.faults.restart.map_or_else(none, |r| time(r.away))),
    ("server killed: still held", |f| {
        f.faults.restart.map_or_else(none, |r| if r.second.is_none() { "yes" } else { "no" }.into())
    }),
    ("reaches", |f| f.speed.guarantees.scope.to_string()),
];

/// Returns a table with a line for each measurement and a column for each store.
pub(crate) fn table(all: &[Figures]) -> String {
    let mut text = format!("{:30}", "");
    for figures in all {
        let _ = write!(text, "{:>14}", figures.name);
    }
    text.push('\n');
    for (what, cell) in ROWS {
        let _ = write!(text, "{what:30}");
        for figures in all {
            let _ = write!(text, "{:>14}", cell(figures));
        }
        text.push('\n');
    }
    text
}

/// Formats a time for people.
pub(crate) fn time(time: Duration) -> String {
    match time {
        time if time >= Duration::from_secs(1) => format!("{:.2} s", time.as_secs_f64()),
        time if time >= Duration::from_millis(10) => format!("{} ms", time.as_millis()),
        time => format!("{:.2} ms", time.as_secs_f64() * 1e3),
    }
}

fn none() -> String {
    "-".to_owned()
}

//! The report as text and as JSON.

use std::fmt::Write as _;

use serde::Serialize;

use super::verdict::{Judgement, Tally};
use crate::breach::Check;

/// One store's row.
#[derive(Debug, Serialize)]
pub(super) struct Row {
    #[serde(flatten)]
    pub(super) judgement: Judgement,
    #[serde(flatten)]
    pub(super) tally: Tally,
}

/// The columns that must be zero, with the checks that each of them counts.
const ZEROS: [(&str, &[Check]); 6] = [
    ("overlaps", &[Check::Exclusion, Check::Kept]),
    ("tokens out of order", &[Check::Tokens]),
    ("stale writes accepted", &[Check::Resource]),
    ("lost wake-ups", &[Check::Liveness, Check::Fairness]),
    ("orphans, leaks", &[Check::Orphans, Check::Leaks]),
    ("panics, hangs, other", &[Check::Hangs, Check::Errors, Check::Losses, Check::Lateness]),
];

/// Returns the whole report as Markdown.
pub(super) fn markdown(rows: &[Row]) -> String {
    let mut text = String::from("# What was faults_end, and what was kept\n\n");
    text.push_str(&summary(rows));
    text.push_str("\n## Faults that are proven to have happened\n\n");
    text.push_str(&faults(rows));
    for row in rows {
        let reasons = row.judgement.reasons.iter().map(|reason| ("", reason));
        let missed = row.tally.missed.iter().map(|missed| ("not done: ", missed));
        let mut lines: Vec<_> = reasons.chain(missed).map(|(a, b)| format!("{a}{b}")).collect();
        for (check, violations) in &row.tally.violations {
            lines.extend(violations.examples.iter().map(|example| format!("{check}: {example}")));
        }
        if !lines.is_empty() {
            let _ = write!(text, "\n## {}: {}\n\n", row.tally.store, row.judgement.outcome);
            for line in lines {
                let _ = writeln!(text, "- {}", line.replace('\n', " "));
            }
        }
    }
    text
}

/// Returns the table that people compare.
pub(super) fn summary(rows: &[Row]) -> String {
    let mut table = Table::new(&["store", "verdict", "faults for", "grants", "faults (kinds)"]);
    for (title, _) in ZEROS {
        table.column(title);
    }
    for title in [
        "let in by a store that forgot or whose clock stepped",
        "warned",
        "stale writes refused",
        "grants/s before, during, after",
        "hand-off p50, p99",
        "`lost()` late p99, max",
    ] {
        table.column(title);
    }
    for row in rows {
        let tally = &row.tally;
        let (rates, hand_off, late) = (tally.rates, tally.hand_off_ms, tally.lateness_ms);
        let mut cells = vec![
            format!("{} ({})", tally.store, tally.what),
            row.judgement.outcome.to_string(),
            format!("{:.0} s", tally.faults_s),
            tally.grants.to_string(),
            format!("{} ({})", tally.proven(), tally.kinds()),
        ];
        cells.extend(ZEROS.map(|(_, checks)| tally.wrong(checks).to_string()));
        cells.extend([
            tally.excused.to_string(),
            tally.warned.to_string(),
            tally.refused.to_string(),
            format!("{:.0}, {:.0}, {:.0}", rates.before, rates.during, rates.after),
            format!("{:.1}, {:.0} ms", hand_off.p50, hand_off.p99),
            format!("{:.1}, {:.1} ms of {}", late.p99, late.max, late.count),
        ]);
        table.row(cells);
    }
    table.text()
}

fn faults(rows: &[Row]) -> String {
    let mut kinds: Vec<_> = rows.iter().flat_map(|row| row.tally.faults.keys()).collect();
    kinds.sort_unstable();
    kinds.dedup();
    let mut table = Table::new(&["fault"]);
    for row in rows {
        table.column(&row.tally.store);
    }
    for fault in kinds {
        let mut cells = vec![fault.to_string()];
        cells.extend(rows.iter().map(|row| match row.tally.faults.get(fault) {
            Some(count) if count.proven == count.tried => count.proven.to_string(),
            Some(count) => format!("{} of {}", count.proven, count.tried),
            None => "-".to_owned(),
        }));
        table.row(cells);
    }
    table.text()
}

/// Returns the whole report as JSON, for programs.
///
/// # Errors
/// None in practice: every value has a JSON form.
pub(super) fn json(rows: &[Row]) -> Result<String, serde_json::Error> {
    serde_json::to_string_pretty(rows)
}

struct Table {
    head: Vec<String>,
    rows: Vec<Vec<String>>,
}

impl Table {
    fn new(head: &[&str]) -> Self {
        Self { head: head.iter().map(|&title| title.to_owned()).collect(), rows: Vec::new() }
    }

    fn column(&mut self, title: &str) {
        self.head.push(title.to_owned());
    }

    fn row(&mut self, cells: Vec<String>) {
        self.rows.push(cells);
    }

    fn text(&self) -> String {
        let line = |cells: &[String]| format!("| {} |\n", cells.join(" | "));
        let rule = vec!["---".to_owned(); self.head.len()];
        let mut text = line(&self.head) + &line(&rule);
        for row in &self.rows {
            text.push_str(&line(row));
        }
        text
    }
}

#[cfg(test)]
mod tests {
    use super::{super::verdict::Outcome, *};

    #[test]
    fn a_failure_is_shown_in_its_column_and_below() {
        let mut tally = Tally { store: "redis".to_owned(), ..Tally::default() };
        tally.add(Check::Tokens, "one token\ntwice");
        let judgement = Judgement { outcome: Outcome::Fail, reasons: Vec::new() };
        let rows = [Row { judgement, tally }];
        let text = markdown(&rows);
        assert!(text.contains("| redis () | fail | 0 s | 0 | 0 (0) | 0 | 1 | 0 |"), "{text}");
        assert!(text.contains("one token twice"), "{text}");
        let read: serde_json::Value = serde_json::from_str(&json(&rows).unwrap()).unwrap();
        assert_eq!(read[0]["outcome"], "fail");
    }
}

//! `docs/src/costs.md`, where it is written what each operation costs.

use std::{collections::BTreeMap, fmt::Write};

use dlock_testlab::{Stop, Verdict};

use super::cost::Cost;

const TEXT: &str = include_str!("../../../../../docs/src/costs.md");

/// What is not counted over a store.
const NOT_COUNTED: &str = "-";

/// Compares the table below this heading with what was counted.
pub(crate) fn compare(heading: &str, counted: &BTreeMap<String, Cost>) -> Verdict {
    let written = table(TEXT, heading);
    let mut wrong = String::new();
    for (operation, cost) in counted {
        let is_as_written = written.get(operation).is_some_and(|cells| fits(*cost, cells));
        if !is_as_written {
            let Cost { round_trips, requests, messages, bytes } = cost;
            // To a string, it does not fail.
            let _ = writeln!(
                wrong,
                "| {operation} | {round_trips} | {requests} | {messages} | {bytes} |"
            );
        }
    }
    for operation in written.keys().filter(|operation| !counted.contains_key(*operation)) {
        let _ = writeln!(wrong, "| {operation} | was not counted |");
    }
    match wrong.is_empty() {
        true => Ok(()),
        false => {
            Err(Stop::failed(format!("docs/src/costs.md, {heading}: it is otherwise for\n{wrong}")))
        }
    }
}

/// The cells of each operation below a heading.
fn table<'a>(text: &'a str, heading: &str) -> BTreeMap<String, Vec<&'a str>> {
    let below = text.lines().skip_while(|line| line.strip_prefix("## ") != Some(heading));
    let section = below.skip(1).take_while(|line| !line.starts_with("## "));
    let rows = section.filter(|line| line.starts_with('|')).skip(2);
    let cells = rows.map(|row| row.trim_matches('|').split('|').map(str::trim));
    cells.filter_map(|mut cells| Some((cells.next()?.to_owned(), cells.collect()))).collect()
}

/// Whether the counts are these, and the bytes no more.
fn fits(cost: Cost, cells: &[&str]) -> bool {
    let is = |cell: &str, count: u64| cell == NOT_COUNTED || cell.parse() == Ok(count);
    match cells {
        [round_trips, requests, messages, bytes] => {
            is(round_trips, cost.round_trips)
                && is(requests, cost.requests)
                && is(messages, cost.messages)
                && bytes.parse::<u64>().is_ok_and(|most| cost.bytes <= most)
        }
        _ => false,
    }
}

#[test]
fn a_row_is_read_and_compared() {
    let text = "## A\n| x |\n|---|\n| take | 9 | 9 | 9 | 9 |\n\n## B\n\n| operation | ... |\n|---|---|\n\
        | take | 1 | - | 0 | 300 |\n\nMore.\n## C\n| x |\n|---|\n| give | 1 | 1 | 1 | 1 |\n";
    let table = table(text, "B");
    assert_eq!(table.len(), 1);
    let cost = Cost { round_trips: 1, requests: 7, messages: 0, bytes: 300 };
    assert!(fits(cost, &table["take"]));
    assert!(!fits(Cost { round_trips: 2, ..cost }, &table["take"]));
    assert!(!fits(Cost { messages: 1, ..cost }, &table["take"]));
    assert!(!fits(Cost { bytes: 301, ..cost }, &table["take"]));
}

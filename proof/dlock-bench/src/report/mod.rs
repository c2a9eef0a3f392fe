//! The report of a run: on the terminal during the run, and in files at its end.

mod markdown;
mod plots;
pub(crate) mod results;
pub(crate) mod targets;
mod terminal;

use std::{fs, path::Path};

use self::results::Results;
use crate::Failure;

pub(crate) use terminal::{begin, part};

/// Prints whether the targets were met, and writes the files if there is a directory for them.
pub(crate) fn end(results: &Results, directory: Option<&Path>) -> Result<(), Failure> {
    terminal::end(results);
    let Some(directory) = directory else { return Ok(()) };
    fs::create_dir_all(directory)?;
    fs::write(directory.join("results.json"), serde_json::to_string_pretty(results)?)?;
    fs::write(directory.join("results.md"), markdown::text(results))?;
    plots::write(results, directory)
}

/// Formats a value with its significant digits.
fn short(value: f64) -> String {
    match value.abs() {
        size if size >= 100.0 => format!("{value:.0}"),
        size if size >= 10.0 => format!("{value:.1}"),
        _ => format!("{value:.2}"),
    }
}

/// Formats a value with its spread.
fn spread(spread: &crate::figures::Spread) -> String {
    match (short(spread.p10), short(spread.p90)) {
        (low, high) if low == high => short(spread.median),
        (low, high) => format!("{} ({low}-{high})", short(spread.median)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::figures::Spread;

    #[test]
    fn a_spread_is_shown_where_there_is_one() {
        assert_eq!(spread(&Spread::of(&[1.0, 1.0], None).unwrap()), "1.00");
        assert_eq!(spread(&Spread::of(&[1.0, 2000.0], None).unwrap()), "1000 (201-1800)");
    }
}

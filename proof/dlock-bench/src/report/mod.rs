//! The report of a run: on the terminal during the run, and in files at its end.

mod markdown;
mod plots;
pub(crate) mod record;
pub(crate) mod results;
pub(crate) mod targets;

use std::{fs, io::Write, path::Path};

use self::{
    record::Record,
    results::{Entry, Part, Results},
};
use crate::{Failure, crew::contestant::Role, store::Store};

/// Prints whether the targets were met, and writes the files if there is a directory for them.
pub(crate) fn end(results: &Results, directory: Option<&Path>) -> Result<(), Failure> {
    judged(results);
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

/// Prints the setting, the versions of the peers, and the missing peers.
pub(crate) fn begin(results: &Results) {
    for (what, value) in &results.setting {
        say(&format!("{what}: {value}"));
    }
    for peer in &results.peers {
        say(&format!("with {} {}", peer.name, peer.version));
    }
    for peer in &results.missing {
        say(&format!("without {}: {}", peer.name, peer.reason));
    }
    say("each figure: the median round, the tenths of the rounds, and the ratio to the baseline");
}

/// Prints the results of one scenario.
pub(crate) fn part(part: &Part) {
    say(&format!("\n{} over {}: {}", part.scenario, part.version, part.about));
    for entry in &part.entries {
        say(&format!("  {}{}", entry.name, role(entry)));
        for (figure, value) in &entry.figures {
            let ratio = value.to_baseline.map(|ratio| format!("{}x", short(ratio)));
            let (label, spread) = (figure.label(), spread(value));
            let line = format!("    {label:<22}{spread:<28}{}", ratio.unwrap_or_default());
            say(line.trim_end());
        }
    }
    for left_out in &part.left_out {
        say(&format!("  without {}: {}", left_out.name, left_out.reason));
    }
}

/// Prints which targets were met.
fn judged(results: &Results) {
    if results.targets.is_empty() {
        return;
    }
    say("\ntargets:");
    for target in &results.targets {
        let place = format!("{} {}", target.store.name(), target.scenario);
        let measured = target.measured.map_or("not measured".to_owned(), short);
        let limit = format!("{} {}", target.sign, short(target.target));
        let verdict = if target.met { "met" } else { "MISSED" };
        say(&format!("  {place:<24}{:<40}{measured:>12} {limit:>9}  {verdict}", target.what));
    }
    let missed = results.targets.iter().filter(|target| !target.met).count();
    say(&format!("targets met: {}, missed: {missed}", results.targets.len() - missed));
}

/// Prints how the ratios differ from the recorded ones. Returns whether none is worse and all could
/// be compared.
pub(crate) fn compared(
    record: &Record,
    results: &Results,
    asked: impl Fn(Store, &str) -> bool,
) -> bool {
    let differences = record.compare(results, asked);
    say(&format!("\ncompared with the ratios of {}:", record.date));
    for difference in &differences {
        let sign = if difference.fails { "FAILED" } else { "note" };
        say(&format!("  {sign}: {}", difference.text));
    }
    let failed = differences.iter().filter(|difference| difference.fails).count();
    say(&format!("ratios that are worse or can't be compared: {failed}"));
    failed == 0
}

/// Returns the text after a name.
fn role(entry: &Entry) -> &'static str {
    match entry.role {
        Role::Baseline if entry.is_baseline => " (the baseline)",
        Role::Baseline => " (a baseline)",
        Role::Dlock => "",
        Role::Peer => " (peer)",
        Role::FairPeer => " (fair peer)",
    }
}

/// Prints a line at once, also into a pipe. Errors are ignored: a closed pipe is no reason to stop.
fn say(line: &str) {
    let mut out = std::io::stdout().lock();
    let _ = writeln!(out, "{line}").and_then(|()| out.flush());
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

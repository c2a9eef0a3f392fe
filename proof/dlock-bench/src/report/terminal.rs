//! The table on the terminal.

use std::io::Write;

use super::{
    results::{Entry, Part, Results},
    short, spread,
};
use crate::crew::contestant::Role;

/// Prints the setting, and the missing peers.
pub(crate) fn begin(results: &Results) {
    for (what, value) in &results.setting {
        say(&format!("{what}: {value}"));
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
pub(super) fn end(results: &Results) {
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

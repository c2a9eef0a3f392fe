//! The tables for a Markdown page.

use std::collections::BTreeSet;

use super::{
    results::{Part, Results},
    short, spread,
};
use crate::{crew::contestant::Role, figures::Figure};

/// Returns all tables.
pub(super) fn text(results: &Results) -> String {
    let mut text = "# dlock compared\n\nEach figure is the median round (with the tenths of the \
        rounds), then its ratio to that of the first line.\n"
        .to_owned();
    let setting = results.setting.iter().map(|(what, value)| format!("- {what}: {value}"));
    text += &paragraph(setting);
    let peers = &results.peers;
    text += &paragraph(peers.iter().map(|peer| format!("- {} {}", peer.name, peer.version)));
    let missing = &results.missing;
    text += &paragraph(missing.iter().map(|peer| format!("- no {}: {}", peer.name, peer.reason)));
    let mut named = BTreeSet::new();
    for part in &results.parts {
        // Each plot shows a scenario over all stores.
        if named.insert(&part.scenario) {
            let (scenario, about) = (&part.scenario, &part.about);
            text += &format!("\n## {scenario}: {about}\n\n![{scenario}]({scenario}.svg)\n");
            let same = results.parts.iter().filter(|other| other.scenario == *scenario);
            text += &same.map(table).collect::<String>();
        }
    }
    text += "\n## Targets\n\n| store | scenario | what | measured | target | |\n\
        |---|---|---|---:|---:|---|\n";
    for target in &results.targets {
        let measured = target.measured.map_or("-".to_owned(), short);
        let verdict = if target.met { "met" } else { "**missed**" };
        text += &row([
            target.store.name(),
            &target.scenario,
            &target.what,
            &measured,
            &format!("{} {}", target.sign, short(target.target)),
            verdict,
        ]);
    }
    text
}

/// Returns the table of one store, with the contestants that are missing.
fn table(part: &Part) -> String {
    let mut text = format!("\n### {} over {}\n", part.scenario, part.version);
    if !part.entries.is_empty() {
        let figures: BTreeSet<Figure> =
            part.entries.iter().flat_map(|entry| entry.figures.keys().copied()).collect();
        let labels = figures.iter().map(|figure| figure.label());
        text += "\n";
        text += &row(std::iter::once("").chain(labels));
        text += &row(std::iter::once("---").chain(figures.iter().map(|_| "---:")));
        for entry in &part.entries {
            let name = match entry.role {
                Role::Dlock => format!("**{}**", entry.name),
                Role::Baseline => format!("{} (baseline)", entry.name),
                Role::Peer => entry.name.clone(),
                Role::FairPeer => format!("{} (fair)", entry.name),
            };
            let cells = figures.iter().map(|figure| match entry.figures.get(figure) {
                None => String::new(),
                Some(value) => match value.to_baseline {
                    None => spread(value),
                    Some(ratio) => format!("{}, {}x", spread(value), short(ratio)),
                },
            });
            text += &row(std::iter::once(name).chain(cells));
        }
    }
    let left_out = part.left_out.iter();
    text + &paragraph(left_out.map(|other| format!("- without {}: {}", other.name, other.reason)))
}

fn row<S: AsRef<str>>(cells: impl IntoIterator<Item = S>) -> String {
    // A reason or a name may contain any characters.
    let cells = cells.into_iter().map(|cell| cell.as_ref().replace('|', "\\|"));
    format!("| {} |\n", cells.collect::<Vec<_>>().join(" | "))
}

/// Returns the lines after an empty one, or nothing if there are none.
fn paragraph(lines: impl Iterator<Item = String>) -> String {
    let lines: Vec<String> = lines.map(|line| line + "\n").collect();
    if lines.is_empty() { String::new() } else { format!("\n{}", lines.concat()) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{crew::peers::LeftOut, figures::Spread, report::results::Entry, store::Store};

    #[test]
    fn a_table_has_a_line_for_each_and_names_those_missing() {
        let entry = |name: &str, role, rate: f64, baseline: Option<f64>| {
            let baseline = baseline.as_ref().map(std::slice::from_ref);
            let rate = Spread::of(&[rate], baseline).unwrap();
            let figures = [(Figure::Rate, rate)].into_iter().collect();
            Entry { name: name.to_owned(), role, is_baseline: role == Role::Baseline, figures }
        };
        let part = Part {
            store: Store::Redis,
            version: "Redis 7".to_owned(),
            scenario: "many-64".to_owned(),
            about: String::new(),
            main: Figure::Rate,
            entries: vec![
                entry("bare driver", Role::Baseline, 200.0, None),
                entry("dlock", Role::Dlock, 150.0, Some(200.0)),
            ],
            left_out: vec![LeftOut { name: "redlock".to_owned(), reason: "a | b".to_owned() }],
        };
        let text = text(&Results { parts: vec![part], ..Results::default() });
        assert!(text.contains("| bare driver (baseline) | 200 |\n"), "{text}");
        assert!(text.contains("| **dlock** | 150, 0.75x |\n"), "{text}");
        assert!(text.contains("- without redlock: a | b\n"), "{text}");
        assert!(text.contains("![many-64](many-64.svg)"), "{text}");
    }
}

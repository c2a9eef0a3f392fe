//! Recorded ratios of dlock to its baselines, with which a later run is compared.
//!
//! A file has one record for each kind of processor, because ratios depend on the processor and on
//! the number of processors. A ratio got worse if all of its rounds are worse than all recorded
//! rounds, and by a tenth than the recorded median. The second bound allows for differences between
//! two runs, which rounds of one run don't show.

use std::{collections::BTreeMap, fs, path::Path, time::SystemTime};

use serde::{Deserialize, Serialize};

use super::{
    results::{Entry, Part, Results},
    short,
};
use crate::{Failure, crew::contestant::Role, figures::Figure, store::Store};

/// The message if a file has no record of this processor.
pub(crate) const NONE: &str = "it has no ratios of this processor; on a machine that does nothing \
    else, `compare --quick --peers none --record FILE` adds them";

/// The settings that identify a record.
const MACHINE: [&str; 2] = ["processor", "processors"];
/// The settings that must be the same for ratios to be comparable.
const CONDITIONS: [&str; 4] = ["build", "places", "seconds of a round", "tasks of a client"];

/// The smallest difference from the recorded median that counts.
const LEAST: f64 = 1.1;

/// The ratios of one processor.
#[derive(Debug, Deserialize, Serialize)]
pub(crate) struct Record {
    /// The day of the run.
    pub(crate) date: String,
    setting: BTreeMap<String, String>,
    ratios: Vec<Ratio>,
}

/// The ratio of one contestant to the baseline, for the main figure of a scenario.
#[derive(Clone, Debug, PartialEq, Deserialize, Serialize)]
struct Ratio {
    store: Store,
    /// The version of the server.
    version: String,
    scenario: String,
    /// The description of the scenario, which changes with it.
    about: String,
    contestant: String,
    baseline: String,
    figure: Figure,
    /// The median of the rounds.
    median: f64,
    /// The worst round: the noise band lies between it and the median.
    worst: f64,
}

/// A difference between a record and a run.
#[derive(Debug)]
pub(crate) struct Difference {
    pub(crate) text: String,
    /// Whether the run fails for it.
    pub(crate) fails: bool,
}

impl Record {
    /// Returns the record of a run that ends now.
    #[expect(clippy::disallowed_methods, reason = "the day is only shown")]
    pub(crate) fn of(results: &Results) -> Self {
        let setting = results.setting.iter();
        Self {
            date: date(SystemTime::now()),
            setting: setting.map(|(what, value)| ((*what).to_owned(), value.clone())).collect(),
            ratios: results.parts.iter().flat_map(measured).map(|(ratio, _)| ratio).collect(),
        }
    }

    /// Reads the record of the processor with this setting, if the file has one.
    pub(crate) fn read(
        file: &Path,
        setting: &BTreeMap<&'static str, String>,
    ) -> Result<Option<Self>, Failure> {
        let is_here = |record: &Self| {
            MACHINE.iter().all(|what| record.setting.get(*what) == setting.get(what))
        };
        Ok(read(file)?.into_iter().find(is_here))
    }

    /// Writes the record into a file, in place of the one of the same processor.
    pub(crate) fn write(self, file: &Path) -> Result<(), Failure> {
        let mut all = read(file)?;
        all.retain(|other| {
            MACHINE.iter().any(|what| other.setting.get(*what) != self.setting.get(*what))
        });
        all.push(self);
        Ok(fs::write(file, serde_json::to_string_pretty(&all)? + "\n")?)
    }

    /// Compares a run with the record, for the stores and scenarios that were asked for.
    pub(crate) fn compare(
        &self,
        results: &Results,
        asked: impl Fn(Store, &str) -> bool,
    ) -> Vec<Difference> {
        let conditions = CONDITIONS.iter().filter_map(|what| {
            let (then, now) = (self.setting.get(*what), results.setting.get(what));
            let shown = |value: Option<&String>| value.map_or("unknown", String::as_str).to_owned();
            (then != now)
                .then(|| fails(format!("{what}: recorded {}, now {}", shown(then), shown(now))))
        });
        let mut differences: Vec<Difference> = conditions.collect();
        if !differences.is_empty() {
            return differences;
        }
        let asked = self.ratios.iter().filter(|ratio| asked(ratio.store, &ratio.scenario));
        differences.extend(asked.flat_map(|ratio| ratio.compare(&results.parts)));
        let new = results.parts.iter().flat_map(measured);
        let new = new.filter(|(new, _)| !self.ratios.iter().any(|ratio| ratio.is_of(new)));
        differences
            .extend(new.map(|(new, _)| fails(format!("{}: no ratio is recorded", new.name()))));
        differences
    }
}

fn read(file: &Path) -> Result<Vec<Record>, Failure> {
    match file.exists() {
        false => Ok(Vec::new()),
        true => serde_json::from_str(&fs::read_to_string(file)?)
            .map_err(|error| format!("{}: {error}", file.display()).into()),
    }
}

fn fails(text: String) -> Difference {
    Difference { text, fails: true }
}

/// Returns the ratios of a part that are recorded, with their rounds.
fn measured(part: &Part) -> Vec<(Ratio, Vec<f64>)> {
    let baseline = part.entries.iter().find(|entry| entry.is_baseline);
    let ratio = |entry: &Entry| {
        let spread = entry.figures.get(&part.main)?;
        let worse = if part.main.is_better_high() { f64::min } else { f64::max };
        let ratio = Ratio {
            store: part.store,
            version: part.version.clone(),
            scenario: part.scenario.clone(),
            about: part.about.clone(),
            contestant: entry.name.clone(),
            baseline: baseline?.name.clone(),
            figure: part.main,
            median: rounded(spread.to_baseline?),
            worst: rounded(spread.ratios.iter().copied().reduce(worse)?),
        };
        Some((ratio, spread.ratios.clone()))
    };
    let dlock = part.entries.iter().filter(|entry| entry.role == Role::Dlock);
    dlock.filter_map(ratio).collect()
}

/// Four digits after the point are more than runs agree on.
fn rounded(ratio: f64) -> f64 {
    (ratio * 1e4).round() / 1e4
}

impl Ratio {
    fn name(&self) -> String {
        format!("{} {}, {}", self.store.name(), self.scenario, self.contestant)
    }

    /// Whether another ratio has the same place.
    fn is_of(&self, other: &Self) -> bool {
        (self.store, &self.scenario, &self.contestant)
            == (other.store, &other.scenario, &other.contestant)
    }

    /// Returns the last ratio that is not worse.
    fn limit(&self) -> f64 {
        match self.figure.is_better_high() {
            true => self.worst.min(self.median / LEAST),
            false => self.worst.max(self.median * LEAST),
        }
    }

    fn compare(&self, parts: &[Part]) -> Vec<Difference> {
        let name = self.name();
        let part = parts.iter().find(|p| p.store == self.store && p.scenario == self.scenario);
        let Some(part) = part else {
            return vec![fails(format!("{name}: there is no such scenario any more"))];
        };
        let now = measured(part).into_iter().find(|(now, _)| self.is_of(now));
        let Some((now, rounds)) = now else {
            let reason =
                part.left_out.iter().map(|left| format!("; {}: {}", left.name, left.reason));
            return vec![fails(format!("{name}: not measured{}", reason.collect::<String>()))];
        };
        let changed =
            [("scenario", &self.about, &now.about), ("baseline", &self.baseline, &now.baseline)];
        if let Some((what, then, now)) = changed.into_iter().find(|(_, then, now)| then != now) {
            return vec![fails(format!(
                "{name}: the {what} has changed, so record the ratios again: was \"{then}\", is \"{now}\""
            ))];
        }
        if self.figure != now.figure {
            let (then, now) = (self.figure.label(), now.figure.label());
            return vec![fails(format!("{name}: recorded {then}, now {now}"))];
        }
        let mut differences = Vec::new();
        if self.version != now.version {
            let text = format!("{name}: recorded over {}, now {}", self.version, now.version);
            differences.push(Difference { text, fails: false });
        }
        let limit = self.limit();
        let is_worse = |ratio: &f64| match self.figure.is_better_high() {
            true => *ratio < limit,
            false => *ratio > limit,
        };
        if rounds.iter().all(is_worse) {
            differences.push(fails(format!(
                "{name}: the ratio of \"{}\" to \"{}\" is {}; recorded {}, and {} at worst",
                self.figure.label(),
                self.baseline,
                short(now.median),
                short(self.median),
                short(limit),
            )));
        }
        differences
    }
}

/// Returns the day, such as `2026-01-31`.
fn date(time: SystemTime) -> String {
    humantime::format_rfc3339_seconds(time).to_string().chars().take(10).collect()
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::{crew::peers::LeftOut, figures::Spread};

    /// The results of a run in which dlock has these ratios.
    fn run(main: Figure, ratios: &[f64]) -> Results {
        let baseline = vec![1.0; ratios.len()];
        let entry = |name: &str, role, rounds: &[f64], to: Option<&[f64]>| Entry {
            name: name.to_owned(),
            role,
            is_baseline: role == Role::Baseline,
            figures: [(main, Spread::of(rounds, to).unwrap())].into_iter().collect(),
        };
        let part = Part {
            store: Store::Redis,
            version: "Redis 7".to_owned(),
            scenario: "many-64".to_owned(),
            about: "64 tasks".to_owned(),
            main,
            entries: vec![
                entry("bare driver", Role::Baseline, &baseline, None),
                entry("dlock", Role::Dlock, ratios, Some(&baseline)),
                entry("rslock", Role::Peer, ratios, Some(&baseline)),
            ],
            left_out: Vec::new(),
        };
        let setting = MACHINE.into_iter().chain(CONDITIONS).map(|what| (what, what.to_owned()));
        Results { setting: setting.collect(), parts: vec![part], ..Results::default() }
    }

    /// Compares a run with the record of another one. Returns the failures and the notes.
    fn compare(record: &Results, now: &Results) -> (Vec<String>, Vec<String>) {
        let differences = Record::of(record).compare(now, |_, _| true);
        let (fails, notes): (Vec<_>, Vec<_>) = differences.into_iter().partition(|d| d.fails);
        let texts = |all: Vec<Difference>| all.into_iter().map(|d| d.text).collect();
        (texts(fails), texts(notes))
    }

    fn failures(record: &Results, now: &Results) -> String {
        compare(record, now).0.join("\n")
    }

    #[test]
    fn a_worse_ratio_fails_in_its_own_direction() {
        let (time, rate) = (run(Figure::P50, &[1.0, 1.2]), run(Figure::Rate, &[0.8, 1.0]));
        let text = failures(&time, &run(Figure::P50, &[1.3, 1.5]));
        assert!(text.contains("is 1.40; recorded 1.10, and 1.21 at worst"), "{text}");
        assert!(
            failures(&rate, &run(Figure::Rate, &[0.7, 0.5])).contains("is 0.60; recorded 0.90")
        );
        assert_eq!(failures(&time, &run(Figure::P50, &[0.5, 0.6])), "");
        assert_eq!(failures(&rate, &run(Figure::Rate, &[1.5, 1.6])), "");
    }

    #[test]
    fn a_ratio_within_the_noise_band_passes() {
        let wide = run(Figure::P50, &[1.0, 1.0, 1.6]);
        assert_eq!(failures(&wide, &run(Figure::P50, &[1.5, 1.6])), "");
        // One round within the band is enough: the others may have met other work.
        assert_eq!(failures(&wide, &run(Figure::P50, &[9.0, 1.6, 9.0])), "");
        assert_ne!(failures(&wide, &run(Figure::P50, &[1.7])), "");
        // The rounds of one run may agree better than two runs do.
        let narrow = run(Figure::Rate, &[1.0]);
        assert_eq!(failures(&narrow, &run(Figure::Rate, &[0.92])), "");
        assert_ne!(failures(&narrow, &run(Figure::Rate, &[0.90])), "");
    }

    #[test]
    fn a_ratio_without_its_counterpart_is_reported() {
        let (recorded, mut now) = (run(Figure::P50, &[1.0]), run(Figure::P50, &[1.0]));
        now.parts[0].entries.remove(1);
        let reason = LeftOut { name: "dlock".to_owned(), reason: "no memory".to_owned() };
        now.parts[0].left_out.push(reason);
        let text = "redis many-64, dlock: not measured; dlock: no memory";
        assert_eq!(failures(&recorded, &now), text);
        assert_eq!(failures(&now, &recorded), "redis many-64, dlock: no ratio is recorded");
        now.parts.clear();
        assert!(failures(&recorded, &now).contains("there is no such scenario any more"));
        let unasked = Record::of(&recorded).compare(&now, |_, scenario| scenario == "local");
        assert!(unasked.is_empty());
    }

    #[test]
    fn a_changed_scenario_or_condition_can_not_be_compared() {
        let recorded = run(Figure::P50, &[1.0]);
        let mut now = run(Figure::P50, &[1.0]);
        now.parts[0].about = "65 tasks".to_owned();
        assert!(failures(&recorded, &now).contains("was \"64 tasks\", is \"65 tasks\""));
        let mut now = run(Figure::P50, &[1.0]);
        now.parts[0].entries[0].name = "one row".to_owned();
        assert!(failures(&recorded, &now).contains("the baseline has changed"));
        assert!(failures(&recorded, &run(Figure::Rate, &[1.0])).contains("recorded p50, us"));
        let mut now = run(Figure::P50, &[9.0]);
        now.setting.insert("build", "dev".to_owned());
        assert_eq!(failures(&recorded, &now), "build: recorded build, now dev");
    }

    #[test]
    fn another_version_is_a_note_beside_the_comparison() {
        let recorded = run(Figure::P50, &[1.0]);
        let mut now = run(Figure::P50, &[2.0]);
        now.parts[0].version = "Redis 8".to_owned();
        let (fails, notes) = compare(&recorded, &now);
        assert_eq!(notes, ["redis many-64, dlock: recorded over Redis 7, now Redis 8"]);
        assert_eq!(fails.len(), 1);
    }

    #[test]
    fn a_file_keeps_a_record_for_each_processor() {
        let directory = tempfile::tempdir().unwrap();
        let file = directory.path().join("ratios.json");
        let here = run(Figure::P50, &[1.0]);
        assert!(Record::read(&file, &here.setting).unwrap().is_none());
        Record::of(&here).write(&file).unwrap();
        let mut there = run(Figure::P50, &[3.0]);
        there.setting.insert("processors", "8".to_owned());
        assert!(Record::read(&file, &there.setting).unwrap().is_none());
        Record::of(&there).write(&file).unwrap();
        Record::of(&run(Figure::P50, &[2.0])).write(&file).unwrap();
        let of = |results: &Results| Record::read(&file, &results.setting).unwrap().unwrap();
        assert_eq!(of(&here).ratios[0].median, 2.0);
        assert_eq!(of(&there).ratios, Record::of(&there).ratios);
        assert_eq!(read(&file).unwrap().len(), 2);
        fs::write(&file, "nonsense").unwrap();
        assert!(Record::read(&file, &here.setting).is_err());
    }

    #[test]
    fn a_date_is_that_of_the_calendar() {
        let after = |seconds| date(SystemTime::UNIX_EPOCH + Duration::from_secs(seconds));
        assert_eq!(after(0), "1970-01-01");
        assert_eq!(after(951_782_400), "2000-02-29");
        assert_eq!(after(1_735_689_599), "2024-12-31");
        assert_eq!(after(1_795_737_600), "2026-11-27");
    }
}

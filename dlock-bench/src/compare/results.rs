//! All that a run has found out, as it is written to a file.

use std::collections::BTreeMap;

use serde::Serialize;

use super::{
    contestant::Role,
    figures::{Figure, Spread},
    store::Store,
};

/// A run.
#[derive(Debug, Default, Serialize)]
pub(crate) struct Results {
    /// What it was measured on, and how.
    pub(crate) setting: BTreeMap<&'static str, String>,
    /// A part for each store and scenario.
    pub(crate) parts: Vec<Part>,
    /// Peers that were asked for and can't run.
    pub(crate) missing: Vec<LeftOut>,
    /// What was to be reached.
    pub(crate) targets: Vec<Verdict>,
}

/// One scenario over one store.
#[derive(Debug, Serialize)]
pub(crate) struct Part {
    pub(crate) store: Store,
    pub(crate) version: String,
    pub(crate) scenario: String,
    pub(crate) about: String,
    /// The figure that says most.
    pub(crate) main: Figure,
    pub(crate) entries: Vec<Entry>,
    pub(crate) left_out: Vec<LeftOut>,
}

/// What came of one contestant.
#[derive(Debug, Serialize)]
pub(crate) struct Entry {
    pub(crate) name: String,
    pub(crate) role: Role,
    /// Whether all others are compared with it.
    pub(crate) is_baseline: bool,
    pub(crate) figures: BTreeMap<Figure, Spread>,
}

/// Who is not there, and why.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(crate) struct LeftOut {
    pub(crate) name: String,
    pub(crate) reason: String,
}

/// Whether a target was reached.
#[derive(Debug, Serialize)]
pub(crate) struct Verdict {
    pub(crate) store: Store,
    pub(crate) scenario: String,
    pub(crate) what: String,
    pub(crate) sign: &'static str,
    pub(crate) target: f64,
    /// Nothing where it could not be measured, which is no success.
    pub(crate) measured: Option<f64>,
    pub(crate) met: bool,
}

impl Part {
    /// What came of the contestant of this name.
    pub(crate) fn entry(&self, name: &str) -> Option<&Entry> {
        self.entries.iter().find(|entry| entry.name == name)
    }

    /// The highest median of this figure among some, but for those who got nothing done.
    pub(crate) fn best(&self, figure: Figure, of: impl Fn(&Entry) -> bool) -> Option<f64> {
        let peers = self.entries.iter().filter(|entry| of(entry));
        let medians = peers.filter_map(|entry| entry.median(figure));
        medians.filter(|median| *median > 0.0).max_by(f64::total_cmp)
    }
}

impl Entry {
    /// The median of this figure.
    pub(crate) fn median(&self, figure: Figure) -> Option<f64> {
        self.figures.get(&figure).map(|spread| spread.median)
    }

    /// What this figure is to the baseline's.
    pub(crate) fn to_baseline(&self, figure: Figure) -> Option<f64> {
        self.figures.get(&figure)?.to_baseline
    }
}

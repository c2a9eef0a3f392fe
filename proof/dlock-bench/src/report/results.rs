//! All results of a run, as they are written to a file.

use std::collections::BTreeMap;

use serde::Serialize;

use crate::{
    crew::{
        contestant::Role,
        peers::{LeftOut, Version},
    },
    figures::{Figure, Spread},
    store::Store,
};

/// The results of a run.
#[derive(Debug, Default, Serialize)]
pub(crate) struct Results {
    /// The description of the machine and of the options.
    pub(crate) setting: BTreeMap<&'static str, String>,
    /// A part for each store and scenario.
    pub(crate) parts: Vec<Part>,
    /// The requested peers that can't run.
    pub(crate) missing: Vec<LeftOut>,
    /// The versions of the peers that take part.
    pub(crate) peers: Vec<Version>,
    /// The verdicts on the targets.
    pub(crate) targets: Vec<Verdict>,
}

/// The results of one scenario over one store.
#[derive(Debug, Serialize)]
pub(crate) struct Part {
    pub(crate) store: Store,
    pub(crate) version: String,
    pub(crate) scenario: String,
    pub(crate) about: String,
    /// The most important quantity.
    pub(crate) main: Figure,
    pub(crate) entries: Vec<Entry>,
    pub(crate) left_out: Vec<LeftOut>,
}

/// The results of one contestant.
#[derive(Debug, Serialize)]
pub(crate) struct Entry {
    pub(crate) name: String,
    pub(crate) role: Role,
    /// Whether the ratios of all others refer to it.
    pub(crate) is_baseline: bool,
    pub(crate) figures: BTreeMap<Figure, Spread>,
}

/// The verdict on one target.
#[derive(Debug, Serialize)]
pub(crate) struct Verdict {
    pub(crate) store: Store,
    pub(crate) scenario: String,
    pub(crate) what: String,
    pub(crate) sign: &'static str,
    pub(crate) target: f64,
    /// `None` if it could not be measured, which does not meet a target.
    pub(crate) measured: Option<f64>,
    pub(crate) met: bool,
}

impl Part {
    /// Returns the results of the contestant of this name.
    pub(crate) fn entry(&self, name: &str) -> Option<&Entry> {
        self.entries.iter().find(|entry| entry.name == name)
    }

    /// Returns the highest median of this quantity among some contestants, except those that
    /// completed nothing.
    pub(crate) fn best(&self, figure: Figure, of: impl Fn(&Entry) -> bool) -> Option<f64> {
        let peers = self.entries.iter().filter(|entry| of(entry));
        let medians = peers.filter_map(|entry| entry.median(figure));
        medians.filter(|median| *median > 0.0).max_by(f64::total_cmp)
    }
}

impl Entry {
    /// Returns the median of this quantity.
    pub(crate) fn median(&self, figure: Figure) -> Option<f64> {
        self.figures.get(&figure).map(|spread| spread.median)
    }

    /// Returns the ratio of this quantity to the baseline's.
    pub(crate) fn to_baseline(&self, figure: Figure) -> Option<f64> {
        self.figures.get(&figure)?.to_baseline
    }
}

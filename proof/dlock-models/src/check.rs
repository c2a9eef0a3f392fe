//! The common parts of the models: the properties, and the search through all states.

use std::{collections::BTreeSet, fmt::Debug};

use dlock_core::Clock;
use stateright::{Checker, Expectation, HasDiscoveries, Model};

/// Two clients never consider the lock held at the same time.
pub const EXCLUSION: &str = "one holder";
/// A later holder has a larger token.
pub const ORDER: &str = "tokens grow";
/// A waiter for a free lock gets it.
pub const WAKES: &str = "no lost wake-up";

/// The tokens of the holders so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub(crate) struct Tokens<T> {
    pub(crate) largest: T,
    /// Whether a token was not larger than all earlier ones.
    pub(crate) disorder: bool,
}

impl<T: Copy + Ord> Tokens<T> {
    pub(crate) fn add(&mut self, token: T) {
        self.disorder |= token <= self.largest;
        self.largest = self.largest.max(token);
    }
}

/// Adds a letter to the pending ones, which are sorted and unique.
pub(crate) fn send<T: Ord>(wire: &mut Vec<T>, letter: T) {
    if let Err(at) = wire.binary_search(&letter) {
        wire.insert(at, letter);
    }
}

/// Visits all states of the correct protocol. Asserts that no property is violated, and that every
/// state that must occur does occur.
pub(crate) fn holds<M>(protocol: &str, model: M, least: usize)
where
    M: Model + Send + Sync + 'static,
    M::State: Debug + Clone + PartialEq + std::hash::Hash + Send + Sync + 'static,
    M::Action: Debug + Clone + PartialEq + Send + Sync + 'static,
{
    let began = Clock::Boot.now();
    let properties = model.properties();
    let failures = HasDiscoveries::AnyFailures;
    let checked = model.checker().finish_when(failures).spawn_bfs().join();
    let states = checked.unique_state_count();
    let took = Clock::Boot.now().since(began);
    println!("{protocol}: {states} states, {} steps deep, {took:.1?}", checked.max_depth());
    for property in properties {
        let found = checked.discovery(property.name);
        match property.expectation {
            Expectation::Sometimes => {
                assert!(found.is_some(), "{protocol}: never {}", property.name);
            }
            _ => {
                let found = found.map(|path| (path.last_state().clone(), path.into_actions()));
                assert!(found.is_none(), "{protocol}: not {}: {found:?}", property.name);
            }
        }
    }
    assert!(checked.is_done() && states >= least, "{protocol}: {states} states, not {least}");
}

/// Finds a path that violates this property, and returns a description of it.
pub(crate) fn breaks<M>(
    protocol: &str,
    without: impl Debug,
    model: M,
    property: &'static str,
) -> String
where
    M: Model + Send + Sync + 'static,
    M::State: Debug + Clone + PartialEq + std::hash::Hash + Send + Sync + 'static,
    M::Action: Debug + Clone + PartialEq + Send + Sync + 'static,
{
    let wanted = HasDiscoveries::AnyOf(BTreeSet::from([property]));
    let checked = model.checker().finish_when(wanted).spawn_bfs().join();
    let Some(path) = checked.discovery(property) else {
        panic!("{protocol} without {without:?}: {property} in all states");
    };
    let steps = path.into_actions();
    let found = format!("not \"{property}\" after {} steps", steps.len());
    println!("{protocol} without {without:?}: {found}");
    if std::env::var_os("DLOCK_MODEL_STEPS").is_some() {
        println!("{steps:#?}");
    }
    found
}

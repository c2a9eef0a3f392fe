//! What the models have in common, and the way through all their states.

use std::{collections::BTreeSet, fmt::Debug};

use dlock_core::Clock;
use stateright::{Checker, Expectation, HasDiscoveries, Model};

/// Two never believe at the same time that they hold the lock.
pub const EXCLUSION: &str = "one holder";
/// Whoever holds later has the larger token.
pub const ORDER: &str = "tokens grow";
/// Who waits for a free lock gets it.
pub const WAKES: &str = "no lost wake-up";

/// The tokens that the lock was held with, one after the other.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub(crate) struct Tokens<T> {
    pub(crate) largest: T,
    /// One was not above all before it.
    pub(crate) disorder: bool,
}

impl<T: Copy + Ord> Tokens<T> {
    pub(crate) fn add(&mut self, token: T) {
        self.disorder |= token <= self.largest;
        self.largest = self.largest.max(token);
    }
}

/// Puts a letter on its way; letters are sorted, and each is there once.
pub(crate) fn send<T: Ord>(wire: &mut Vec<T>, letter: T) {
    if let Err(at) = wire.binary_search(&letter) {
        wire.insert(at, letter);
    }
}

/// Visits all states of the right protocol: no property is violated, and all that is to happen
/// sometimes does.
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

/// Finds a way to violate this property, and says which.
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

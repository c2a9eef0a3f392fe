//! The suite is itself tested: stores that are wrong in one way each, every one of which must
//! fail at least one case, and one that is right, which must pass them all, also when it promises
//! next to nothing. The mistakes that lock services are known for have a number, and a summary says
//! what caught each: `cargo test -p dlock-testkit --test broken -- mutant`.

mod checks;
mod controls;
mod fault;
mod mutants;
mod rules;
mod toy;

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use async_trait::async_trait;
use dlock_core::{DynBackend, Error, LockName};
use dlock_testkit::{ALL, Bounds, Case, Opened, Outcome, Stop, Store, Suite};
use libtest_mimic::{Arguments, Failed, Trial};
use parking_lot::Mutex;

use fault::Fault;
use mutants::Mutant;
use toy::Toy;

/// A store with a fault.
struct Broken(Fault);

/// A store that is right and promises next to nothing.
struct Modest;

struct Open {
    toy: Toy,
    wake_up: Duration,
}

#[async_trait]
impl Store for Broken {
    fn name(&self) -> &str {
        "broken"
    }

    async fn open(&self) -> Result<Box<dyn Opened>, Stop> {
        // What never happens need not be waited for as long.
        let wake_up = Duration::from_secs(if self.0 == Fault::None { 20 } else { 2 });
        Ok(Box::new(Open { toy: Toy::new(self.0), wake_up }))
    }
}

#[async_trait]
impl Store for Modest {
    fn name(&self) -> &str {
        "modest"
    }

    async fn open(&self) -> Result<Box<dyn Opened>, Stop> {
        Ok(Box::new(Open { toy: Toy::modest(), wake_up: Duration::from_secs(20) }))
    }
}

#[async_trait]
impl Opened for Open {
    async fn connect(&self) -> Result<DynBackend, Error> {
        Ok(Arc::new(self.toy.another()))
    }

    async fn leftovers(&self, name: &LockName) -> Result<Vec<String>, Stop> {
        Ok(self.toy.look(name))
    }

    async fn forget(&self, name: &LockName) -> Result<bool, Stop> {
        self.toy.forget(name);
        Ok(true)
    }

    fn bounds(&self) -> Bounds {
        let mut bounds = Bounds::default();
        bounds.wake_up = self.wake_up;
        bounds
    }
}

fn main() {
    let mut arguments = Arguments::from_args();
    arguments.test_threads.get_or_insert(8);
    let summary = Summary::default();
    let mut trials: Vec<Trial> =
        (1..).zip(&mutants::ALL).map(|(number, mutant)| summary.trial(number, mutant)).collect();
    trials.extend(controls::ALL.map(|(name, run)| Trial::test(format!("control::{name}"), run)));
    trials.push(Trial::test(
        "documented::every_rule_names_cases_that_exist",
        controls::every_rule_names_cases_that_exist,
    ));
    let others = Fault::ALL.iter().filter(|(fault, _)| !mutants::ALL.iter().any(|m| m.has(*fault)));
    trials.extend(others.map(|&(fault, _)| {
        Trial::test(format!("caught::{fault:?}"), move || {
            println!("{fault:?}: {}", caught(fault)?);
            Ok(())
        })
    }));
    trials.extend(ALL.iter().map(|case| {
        Trial::test(format!("right::{}", case.name()), || passes(Broken(Fault::None), case))
    }));
    trials.extend(
        ALL.iter().map(|case| Trial::test(format!("modest::{}", case.name()), || modest(case))),
    );
    let conclusion = libtest_mimic::run(&arguments, trials);
    summary.print();
    conclusion.exit()
}

/// What the mutants were caught by, of those that were run.
#[derive(Clone, Default)]
struct Summary(Arc<Mutex<BTreeMap<usize, Result<String, Failed>>>>);

impl Summary {
    fn trial(&self, number: usize, mutant: &'static Mutant) -> Trial {
        let summary = self.clone();
        Trial::test(format!("mutant::{number:02}_{}", mutant.name), move || {
            summary.0.lock().insert(number, Err("it panics".into()));
            let by = mutant.caught();
            summary.0.lock().insert(number, by.clone());
            by.map(drop)
        })
    }

    fn print(&self) {
        let run = self.0.lock();
        if run.is_empty() {
            return;
        }
        for (number, by) in run.iter() {
            let name = mutants::ALL[number - 1].name;
            match by {
                Ok(by) => println!("{number:2} {name}: {by:.140}"),
                Err(why) => println!("{number:2} {name}: NOT CAUGHT: {why:?}"),
            }
        }
        let caught = run.values().filter(|by| by.is_ok()).count();
        println!("mutants: {caught} of {} caught", run.len());
    }
}

/// Runs the cases that are expected to see it, then all others, up to the first that does.
fn caught(fault: Fault) -> Result<String, Failed> {
    let listed = Fault::ALL.iter().find(|(other, _)| *other == fault);
    let (_, candidates) = *listed.ok_or("no cases are listed for it")?;
    let is_candidate = |case: &&Case| candidates.contains(&case.name().as_str());
    let expected: Vec<&Case> = ALL.iter().filter(is_candidate).collect();
    if expected.len() != candidates.len() {
        return Err(format!("{candidates:?} are not all cases").into());
    }
    for case in expected.into_iter().chain(ALL.iter().filter(|case| !is_candidate(case))) {
        if let Outcome::Failed(what) = outcome(fault, case)? {
            return Ok(format!("{case:?}: {what}"));
        }
    }
    Err("every case passes".into())
}

fn outcome(fault: Fault, case: &Case) -> Result<Outcome, Failed> {
    Ok(Suite::new(Broken(fault))?.try_case(case))
}

fn passes(store: impl Store, case: &Case) -> Result<(), Failed> {
    match Suite::new(store)?.try_case(case) {
        Outcome::Failed(what) => Err(what.into()),
        _ => Ok(()),
    }
}

/// What is not promised is ignored or checked to be refused, and never passed.
fn modest(case: &Case) -> Result<(), Failed> {
    let outcome = Suite::new(Modest)?.try_case(case);
    let name = case.name();
    let is = |part: &str| name.contains(part);
    match outcome {
        Outcome::Failed(what) => Err(what.into()),
        Outcome::Ignored { .. } if is("it_is_refused") => Err("what is not promised works".into()),
        Outcome::Passed if is("fair::") && !is("it_is_refused") => Err("no order, yet fair".into()),
        _ => Ok(()),
    }
}

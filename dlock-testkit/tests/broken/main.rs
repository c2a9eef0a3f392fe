//! Tests of the suite itself. Each store with a fault must fail the cases that are listed for it. A
//! correct store must pass all cases, and so must a correct store that promises the least. The mistakes that lock
//! services are known for have numbers, and a summary names what caught each of them:
//! `cargo test -p dlock-testkit --test broken -- mutant`.

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

/// A correct store with the weakest guarantees.
struct Modest;

struct Open(Toy);

/// The bound of all stores here, with a fault or without one: a case that fails on a correct store
/// for lack of time would seem to catch every fault. It is several times the longest lease that
/// cases let expire.
const WAKE_UP: Duration = Duration::from_secs(15);

#[async_trait]
impl Store for Broken {
    fn name(&self) -> &str {
        "broken"
    }

    async fn open(&self) -> Result<Box<dyn Opened>, Stop> {
        Ok(Box::new(Open(Toy::new(self.0))))
    }
}

#[async_trait]
impl Store for Modest {
    fn name(&self) -> &str {
        "modest"
    }

    async fn open(&self) -> Result<Box<dyn Opened>, Stop> {
        Ok(Box::new(Open(Toy::modest())))
    }
}

#[async_trait]
impl Opened for Open {
    async fn connect(&self) -> Result<DynBackend, Error> {
        Ok(Arc::new(self.0.another()))
    }

    async fn leftovers(&self, name: &LockName) -> Result<Vec<String>, Stop> {
        Ok(self.0.records(name))
    }

    async fn forget(&self, name: &LockName) -> Result<bool, Stop> {
        self.0.forget(name);
        Ok(true)
    }

    fn bounds(&self) -> Bounds {
        let mut bounds = Bounds::default();
        bounds.wake_up = WAKE_UP;
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
        Trial::test(format!("correct::{}", case.name()), || passes(Broken(Fault::None), case))
    }));
    trials.extend(
        ALL.iter().map(|case| Trial::test(format!("modest::{}", case.name()), || modest(case))),
    );
    let conclusion = libtest_mimic::run(&arguments, trials);
    summary.print();
    conclusion.exit()
}

/// What caught each mutant that was run.
#[derive(Clone, Default)]
struct Summary(Arc<Mutex<BTreeMap<usize, Result<String, Failed>>>>);

impl Summary {
    fn trial(&self, number: usize, mutant: &'static Mutant) -> Trial {
        let summary = self.clone();
        Trial::test(format!("mutant::{number:02}_{}", mutant.name), move || {
            summary.0.lock().insert(number, Err("it panicked".into()));
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

/// Runs the cases that are listed for the fault. Each of them has to fail, and no other case counts.
fn caught(fault: Fault) -> Result<String, Failed> {
    let listed = Fault::ALL.iter().find(|(other, _)| *other == fault);
    let (_, cases) = *listed.ok_or("no cases are listed for the fault")?;
    caught_by(fault, cases)
}

/// Returns what each of these cases reports about the store with the fault.
fn caught_by(fault: Fault, cases: &[&str]) -> Result<String, Failed> {
    let mut by = Vec::new();
    for &name in cases {
        let case = ALL.iter().find(|case| case.name() == name);
        match outcome(fault, case.ok_or(format!("the case {name} does not exist"))?)? {
            Outcome::Failed(what) => by.push(format!("{name}: {what}")),
            other => return Err(format!("{name} does not catch {fault:?}: {other:?}").into()),
        }
    }
    if by.is_empty() { Err("no cases are listed for the fault".into()) } else { Ok(by.join("; ")) }
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

/// A case of a feature that is not promised is ignored, or checks that the store refuses it.
fn modest(case: &Case) -> Result<(), Failed> {
    let outcome = Suite::new(Modest)?.try_case(case);
    let name = case.name();
    let is = |part: &str| name.contains(part);
    match outcome {
        Outcome::Failed(what) => Err(what.into()),
        Outcome::Ignored { .. } if is("it_is_refused") => Err("a refused feature works".into()),
        Outcome::Passed if is("fair::") && !is("it_is_refused") => {
            Err("a store without order passes".into())
        }
        _ => Ok(()),
    }
}

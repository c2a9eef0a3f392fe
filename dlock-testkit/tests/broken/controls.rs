//! Controls of the checkers: an empty history proves nothing, an overlap is found, and a fault that
//! does nothing is not caught. Also a check of
//! the table of rules in the guide: the cases that it names exist.

use std::{collections::BTreeSet, fs, path::Path};

use dlock_core::{FencingToken, Instant, Mode};
use dlock_testkit::{
    Case,
    history::{Event, History, Op, Reply, at_least, exclusion},
};
use libtest_mimic::Failed;

use crate::{caught_by, fault::Fault};

type Control = fn() -> Result<(), Failed>;

pub(crate) const ALL: [(&str, Control); 3] = [
    ("an_empty_history_proves_nothing", empty_history),
    ("an_overlap_is_found", overlap),
    ("a_fault_that_does_nothing_is_not_caught", no_fault),
];

fn empty_history() -> Result<(), Failed> {
    demand(at_least(&History::default(), 1).is_err(), "an empty history passes")?;
    demand(at_least(&history([1, 3]), 2).is_ok(), "a history with two grants fails")
}

fn overlap() -> Result<(), Failed> {
    demand(exclusion::check(&history([1, 2])).is_err(), "an overlap passes")?;
    demand(exclusion::check(&history([1, 3])).is_ok(), "successive holds fail")
}

/// The trials `correct` run the other cases on a store without a fault, with the same bounds.
fn no_fault() -> Result<(), Failed> {
    let case = "lease::no_renewal_extends_the_lease_after_the_last";
    demand(caught_by(Fault::None, &[case]).is_err(), "a store without a fault is caught")?;
    demand(caught_by(Fault::None, &[]).is_err(), "a fault without cases is caught")
}

fn demand(is: bool, otherwise: &str) -> Result<(), Failed> {
    if is { Ok(()) } else { Err(otherwise.into()) }
}

/// Two holds that begin at these times and last two nanoseconds each.
fn history(begin: [u64; 2]) -> History {
    let hold = |(actor, from): (usize, u64)| {
        let [from, to] = [from, from + 2].map(Instant::from_nanos);
        let token = FencingToken::new(from.as_nanos()).ok();
        Event {
            actor,
            hold: from.as_nanos(),
            op: Op::Acquire(Mode::Exclusive),
            invoked: from,
            answer: Some((from, Reply::Acked { token, until: Some(to) })),
        }
    };
    let events = begin.into_iter().enumerate().map(hold).collect();
    History { events, ended: Some(Instant::from_nanos(9)) }
}

/// The chapter and the heading of the table.
const CHAPTER: &str = "../docs/src/own-backend.md";
const HEADING: &str = "### Rules and their cases";

pub(crate) fn every_rule_names_cases_that_exist() -> Result<(), Failed> {
    let chapter = fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join(CHAPTER))?;
    let (_, table) = chapter.split_once(HEADING).ok_or("the chapter has no such heading")?;
    let rows: Vec<&str> = table.lines().filter(|line| line.starts_with("| ")).skip(1).collect();
    let known: BTreeSet<String> = dlock_testkit::ALL.iter().map(Case::name).collect();
    for row in &rows {
        let (_, cases) =
            row.trim_end_matches(" |").rsplit_once(" | ").ok_or("a row has no second column")?;
        let named: Vec<&str> = cases.split('`').filter(|name| name.contains("::")).collect();
        if named.is_empty() {
            return Err(format!("no case for: {row}").into());
        }
        if let Some(missing) = named.iter().find(|name| !known.contains(**name)) {
            return Err(format!("there is no case {missing}").into());
        }
    }
    if rows.len() < 20 {
        return Err(format!("the table has only {} rules", rows.len()).into());
    }
    Ok(())
}

use std::collections::BTreeMap;

use super::*;
use crate::{figures::Spread, report::results::Entry};

fn part(store: Store, scenario: &str, entries: Vec<Entry>) -> Part {
    Part {
        store,
        version: String::new(),
        scenario: scenario.to_owned(),
        about: String::new(),
        main: Figure::Rate,
        entries,
        left_out: Vec::new(),
    }
}

fn entry(name: &str, role: Role, figures: &[(Figure, f64, Option<f64>)]) -> Entry {
    let spread = |value: f64, baseline: Option<f64>| {
        Spread::of(&[value], baseline.as_ref().map(std::slice::from_ref)).unwrap()
    };
    let figures: BTreeMap<_, _> = figures
        .iter()
        .map(|(figure, value, baseline)| (*figure, spread(*value, *baseline)))
        .collect();
    Entry { name: name.to_owned(), role, is_baseline: false, figures }
}

fn met(part: Part) -> Vec<(String, bool)> {
    judge(&[part]).into_iter().map(|verdict| (verdict.what, verdict.met)).collect()
}

#[test]
fn an_uncontended_lock_has_another_limit_over_redis() {
    let of = |store| {
        let p50 = [(Figure::P50, 112.0, Some(100.0))];
        met(part(store, "uncontended", vec![entry(DLOCK, Role::Dlock, &p50)]))
    };
    assert_eq!(of(Redis), [(TO_BASELINE.to_owned(), true)]);
    assert_eq!(of(Zk), [(TO_BASELINE.to_owned(), false)]);
}

#[test]
fn an_unmeasured_target_is_not_met() {
    let baseline = entry("bare driver", Role::Baseline, &[(Figure::P50, 1.0, None)]);
    let verdicts = judge(&[part(Redis, "uncontended", vec![baseline])]);
    assert_eq!(verdicts.len(), 1);
    assert!(!verdicts[0].met && verdicts[0].measured.is_none());
}

#[test]
fn a_peer_that_is_not_there_is_no_target() {
    let dlock = || entry(DLOCK, Role::Dlock, &[(Figure::Rate, 100.0, None)]);
    assert_eq!(met(part(Zk, "crowd-8", vec![dlock()])), []);
    let curator = entry("Curator", Role::FairPeer, &[(Figure::Rate, 40.0, None)]);
    let verdicts = met(part(Zk, "crowd-8", vec![dlock(), curator]));
    assert_eq!(verdicts, [("rate to Curator's".to_owned(), false)]);
}

#[test]
fn leftovers_of_names_must_be_deleted() {
    let of = |store, left| {
        let figures =
            [(Figure::Entries, 1.0, None), (Figure::Left, left, None), (Figure::Gone, 5.0, None)];
        met(part(store, "one-time-names", vec![entry(DLOCK, Role::Dlock, &figures)]))
    };
    assert!(of(Redis, 0.0).iter().all(|(_, met)| *met));
    assert_eq!(of(Redis, 3.0).iter().filter(|(_, met)| !met).count(), 1);
    // On ZooKeeper, there is one more target: its own clean-up must finish within two rounds.
    assert_eq!(of(Zk, 0.0).len(), of(Redis, 0.0).len() + 1);
}

#[test]
fn only_the_fair_peers_count_among_the_fair() {
    let dlock = entry(DLOCK, Role::Dlock, &[(Figure::Rate, 100.0, None)]);
    let fast = entry("rslock", Role::Peer, &[(Figure::Rate, 900.0, None)]);
    let fair = entry("fair", Role::FairPeer, &[(Figure::Rate, 40.0, None)]);
    let verdicts = met(part(Redis, "crowd-8", vec![dlock, fast, fair]));
    assert_eq!(verdicts, [("rate to the best fair peer's".to_owned(), true)]);
}

#[test]
fn commands_of_a_hand_off_are_compared_over_all_crowds() {
    let crowd = |clients: u32, commands| {
        let commands = [(Figure::Commands, commands, None)];
        part(Redis, &format!("crowd-{clients}"), vec![entry(DLOCK, Role::Dlock, &commands)])
    };
    let verdicts = judge(&[crowd(8, 5.0), crowd(64, 5.2), crowd(512, 7.0)]);
    assert_eq!(verdicts.len(), 1);
    assert_eq!((verdicts[0].measured, verdicts[0].met), (Some(1.4), false));
    assert!(judge(&[crowd(8, 5.0), crowd(64, 5.2)])[0].met);
    assert!(judge(&[crowd(8, 6.0), crowd(64, 2.0), crowd(512, 1.5)])[0].met);
}

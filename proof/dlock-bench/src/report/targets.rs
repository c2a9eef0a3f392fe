//! The targets, and whether they were met.

use super::results::{Entry, Part, Verdict};
use crate::{
    crew::contestant::Role,
    figures::Figure,
    store::{SOON, Store},
};

/// A target of one scenario.
struct Rule {
    /// The name of the scenario, or of its family.
    scenario: &'static str,
    stores: &'static [Store],
    what: &'static str,
    sign: Sign,
    target: f64,
    /// Returns `None` if it could not be measured.
    measure: fn(&Part) -> Option<f64>,
    /// Whether there is a value to compare with.
    applies: fn(&Part) -> bool,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Sign {
    AtMost,
    AtLeast,
}

use Sign::{AtLeast, AtMost};
use Store::{Etcd, Memory, Mysql, Postgres, Redis, Sqlite, Zk};

const DLOCK: &str = "dlock";
const ADVISORY: &str = "dlock, dlock.advisory";
const LOCK_SERVICE: &str = "Lock service";
const TO_BASELINE: &str = "p50 to the baseline's";
const RATE_TO_BASELINE: &str = "rate to the baseline's";

const RULES: &[Rule] = &[
    rule("uncontended", &[Memory], TO_BASELINE, AtMost, 2.0, p50_to_baseline),
    rule("uncontended", &[Redis], TO_BASELINE, AtMost, 1.15, p50_to_baseline),
    rule("uncontended", &[Sqlite, Postgres, Mysql, Zk], TO_BASELINE, AtMost, 1.1, p50_to_baseline),
    rule("uncontended", &[Etcd], TO_BASELINE, AtMost, 1.25, p50_to_baseline),
    rule("many-512", &[Etcd], RATE_TO_BASELINE, AtLeast, 0.8, rate_to_baseline),
    rule("many-512", &[Redis], RATE_TO_BASELINE, AtLeast, 0.65, rate_to_baseline),
    rule(
        "many-512",
        &[Sqlite, Postgres, Mysql, Zk],
        RATE_TO_BASELINE,
        AtLeast,
        0.9,
        rate_to_baseline,
    ),
    Rule {
        applies: has_peer,
        ..rule("local", ALL, "rate to the best peer's", AtLeast, 40.0, |part| {
            Some(rate(part, DLOCK)? / part.best(Figure::Rate, is_peer)?)
        })
    },
    Rule {
        applies: |part| part.entry(LOCK_SERVICE).is_some(),
        ..rule("local", &[Etcd], "rate to the Lock service's", AtLeast, 200.0, |part| {
            to(part, LOCK_SERVICE)
        })
    },
    rule("local", ALL, "rate to tokio's", AtLeast, 0.5, rate_to_baseline),
    rule("local", ALL, "Jain fairness", AtLeast, 0.95, |part| {
        part.entry(DLOCK)?.median(Figure::Fairness)
    }),
    Rule {
        applies: has_fair_peer,
        ..rule("crowd", &[Redis], "rate to the best fair peer's", AtLeast, 2.0, to_fair_peer)
    },
    Rule {
        applies: |part| part.entry("Curator").is_some(),
        ..rule("crowd", &[Zk], "rate to Curator's", AtLeast, 3.0, |part| to(part, "Curator"))
    },
    Rule {
        applies: |part| part.entry("zookeeper-client").is_some(),
        ..rule("crowd", &[Zk], "rate to zookeeper-client's", AtLeast, 1.0, |part| {
            to(part, "zookeeper-client")
        })
    },
    rule("crowd", &[Sqlite, Postgres, Mysql], "rate to one row's", AtLeast, 0.9, rate_to_baseline),
    Rule {
        applies: |part| part.entry("PgAdvisoryLock").is_some(),
        ..rule("crowd", &[Postgres], "advisory: rate to PgAdvisoryLock's", AtLeast, 0.95, |part| {
            Some(rate(part, ADVISORY)? / rate(part, "PgAdvisoryLock")?)
        })
    },
    rule("hand-off", &[Redis, Postgres, Zk], "p50 to one push's", AtMost, 1.5, p50_to_baseline),
    rule("hand-off", &[Etcd], "p50 to one push's", AtMost, 1.15, p50_to_baseline),
    rule("held-100000", ALL, "client, % of a core", AtMost, 5.0, |part| {
        part.entry(DLOCK)?.median(Figure::ClientCore)
    }),
    rule("held-100000", ALL, "bytes each", AtMost, 512.0, |part| {
        part.entry(DLOCK)?.median(Figure::Bytes)
    }),
    rule("held", ALL, "late or lost", AtMost, 0.0, |part| part.entry(DLOCK)?.median(Figure::Late)),
    rule("long-life", SQL, "p50 to a new name's", AtMost, 1.2, |part| {
        part.entry(DLOCK)?.median(Figure::Ageing)
    }),
    // A log may grow to 4 KiB before a client folds it, and each of 32 claims adds 128 bytes.
    rule("long-life", SQL, "largest row, bytes", AtMost, 8192.0, |part| {
        part.entry(DLOCK)?.median(Figure::Row)
    }),
    rule("long-life", SQL, "entries left", AtMost, 0.0, left),
    rule("long-life", SQL, "tokens not grown", AtMost, 0.0, |part| {
        part.entry(DLOCK)?.median(Figure::Stale)
    }),
    rule("one-time-names", OUTSIDE, "entries each", AtMost, 1.0, |part| {
        part.entry(DLOCK)?.median(Figure::Entries)
    }),
    rule("one-time-names", OUTSIDE, "entries left", AtMost, 0.0, left),
    // A directory that is in use at the server's first check is removed at the second.
    rule("one-time-names", &[Zk], "s until gone", AtMost, 2.0 * SOON.as_secs_f64(), |part| {
        part.entry(DLOCK)?.median(Figure::Gone)
    }),
];

const ALL: &[Store] = &Store::ALL;
const SQL: &[Store] = &[Sqlite, Postgres, Mysql];
/// The stores that outlive a process.
const OUTSIDE: &[Store] = &[Sqlite, Redis, Postgres, Mysql, Zk, Etcd];

/// The largest allowed ratio of the commands per hand-off with many clients to those with few.
const GROWTH: f64 = 1.1;

const fn rule(
    scenario: &'static str,
    stores: &'static [Store],
    what: &'static str,
    sign: Sign,
    target: f64,
    measure: fn(&Part) -> Option<f64>,
) -> Rule {
    Rule { scenario, stores, what, sign, target, measure, applies: |_| true }
}

/// Returns the verdicts of all targets that were measured.
pub(crate) fn judge(parts: &[Part]) -> Vec<Verdict> {
    let mut verdicts = Vec::new();
    // If there are no entries, no contestant took part, and the part contains the reason.
    for part in parts.iter().filter(|part| !part.entries.is_empty()) {
        for rule in RULES.iter().filter(|rule| rule.is_for(part)) {
            verdicts.push(rule.judge(part));
        }
    }
    verdicts.extend(Store::ALL.into_iter().filter_map(|store| growth(parts, store)));
    verdicts
}

impl Rule {
    fn is_for(&self, part: &Part) -> bool {
        let rest = part.scenario.strip_prefix(self.scenario);
        let named = rest.is_some_and(|rest| rest.is_empty() || rest.starts_with('-'));
        named && self.stores.contains(&part.store) && (self.applies)(part)
    }

    fn judge(&self, part: &Part) -> Verdict {
        let scenario = part.scenario.clone();
        verdict(part.store, scenario, self.what, self.sign, self.target, (self.measure)(part))
    }
}

fn verdict(
    store: Store,
    scenario: String,
    what: &str,
    sign: Sign,
    target: f64,
    measured: Option<f64>,
) -> Verdict {
    let met = measured.is_some_and(|measured| match sign {
        AtMost => measured <= target,
        AtLeast => measured >= target,
    });
    let sign = if sign == AtMost { "<=" } else { ">=" };
    Verdict { store, scenario, what: what.to_owned(), sign, target, measured, met }
}

/// Compares the commands per hand-off for different numbers of waiters. Fewer commands with more
/// waiters meet the target: waiters may share them.
fn growth(parts: &[Part], store: Store) -> Option<Verdict> {
    let crowds = parts.iter().filter(|part| part.store == store);
    let crowds = crowds.filter(|part| part.scenario.starts_with("crowd-"));
    let each = crowds.filter_map(|part| part.entry(DLOCK)?.median(Figure::Commands));
    let each: Vec<f64> = each.collect();
    let [fewest_clients, _, ..] = each[..] else { return None };
    let most = each.iter().copied().fold(f64::NAN, f64::max);
    let what = "commands of a hand-off, most : with the fewest clients";
    Some(verdict(store, "crowd".to_owned(), what, AtMost, GROWTH, Some(most / fewest_clients)))
}

fn p50_to_baseline(part: &Part) -> Option<f64> {
    part.entry(DLOCK)?.to_baseline(Figure::P50)
}

fn rate_to_baseline(part: &Part) -> Option<f64> {
    part.entry(DLOCK)?.to_baseline(Figure::Rate)
}

fn left(part: &Part) -> Option<f64> {
    part.entry(DLOCK)?.median(Figure::Left)
}

fn to_fair_peer(part: &Part) -> Option<f64> {
    Some(rate(part, DLOCK)? / part.best(Figure::Rate, |entry| entry.role == Role::FairPeer)?)
}

fn to(part: &Part, peer: &str) -> Option<f64> {
    Some(rate(part, DLOCK)? / rate(part, peer)?)
}

/// Returns `None` if no cycle was completed, because that measures nothing.
fn rate(part: &Part, name: &str) -> Option<f64> {
    part.entry(name)?.median(Figure::Rate).filter(|rate| *rate > 0.0)
}

fn is_peer(entry: &Entry) -> bool {
    matches!(entry.role, Role::Peer | Role::FairPeer)
}

fn has_peer(part: &Part) -> bool {
    part.entries.iter().any(is_peer)
}

fn has_fair_peer(part: &Part) -> bool {
    part.entries.iter().any(|entry| entry.role == Role::FairPeer)
}

#[cfg(test)]
mod tests {
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
            let figures = [
                (Figure::Entries, 1.0, None),
                (Figure::Left, left, None),
                (Figure::Gone, 5.0, None),
            ];
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
}

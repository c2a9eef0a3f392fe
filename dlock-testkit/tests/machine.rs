//! The lock machine against the sequential model, and its own invariants, under random operations
//! at random times.

use std::collections::{BTreeMap, BTreeSet};

use dlock_core::{
    ClaimId, Mode, Note, Queue,
    machine::{Granted, Machine, Op, Outcome, text},
};
use dlock_testkit::model::{Member, Model, Standing};
use proptest::prelude::*;

/// Operations with the time that has passed before each.
type Log = Vec<(Op, u64)>;

fn mode(semaphore: bool) -> BoxedStrategy<Mode> {
    if semaphore {
        (1u32..=3).prop_map(|n| Mode::Permits { n, of: 3 }).boxed()
    } else {
        prop_oneof![Just(Mode::Exclusive), Just(Mode::Shared)].boxed()
    }
}

fn op(semaphore: bool) -> impl Strategy<Value = Op> {
    let claim = || (1u128..8).prop_map(ClaimId::from_bits);
    let lease = || prop_oneof![3 => Just(1_000_000u64), 1 => 1u64..50];
    let queue = prop_oneof![3 => Just(Queue::Enqueue), 1 => Just(Queue::FailIfBusy)];
    let any_mode = prop_oneof![9 => mode(semaphore), 1 => mode(!semaphore)];
    prop_oneof![
        4 => (claim(), any_mode, lease(), 1u32..5, 0u32..2, queue, note()).prop_map(
            |(claim, mode, lease, block, home, queue, note)| {
                Op::Acquire { claim, mode, lease, block, queue, home, note }
            }
        ),
        2 => (claim(), mode(semaphore), lease(), 1u32..5, 0u32..2, note()).prop_map(
            |(claim, mode, lease, block, home, note)| {
                Op::Join { claim, mode, lease, block, home, note }
            }
        ),
        2 => (claim(), mode(semaphore), lease(), prop_oneof![3 => Just(false), 1 => Just(true)])
            .prop_map(|(claim, mode, lease, is_last)| Op::Renew { claim, mode, lease, is_last }),
        3 => claim().prop_map(|claim| Op::Release { claim, used: 0, bar: 0 }),
        1 => (900u64..1_400).prop_map(|above| Op::Raise { above }),
    ]
}

fn note() -> impl Strategy<Value = Option<Note>> {
    prop_oneof![Just(None), "[a-z ;%=é🔒]{1,9}".prop_map(|text| Note::new(&text).ok())]
}

fn log() -> impl Strategy<Value = Log> {
    let step = |semaphore| (op(semaphore), prop_oneof![4 => 0u64..3, 1 => 0u64..60]);
    any::<bool>().prop_flat_map(move |semaphore| prop::collection::vec(step(semaphore), 1..60))
}

/// The operations with their times, as real clients send them: a claim never changes its request, a
/// release reports the number of used tokens, and a renewal never strengthens the claim.
fn played(log: &Log) -> Vec<(Op, u64)> {
    let (mut machine, mut now) = (Machine::default(), 1_000);
    let (mut ops, mut asked) = (Vec::new(), BTreeMap::new());
    for (op, passed) in log {
        let (op, passed) = (op.clone(), *passed);
        now += passed;
        let op = match op {
            Op::Acquire { claim, mode, lease, block, queue, home, note } => {
                let (mode, lease, block) = *asked.entry(claim).or_insert((mode, lease, block));
                Op::Acquire { claim, mode, lease, block, queue, home, note }
            }
            Op::Join { claim, mode, lease, block, home, note } => {
                let (mode, lease, block) = *asked.entry(claim).or_insert((mode, lease, block));
                Op::Join { claim, mode, lease, block, home, note }
            }
            Op::Release { claim, .. } => {
                // Every second client does not know the number of used tokens.
                let knows = machine.grant_of(claim).filter(|_| passed % 2 == 0);
                let passed = u32::try_from(passed).unwrap_or(u32::MAX);
                let used = knows.map_or(0, |grant| grant.block.min(passed.saturating_add(1)));
                Op::Release { claim, used, bar: 0 }
            }
            Op::Renew { claim, mode, lease, is_last } => {
                let state = machine.inspect(now);
                let held = state.holders.iter().find(|c| c.claim == claim).map(|c| c.mode);
                let weaker = |held: Mode| match held {
                    _ if held.capacity() != mode.capacity() => held,
                    _ if held.weight() < mode.weight() => held,
                    _ => mode,
                };
                // A last renewal is only sent for a claim that holds the lock.
                let is_last = is_last && held.is_some();
                let (mode, lease) = match (held, asked.get(&claim)) {
                    (Some(held), _) => (weaker(held), lease),
                    // A waiter keeps its position with its original request.
                    (None, Some(&(mode, lease, _))) => (mode, lease),
                    (None, None) => (mode, lease),
                };
                Op::Renew { claim, mode, lease, is_last }
            }
            op => op,
        };
        machine.apply(&op, now, &mut Vec::new());
        ops.push((op, now));
    }
    ops
}

/// Returns the same operations, with joined claims granted at once.
fn granting_at_once(ops: Vec<(Op, u64)>) -> Vec<(Op, u64)> {
    let queue = Queue::Enqueue;
    let at_once = |(op, now)| match op {
        Op::Join { claim, mode, lease, block, home, note } => {
            (Op::Acquire { claim, mode, lease, block, queue, home, note }, now)
        }
        op => (op, now),
    };
    ops.into_iter().map(at_once).collect()
}

fn run(
    ops: &[(Op, u64)],
    mut each: impl FnMut(&Machine, &Op, u64, Outcome, &[Granted]),
) -> Machine {
    let (mut machine, mut grants) = (Machine::default(), Vec::new());
    for (op, now) in ops {
        grants.clear();
        let outcome = machine.apply(op, *now, &mut grants);
        each(&machine, op, *now, outcome, &grants);
    }
    machine
}

fn log_text(ops: &[(Op, u64)]) -> String {
    ops.iter().map(|(op, now)| format!("{} {now};", text::op_text(op))).collect()
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn it_does_what_the_model_does(log in log()) {
        let mut model = Model::default();
        let mut differs = None;
        run(&granting_at_once(played(&log)), |machine, op, now, outcome, _| {
            let same = step(&mut model, op, now, outcome);
            let holders: Vec<_> = model.holders().map(|m| (m.id, m.mode)).collect();
            let waiters: Vec<_> = model.waiters().map(|m| (m.id, m.mode)).collect();
            let seen = machine.inspect(now);
            let ids = |of: &[dlock_core::ClaimState]| -> Vec<_> {
                of.iter().map(|c| (c.claim, c.mode)).collect()
            };
            if !same || ids(&seen.holders) != holders || ids(&seen.waiters) != waiters {
                differs.get_or_insert(format!("{op:?} at {now}: {outcome:?}, {seen:?}, {model:?}"));
            }
        });
        prop_assert_eq!(differs, None);
    }

    /// A copy of an acquire that arrives after the release of its claim has no effect, before or
    /// after its deadline.
    #[test]
    fn a_late_copy_of_an_acquire_leaves_no_trace(
        log in log(), deadline in 0u64..80, places in prop::collection::vec(any::<prop::sample::Index>(), 1..4),
    ) {
        let mut ops = played(&log);
        let begin = ops[0].1;
        let (claim, copy) = (ClaimId::from_bits(99), Op::Acquire {
            claim: ClaimId::from_bits(99),
            mode: Mode::Shared,
            lease: 1_000_000,
            block: 1,
            queue: Queue::Enqueue,
            home: 0,
            note: None,
        });
        let (given_up, by) = (1.min(ops.len()), begin + deadline);
        ops.insert(given_up, (Op::Release { claim, used: 0, bar: by + 1 }, begin));
        let (mut clean, mut met) = (String::new(), String::new());
        for (at, (op, now)) in ops.iter().enumerate() {
            let line = format!("{} {now};", text::op_text(op));
            clean += &line;
            met += &line;
            if at >= given_up && places.iter().any(|place| place.index(ops.len()) <= at) {
                met += &format!("{} {now};", text::ops_text(Some(by), [&copy]));
            }
            // The next operation, of any claim, performs the grants that are due.
            let nothing = format!("F 0 {now};");
            clean += &nothing;
            met += &nothing;
        }
        let (clean, met) = (text::replay("", &clean).unwrap(), text::replay("", &met).unwrap());
        prop_assert_eq!(clean.machine, met.machine);
    }

    #[test]
    fn replaying_the_text_gives_the_same_state(log in log()) {
        let ops = played(&log);
        let (mut last, mut granted) = (None, Vec::new());
        let whole = run(&ops, |_, _, _, outcome, grants| {
            last = Some(outcome);
            granted = grants.to_vec();
        });
        let replayed = text::replay("", &log_text(&ops)).unwrap();
        prop_assert_eq!(&replayed.machine, &whole);
        prop_assert_eq!(replayed.outcomes.last().copied(), last);
        prop_assert_eq!(replayed.grants, granted);
        prop_assert_eq!(replayed.now, ops.last().unwrap().1);
    }

    #[test]
    fn operations_written_together_apply_one_after_the_other(
        log in log(), sizes in prop::collection::vec(1usize..5, 1..20),
    ) {
        let mut ops = played(&log);
        let (mut text, mut last, mut rest) = (String::new(), 0, &mut ops[..]);
        for size in sizes.into_iter().cycle() {
            if rest.is_empty() {
                break;
            }
            let (some, behind) = rest.split_at_mut(size.min(rest.len()));
            let now = some[some.len() - 1].1;
            some.iter_mut().for_each(|(_, at)| *at = now);
            text += &format!("{} {now};", text::ops_text(None, some.iter().map(|(op, _)| op)));
            (last, rest) = (some.len(), behind);
        }
        let (mut outcomes, mut granted) = (Vec::new(), Vec::new());
        let whole = run(&ops, |_, _, _, outcome, grants| {
            outcomes.push(outcome);
            granted.push(grants.to_vec());
        });
        let replayed = text::replay("", &text).unwrap();
        prop_assert_eq!(&replayed.machine, &whole);
        let before = outcomes.len() - last;
        prop_assert_eq!(&replayed.outcomes, &outcomes[before..]);
        let granted = granted[before..].iter().flatten().copied();
        let standing: Vec<_> =
            granted.filter(|granted| whole.grant_of(granted.claim).is_some()).collect();
        prop_assert_eq!(replayed.grants, standing);
    }

    #[test]
    fn a_snapshot_at_any_cut_and_the_rest_are_the_whole(log in log(), cut in any::<prop::sample::Index>()) {
        let ops = played(&log);
        let (before, after) = ops.split_at(cut.index(ops.len()));
        let first = text::replay("", &log_text(before)).unwrap().machine;
        let second = text::replay(&text::snapshot(&first), &log_text(after)).unwrap().machine;
        prop_assert_eq!(second, run(&ops, |_, _, _, _, _| {}));
    }

    #[test]
    fn the_granted_are_the_longest_prefix_that_fits(log in log()) {
        let mut wrong = None;
        run(&played(&log), |machine, op, now, _, _| {
            let seen = machine.inspect(now);
            let used: u64 = seen.holders.iter().map(|c| u64::from(c.mode.weight())).sum();
            let first = seen.holders.first().or(seen.waiters.first());
            let capacity = first.map_or(0, |c| u64::from(c.mode.capacity()));
            let next_fits = seen.waiters.first().is_some_and(|c| used + u64::from(c.mode.weight()) <= capacity);
            let prefix = seen.holders.iter().enumerate().all(|(i, c)| machine.ahead_of(c.claim) == Some(i));
            let owes = machine.owes_a_grant();
            let may_owe = matches!(op, Op::Join { .. });
            if used > capacity || next_fits != owes || (owes && !may_owe) || !prefix {
                wrong.get_or_insert(format!("{seen:?}"));
            }
        });
        prop_assert_eq!(wrong, None);
    }

    #[test]
    fn a_join_grants_nothing_and_is_granted_by_the_next_operation(log in log()) {
        let nothing = Op::Raise { above: 0 };
        let (mut before, mut wrong) = (Machine::default(), None);
        run(&played(&log), |machine, op, now, _, grants| {
            if matches!(op, Op::Join { .. }) {
                let acquires = granting_at_once(vec![(op.clone(), now)]).remove(0).0;
                let held = |machine: &Machine| machine.grants().map(|g| g.claim).collect::<Vec<_>>();
                let new = held(machine).iter().any(|claim| !held(&before).contains(claim));
                let (mut late, mut at_once) = (machine.clone(), before.clone());
                let (mut later, mut now_granted) = (Vec::new(), Vec::new());
                late.apply(&nothing, now, &mut later);
                at_once.apply(&acquires, now, &mut now_granted);
                if new || !grants.is_empty() || late != at_once || later != now_granted {
                    wrong.get_or_insert(format!("{op:?}: {machine:?}"));
                }
            }
            before = machine.clone();
        });
        prop_assert_eq!(wrong, None);
    }

    #[test]
    fn tokens_grow_past_all_that_were_handed_out(log in log()) {
        let mut handed_out = 0;
        let mut first = BTreeMap::new();
        let mut wrong = None;
        run(&played(&log), |_, op, now, _, grants| {
            if let Op::Release { claim, used, .. } = op
                && *used > 0
            {
                handed_out = handed_out.max(first[claim] + u64::from(used - 1));
            }
            if let Op::Raise { above } = op {
                handed_out = handed_out.max(*above);
            }
            for grant in grants {
                if grant.token <= handed_out || grant.token < now {
                    wrong.get_or_insert(*grant);
                }
                first.insert(grant.claim, grant.token);
                handed_out = handed_out.max(grant.token);
            }
        });
        prop_assert_eq!(wrong, None);
    }

    #[test]
    fn no_grant_is_lost_or_reported_twice(log in log()) {
        let mut held = BTreeSet::new();
        let mut wrong = None;
        run(&played(&log), |machine, op, _, _, grants| {
            let now: BTreeSet<_> = machine.grants().map(|g| (g.claim, g.token)).collect();
            let told: BTreeSet<_> = grants.iter().map(|g| (g.claim, g.token)).collect();
            let new: BTreeSet<_> = now.difference(&held).copied().collect();
            if new != told || told.len() != grants.len() {
                wrong.get_or_insert(format!("{op:?} granted {new:?} and told {grants:?}"));
            }
            held = now;
        });
        prop_assert_eq!(wrong, None);
    }

    /// Late operations never shorten the lease of a holder, until its last renewal.
    #[test]
    fn only_the_last_renewal_shortens_a_lease(log in log()) {
        let (mut ends, mut finals, mut wrong) = (BTreeMap::new(), BTreeSet::new(), None);
        run(&played(&log), |machine, op, now, _, grants| {
            for granted in grants {
                ends.remove(&granted.claim);
                finals.remove(&granted.claim);
            }
            for holder in machine.inspect(now).holders {
                let (claim, end) = (holder.claim, u128::from(now) + holder.remaining.as_micros());
                let before = ends.insert(claim, end).unwrap_or(end);
                let is_last = matches!(op, Op::Renew { is_last: true, .. }) && op.claim() == Some(claim);
                let is_wrong = match (is_last, finals.contains(&claim)) {
                    (true, false) => false,
                    (true, true) => end > before,
                    (false, true) => end != before,
                    (false, false) => end < before,
                };
                if is_last {
                    finals.insert(claim);
                }
                if is_wrong {
                    wrong.get_or_insert(format!("{op:?} at {now}: {before} became {end}"));
                }
            }
        });
        prop_assert_eq!(wrong, None);
    }

    #[test]
    fn a_resend_has_its_effect_once(log in log()) {
        let ops = played(&log);
        let mut wrong = None;
        run(&ops, |machine, op, now, outcome, _| {
            let (mut again, mut grants) = (machine.clone(), Vec::new());
            let second = again.apply(op, now, &mut grants);
            let same = match (op, outcome) {
                (Op::Release { .. }, _) => second == Outcome::NotFound,
                _ => second == outcome,
            };
            if !same || again != *machine || !grants.is_empty() {
                wrong.get_or_insert(format!("{op:?} again at {now}: {outcome:?}, then {second:?}"));
            }
        });
        prop_assert_eq!(wrong, None);
    }

    #[test]
    fn an_expired_claim_is_not_renewed(log in log()) {
        let machine = run(&played(&log), |_, _, _, _, _| {});
        if let Some(end) = machine.next_expiry() {
            let ended: Vec<_> = machine
                .inspect(0)
                .holders
                .iter()
                .filter(|c| c.remaining.as_micros() == u128::from(end))
                .map(|c| (c.claim, c.mode))
                .collect();
            for (claim, mode) in ended {
                let renew = Op::Renew { claim, mode, lease: 100, is_last: false };
                let outcome = machine.clone().apply(&renew, end, &mut Vec::new());
                prop_assert_eq!(outcome, Outcome::NotFound);
            }
        }
    }
}

/// Returns whether the model has the same outcome.
fn step(model: &mut Model, op: &Op, now: u64, outcome: Outcome) -> bool {
    match *op {
        Op::Acquire { claim: id, mode, lease, queue, .. } => {
            let member = Member { id, mode, held: false, lease, until: 0, last: false };
            let standing = model.acquire(member, queue == Queue::Enqueue, now);
            matches!(
                (standing, outcome),
                (Standing::Held, Outcome::Granted(_))
                    | (Standing::Waits, Outcome::Queued { .. })
                    | (Standing::Busy, Outcome::Busy)
                    | (Standing::Conflict, Outcome::Conflict { .. })
            )
        }
        Op::Renew { claim, mode, lease, is_last } => {
            match model.renew(claim, mode, lease, is_last, now) {
                Some(Standing::Held) => matches!(outcome, Outcome::Granted(_)),
                Some(_) => matches!(outcome, Outcome::Queued { .. }),
                None => outcome == Outcome::NotFound,
            }
        }
        Op::Release { claim, .. } => model.release(claim, now) == (outcome == Outcome::Released),
        Op::Raise { .. } => outcome == Outcome::Raised && model.look(now),
        _ => true,
    }
}

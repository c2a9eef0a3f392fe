//! Numbers at the upper limit, and late operations.

use super::*;

const MOST: u64 = FencingToken::MAX.get();

/// Applies an operation; returns its outcome, and the tokens that it granted.
fn apply(machine: &mut Machine, op: &Op) -> (Outcome, Vec<u64>) {
    let mut grants = Vec::new();
    let outcome = machine.apply(op, 5, &mut grants);
    assert_eq!(text::replay(&text::snapshot(machine), "").unwrap().machine, *machine);
    (outcome, grants.iter().map(|granted| granted.token).collect())
}

#[test]
fn no_token_is_given_out_twice_at_the_end_of_all_numbers() {
    let mut machine = Machine::after_token(MOST - 2);
    for (n, token) in [(1, MOST - 1), (2, MOST)] {
        assert_eq!(apply(&mut machine, &acquire(n, Mode::Shared)).1, [token]);
    }
    assert_eq!(apply(&mut machine, &acquire(3, Mode::Shared)), (Outcome::Spent, vec![]));
    assert_eq!(apply(&mut machine, &acquire(4, Mode::Exclusive)), (Outcome::Spent, vec![]));
    assert!([3, 4].iter().all(|n| machine.ahead_of(id(*n)).is_none()));
    // The holders are not affected.
    assert!(matches!(apply(&mut machine, &renew(1, Mode::Shared)).0, Outcome::Granted(_)));
    for n in [1, 2] {
        assert_eq!(apply(&mut machine, &release(n)), (Outcome::Released, vec![]));
    }
    assert_eq!(apply(&mut machine, &acquire(5, Mode::Exclusive)).0, Outcome::Spent);
    assert_eq!(machine.last_token(), MOST);
}

#[test]
fn an_acquire_without_a_token_left_is_refused() {
    let mut machine = Machine::default();
    apply(&mut machine, &acquire(1, Mode::Exclusive));
    let waits = apply(&mut machine, &acquire(2, Mode::Exclusive)).0;
    assert!(matches!(waits, Outcome::Queued { .. }), "{waits:?}");
    apply(&mut machine, &Op::Raise { above: u64::MAX });
    assert_eq!(apply(&mut machine, &release(1)), (Outcome::Released, vec![]));
    assert!(!machine.owes_a_grant());
    let spent = apply(&mut machine, &renew(2, Mode::Exclusive));
    assert_eq!(spent, (Outcome::Spent, vec![]));
    assert_eq!(apply(&mut machine, &release(2)).0, Outcome::Released);
    assert!(machine.is_free(5));
}

const DAY: Micros = 86_400_000_000;

/// Returns the state after a log, and the outcomes of its last operations.
fn replay(log: &str) -> (Machine, Vec<Outcome>) {
    let replayed = text::replay("", log).unwrap();
    assert!(log.is_ascii());
    (replayed.machine, replayed.outcomes)
}

#[test]
fn only_a_release_takes_effect_after_its_deadline() {
    let renew = renew_for(1, Mode::Exclusive, DAY, false);
    let join =
        Op::Join { claim: id(3), mode: Mode::Exclusive, lease: DAY, block: 1, home: 0, note: None };
    let late = [acquire(2, Mode::Exclusive), renew, join, Op::Raise { above: 1_000_000 }];
    let before = format!("{} 5;", text::op_text(&acquire(1, Mode::Exclusive)));
    let (machine, _) = replay(&before);
    let by = |deadline, now| format!("{before}{} {now};", text::ops_text(Some(deadline), &late));
    let (same, outcomes) = replay(&by(100, 101));
    assert_eq!((same, outcomes), (machine.clone(), vec![Outcome::Late; 4]));
    let (_, outcomes) = replay(&by(100, 100));
    assert!(!outcomes.contains(&Outcome::Late), "{outcomes:?}");
    // Operations that are written together share one deadline; the next one has none.
    let mixed = [late[0].clone(), release(1)];
    let log = format!("{before}{} 101;", text::ops_text(Some(100), &mixed));
    let (free, outcomes) = replay(&log);
    assert!(free.is_free(101));
    assert_eq!(outcomes, [Outcome::Late, Outcome::Released]);
    let (_, outcomes) = replay(&format!("{log}{} 102;", text::op_text(&late[0])));
    assert!(matches!(*outcomes, [Outcome::Granted(_)]));
}

#[test]
fn a_claim_that_was_given_up_does_not_come_back_until_then() {
    let back = Op::Release { claim: id(1), used: 0, bar: 500 };
    let join = Op::Join {
        claim: id(1),
        mode: Mode::Exclusive,
        lease: LEASE,
        block: 1,
        home: 0,
        note: None,
    };
    // Whether or not the claim existed before.
    for before in [vec![(5, acquire(1, Mode::Exclusive))], vec![]] {
        let mut machine = Machine::default();
        run(&mut machine, &before);
        run(&mut machine, &[(6, back.clone())]);
        assert!(machine.is_free(6) && machine.bars(6) && machine.bars(499) && !machine.bars(500));
        let snap = text::snapshot(&machine);
        assert_eq!(text::replay(&snap, "").unwrap().machine, machine, "{snap}");
        for late in [acquire(1, Mode::Exclusive), join.clone()] {
            let (outcome, granted) = run(&mut machine, &[(499, late)]);
            assert_eq!((outcome, granted), (Some(Outcome::Late), vec![]));
        }
        assert!(matches!(
            run(&mut machine.clone(), &[(499, acquire(2, Mode::Shared))]).0,
            Some(Outcome::Granted(_))
        ));
        run(&mut machine, &[(500, release(2))]);
        assert_eq!(machine, Machine { tombstones: Tombstones::new(), ..machine.clone() });
    }
    assert!(text::op_text(&back).ends_with(" 0 x500"));
    assert!(text::op_text(&release(1)).ends_with(" 0"));
}

#[test]
fn a_late_operation_still_grants_the_next_claim() {
    let mut machine = Machine::default();
    let back = Op::Release { claim: id(1), used: 0, bar: DAY };
    let ops = [(5, acquire(2, Mode::Exclusive)), (6, acquire(3, Mode::Exclusive)), (6, back)];
    run(&mut machine, &ops);
    // The lease of the second claim expires, and the next operation is late.
    let renew = renew_for(3, Mode::Exclusive, DAY, false);
    run(&mut machine, &[(7, renew)]);
    let (outcome, granted) = run(&mut machine, &[(5 + LEASE, acquire(1, Mode::Shared))]);
    assert_eq!((outcome, granted), (Some(Outcome::Late), vec![3]));
}

#[test]
fn deadlines_and_bars_that_can_not_be_are_refused() {
    let claim = id(1);
    for log in [
        format!("D 5;R {claim} 0;"),
        format!("D 5;D 6;R {claim} 0 7;"),
        format!("R {claim} 0;D 5;R {claim} 0 7;"),
        format!("D x;R {claim} 0 7;"),
        "D 5;".to_owned(),
        format!("R {claim} 0 x 7;"),
        format!("R {claim} 0 xa 7;"),
        format!("R {claim} 0 7 x5;"),
    ] {
        assert!(text::replay("", &log).is_err(), "{log}");
    }
    for snap in ["v1 0 5;X 5;", "v1 0 5;X short 5;", "X 5;"] {
        assert!(text::replay(snap, "").is_err(), "{snap}");
    }
}

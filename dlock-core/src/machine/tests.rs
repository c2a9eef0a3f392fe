//! The rules by example; `dlock-testkit/tests/machine.rs` checks them as properties.

use super::{text, *};
use crate::ErrorKind;

const LEASE: Micros = 1_000;

fn id(n: u128) -> ClaimId {
    ClaimId::from_bits(n)
}

fn acquire(n: u128, mode: Mode) -> Op {
    ask(n, mode, 1, None)
}

fn ask(n: u128, mode: Mode, block: u32, note: Option<Note>) -> Op {
    let queue = Queue::Enqueue;
    Op::Acquire { claim: id(n), mode, lease: LEASE, block, queue, home: 0, note }
}

fn renew(n: u128, mode: Mode) -> Op {
    renew_for(n, mode, LEASE, false)
}

fn renew_for(n: u128, mode: Mode, lease: Micros, is_last: bool) -> Op {
    Op::Renew { claim: id(n), mode, lease, is_last }
}

fn release(n: u128) -> Op {
    Op::Release { claim: id(n), used: 0, bar: 0 }
}

/// Applies the operations, each at its time. Returns the last outcome and the claims that it
/// granted.
fn run(machine: &mut Machine, ops: &[(Micros, Op)]) -> (Option<Outcome>, Vec<u128>) {
    let (mut outcome, mut grants) = (None, Vec::new());
    for (now, op) in ops {
        grants.clear();
        outcome = Some(machine.apply(op, *now, &mut grants));
    }
    (outcome, grants.iter().map(|granted| granted.claim.to_bits()).collect())
}

#[test]
fn a_release_grants_the_first_waiter_a_whole_lease() {
    let mut machine = Machine::default();
    let ops = [1, 2, 3].map(|n| (10, acquire(n, Mode::Exclusive)));
    run(&mut machine, &ops);
    let (outcome, grants) = run(&mut machine, &[(500, release(1))]);
    assert_eq!((outcome, grants), (Some(Outcome::Released), vec![2]));
    assert_eq!(machine.grant_of(id(2)).unwrap().since, 500);
    assert_eq!(machine.ahead_of(id(3)), Some(1));
}

#[test]
fn only_the_last_renewal_shortens_a_lease() {
    let exclusive = Mode::Exclusive;
    let after = |renewals: &[(Micros, Micros, bool)]| {
        let mut machine = Machine::default();
        run(&mut machine, &[(10, acquire(1, exclusive))]);
        for &(now, lease, is_last) in renewals {
            run(&mut machine, &[(now, renew_for(1, exclusive, lease, is_last))]);
        }
        // A retry of the acquire changes nothing, and the text keeps the whole state.
        run(&mut machine, &[(100, acquire(1, exclusive))]);
        assert_eq!(text::snapshot_of(&text::snapshot(&machine)).unwrap(), machine);
        let granted = machine.grant_of(id(1)).unwrap();
        let end = machine.next_expiry().unwrap();
        assert!(granted.since + LEASE <= end, "the grant says more than the lease: {granted:?}");
        end
    };
    let (late, renewal, last) = ((50, 2 * LEASE, false), (20, 9 * LEASE, false), (30, LEASE, true));
    assert_eq!(after(&[renewal, late]), 20 + 9 * LEASE);
    assert_eq!(after(&[renewal, last]), 30 + LEASE);
    assert_eq!(after(&[renewal, last, late]), 30 + LEASE);
    assert_eq!(after(&[last, renewal, (60, 5 * LEASE, true)]), 30 + LEASE);
    assert_eq!(after(&[(30, 5 * LEASE, true), (60, LEASE, true)]), 60 + LEASE);
    assert_eq!(after(&[(30, 5 * LEASE, true), late]), 30 + 5 * LEASE);
}

#[test]
fn readers_join_readers_but_do_not_pass_a_writer() {
    let mut machine = Machine::default();
    let (_, grants) = run(
        &mut machine,
        &[
            (1, acquire(1, Mode::Shared)),
            (1, acquire(2, Mode::Shared)),
            (1, acquire(3, Mode::Exclusive)),
            (1, acquire(4, Mode::Shared)),
        ],
    );
    assert!(grants.is_empty());
    assert_eq!(machine.grants().count(), 2);
    assert_eq!(run(&mut machine, &[(2, release(3))]).1, [4], "a cancelled writer lets readers by");
}

#[test]
fn an_expired_claim_is_removed_and_the_next_is_granted() {
    let mut machine = Machine::default();
    run(&mut machine, &[(1, acquire(1, Mode::Exclusive)), (500, acquire(2, Mode::Exclusive))]);
    let (outcome, _) = run(&mut machine, &[(900, renew(2, Mode::Exclusive))]);
    assert!(matches!(outcome, Some(Outcome::Queued { ahead: 1 })));
    let (outcome, grants) = run(&mut machine, &[(1_001, renew(1, Mode::Exclusive))]);
    assert_eq!((outcome, grants), (Some(Outcome::NotFound), vec![2]));
}

#[test]
fn a_downgrade_keeps_the_token_and_admits_readers() {
    let mut machine = Machine::default();
    run(&mut machine, &[(7, acquire(1, Mode::Exclusive)), (8, acquire(2, Mode::Shared))]);
    let token = machine.grant_of(id(1)).unwrap().token;
    assert_eq!(run(&mut machine, &[(9, renew(1, Mode::Shared))]).1, [2]);
    run(&mut machine, &[(10, renew(1, Mode::Exclusive))]);
    let state = machine.inspect(10);
    assert!(state.holders.iter().all(|holder| holder.mode == Mode::Shared));
    assert_eq!(machine.grant_of(id(1)).unwrap().token, token);
}

#[test]
fn unused_tokens_go_back_and_used_ones_do_not() {
    let block = ask(1, Mode::Exclusive, 100, None);
    let mut machine = Machine::default();
    let next = |machine: &mut Machine, used| {
        run(machine, &[(5, Op::Release { claim: id(1), used, bar: 0 }), (5, block.clone())]);
        machine.grant_of(id(1)).unwrap().token
    };
    run(&mut machine, &[(5, block.clone())]);
    assert_eq!(next(&mut machine, 3), 5 + 3);
    assert_eq!(next(&mut machine, 0), 8 + 100, "who does not know gives nothing back");
    assert_eq!(next(&mut machine, 1_000), 108 + 100);
}

#[test]
fn raised_tokens_stay_when_a_lower_block_is_released() {
    let block = ask(1, Mode::Exclusive, 100, None);
    // The block is 5 to 104.
    for (above, next) in [(4, 6), (50, 106), (104, 106), (105, 106), (1_000, 1_001)] {
        let mut machine = Machine::default();
        let raise = Op::Raise { above };
        run(&mut machine, &[(5, block.clone()), (5, raise.clone())]);
        let once = machine.clone();
        assert_eq!(run(&mut machine, &[(5, raise)]).0, Some(Outcome::Raised));
        assert_eq!(machine, once, "asked again");
        let back = Op::Release { claim: id(1), used: 1, bar: 0 };
        run(&mut machine, &[(5, back), (5, acquire(2, Mode::Exclusive))]);
        assert_eq!(machine.grant_of(id(2)).unwrap().token, next, "above {above}");
    }
}

#[test]
fn a_name_has_one_capacity_at_a_time() {
    let mut machine = Machine::default();
    let (three, four) = (Mode::permits(1, 3).unwrap(), Mode::permits(1, 4).unwrap());
    let ops = [(1, acquire(1, three)), (1, acquire(2, four))];
    assert_eq!(run(&mut machine, &ops).0, Some(Outcome::Conflict { capacity: 3 }));
    let (outcome, _) = run(&mut machine, &[(2, release(1)), (2, acquire(2, four))]);
    assert!(matches!(outcome, Some(Outcome::Granted(_))));
}

#[test]
fn text_of_another_version_or_hand_is_refused() {
    let newer = text::replay("v9 0 0;", "").unwrap_err();
    assert_eq!(newer.kind(), ErrorKind::Protocol);
    assert!(newer.to_string().contains("has format 9"), "{newer}");
    let claim = id(1);
    for (snap, log) in [
        ("v1 0", String::new()),
        ("v1 +1 0;", String::new()),
        ("v1 9223372036854775808 0;", String::new()),
        ("", format!("A {claim} 0 5 10 1 0 Q 1;")),
        ("", format!("A {claim} 6 5 10 1 0 Q 1;")),
        ("", format!("A {claim} 1 5 10 1 0 X 1;")),
        ("", format!("Z {claim} 1;")),
        ("", "A short 1 5 10 1 0 Q 1;".to_owned()),
        ("", format!("R {claim} 0 1 1;")),
        ("", format!("R {claim} 0 17")),
        ("", format!("R {claim} 0 1;R {claim} 0;")),
        ("v1 0 5", String::new()),
        ("v1 0 1073741825;", String::new()),
        ("", format!("A {claim} = 1073741825 10 1 0 Q 1;")),
        ("", format!("K {claim} 0 10 1;")),
        ("", format!("K {claim} 1 10 na 1;")),
        ("", format!("A {claim} = 1 10 1 0 Q n 1;")),
        ("", format!("A {claim} = 1 10 1 0 Q na%2 1;")),
        ("", format!("A {claim} = 1 10 1 0 Q n%0A 1;")),
        ("", format!("A {claim} = 1 10 1 0 Q n%61 1;")),
        ("", format!("A {claim} = 1 10 1 0 Q na nb 1;")),
        ("", format!("A {claim} = 1 10 1 0 Q 1 na;")),
    ] {
        let ended = if snap == "v1 0" { "v1 0;1 2;" } else { snap };
        assert!(text::replay(ended, &log).is_err(), "{snap:?} {log:?}");
    }
}

#[test]
fn an_error_shows_the_start_of_unreadable_text() {
    for (snap, log) in [("v2".repeat(1000) + ";", String::new()), (String::new(), "x".repeat(9999))]
    {
        let error = text::replay(&snap, &log).unwrap_err().to_string();
        assert!(error.len() < 400, "{} bytes", error.len());
    }
}

#[test]
fn a_note_stays_as_long_as_its_claim_and_no_renewal_changes_it() {
    let mode = Mode::Exclusive;
    let noted = |n, text| ask(n, mode, 1, Note::new(text).ok());
    assert!(text::op_text(&noted(1, "web 3;")).ends_with(" 0 Q nweb%203%3B"));
    let ops = [noted(1, "web 3;"), noted(2, "é"), acquire(3, mode), noted(1, "x"), renew(1, mode)];
    let mut machine = Machine::default();
    run(&mut machine, &ops.map(|op| (5, op)));
    let seen = |machine: &Machine| -> Vec<Option<String>> {
        let state = machine.inspect(6);
        let claims = state.holders.into_iter().chain(state.waiters);
        claims.map(|claim| claim.note.map(|note| note.to_string())).collect()
    };
    assert_eq!(seen(&machine), [Some("web 3;".to_owned()), Some("é".to_owned()), None]);
    let snap = text::snapshot(&machine);
    assert!(snap.contains(" 0 nweb%203%3B;") && snap.is_ascii() && snap.ends_with(" 0;"), "{snap}");
    assert_eq!(text::replay(&snap, "").unwrap().machine, machine);
    run(&mut machine, &[(7, release(1))]);
    assert_eq!(seen(&machine), [Some("é".to_owned()), None]);
}

/// Statements of one client may reach a row in another order than they were sent.
#[test]
fn a_renewal_that_comes_late_does_not_shorten_a_later_one() {
    let mut machine = Machine::default();
    let mode = Mode::Exclusive;
    run(&mut machine, &[(5, acquire(1, mode)), (50, renew(1, mode)), (10, renew(1, mode))]);
    assert_eq!(machine.next_expiry(), Some(50 + LEASE));
}

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
    // The outcome is the same whether or not the claim existed before.
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

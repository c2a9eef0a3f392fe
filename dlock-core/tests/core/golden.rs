//! The records of each format as they stand in `tests/golden`: they are read, and written the same.

use dlock_core::{
    ClaimId, Format, Mode, Note, Queue,
    machine::{
        Machine, Micros, Op,
        text::{ops_text, replay, snapshot, snapshot_of},
    },
};

/// A file stays that of its format when a newer format is added.
fn formats() -> [(Format, &'static str); 2] {
    let files =
        [(1, include_str!("../golden/format-1.txt")), (2, include_str!("../golden/format-2.txt"))];
    files.map(|(number, golden)| (Format::known(number).expect("it is read"), golden))
}

const NOW: Micros = 1_700_000_000_000_000;
const LEASE: Micros = 30_000_000;
const DEADLINE: Micros = NOW + 2_000_000;
const BAR: Micros = NOW + 9_000_000;

/// The record of this name.
#[track_caller]
fn golden(of: &'static str, name: &str) -> &'static str {
    let mut lines = of.lines().filter_map(|line| line.split_once(": "));
    lines.find(|(found, _)| *found == name).map(|(_, text)| text).expect("a record of this name")
}

fn id(n: u128) -> ClaimId {
    ClaimId::from_bits(n)
}

/// Each kind of operation: its name, its deadline, and the operation.
fn operations() -> Vec<(&'static str, Option<Micros>, Op, Micros)> {
    let (mode, note) = (Mode::Exclusive, Note::new("web-3 pid 1").ok());
    let permits = Mode::Permits { n: 2, of: 5 };
    let acquire = |mode, block, queue, home, note| Op::Acquire {
        claim: id(1),
        mode,
        lease: LEASE,
        block,
        queue,
        home,
        note,
    };
    let join =
        Op::Join { claim: id(2), mode: Mode::Shared, lease: LEASE, block: 1, home: 6, note: None };
    let renew = |is_last| Op::Renew { claim: id(1), mode, lease: LEASE, is_last };
    let release = |claim, used, bar| Op::Release { claim: id(claim), used, bar };
    vec![
        ("acquire", Some(DEADLINE), acquire(mode, 7, Queue::Enqueue, 5, note), NOW),
        ("try", None, acquire(permits, 1, Queue::FailIfBusy, 0, None), NOW),
        ("join", None, join, NOW + 1),
        ("renew", None, renew(false), NOW + 1),
        ("last renewal", None, renew(true), NOW + 1),
        ("release", None, release(1, 3, 0), NOW + 2),
        ("bar", None, release(3, 0, BAR), NOW + 2),
        ("raise", None, Op::Raise { above: NOW + 100 }, NOW + 3),
    ]
}

/// A lock with a holder, a waiter and a barred claim.
fn machine(of: &'static str) -> Machine {
    let log = ["acquire", "join", "bar"].map(|name| golden(of, name)).concat();
    replay("", &log).unwrap_or_else(|error| panic!("{error}")).machine
}

#[test]
fn golden_operations_are_written_and_read() {
    for (format, of) in formats() {
        for (name, deadline, op, now) in operations() {
            let text = ops_text(format, deadline, [&op]) + &format!(" {now};");
            assert_eq!(text, golden(of, name), "{name}");
            let outcome = Machine::default().apply_by(&op, deadline, now, &mut Vec::new());
            let read = replay("", golden(of, name)).unwrap();
            assert_eq!((read.outcomes, read.now), (vec![outcome], now));
            let state = read.machine.inspect(now);
            let mut claims = state.holders.iter().chain(&state.waiters);
            assert!(claims.all(|claim| claim.format == format), "{state:?}");
        }
        // The snapshot, and these operations.
        assert_eq!(of.lines().count(), 1 + operations().len());
    }
}

#[test]
fn golden_snapshots_are_written_and_read() {
    for (_, of) in formats() {
        assert_eq!(snapshot(&machine(of)), golden(of, "snapshot"));
        assert_eq!(snapshot_of(golden(of, "snapshot")).unwrap(), machine(of));
    }
}

/// So a row returns to format 1 when its last claim of format 2 ends.
#[test]
fn a_snapshot_without_a_claim_of_format_2_has_format_1() {
    let [(first, _), (_, of)] = formats();
    let log = [golden(of, "renew"), golden(of, "release")].concat();
    let read = replay(golden(of, "snapshot"), &log).unwrap();
    assert!(snapshot(&read.machine).starts_with("v2 "), "the waiter holds the lock");
    let release = Op::Release { claim: id(2), used: 1, bar: 0 };
    let log = ops_text(first, None, [&release]) + &format!(" {};", read.now + 1);
    let read = replay(&snapshot(&read.machine), &log).unwrap();
    assert!(snapshot(&read.machine).starts_with("v1 "), "{}", snapshot(&read.machine));
}

#[test]
fn golden_records_contain_holders_and_waiters() {
    for (format, of) in formats() {
        let log = [golden(of, "renew"), golden(of, "release")].concat();
        let read = replay(golden(of, "snapshot"), &log).unwrap();
        let state = read.machine.inspect(read.now);
        assert_eq!(state.holders[0].claim, id(2), "the waiter got the lock by the release");
        assert_eq!(state.holders[0].format, format);
        // The tokens that the first holder did not use are granted again.
        assert_eq!(state.last_token.map(|token| token.get()), Some(NOW + 3));
        let read = replay(golden(of, "snapshot"), golden(of, "raise")).unwrap();
        let note = read.machine.inspect(read.now).holders[0].note.clone();
        assert_eq!(note.as_ref().map(Note::as_str), Some("web-3 pid 1"));
        assert_eq!(read.machine.last_token(), NOW + 100);
    }
}

#[test]
fn a_claim_of_an_unknown_format_is_an_error() {
    let [_, (_, of)] = formats();
    for name in ["acquire", "try", "join"] {
        let error = replay("", &golden(of, name).replace(" f2 ", " f9 ")).unwrap_err();
        assert!(error.to_string().contains("has format 9"), "{error}");
    }
    let error = replay(&golden(of, "snapshot").replace(" f2;", " f9;"), "").unwrap_err();
    assert!(error.to_string().contains("has format 9"), "{error}");
}

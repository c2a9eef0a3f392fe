//! The records of `tests/golden`: this version reads them, and writes the same.

use dlock_core::{
    ClaimId, Mode, Note, Queue,
    machine::{
        Machine, Micros, Op,
        text::{ops_text, replay, snapshot, snapshot_of},
    },
};

const GOLDEN: &str = include_str!("../golden/format-1.txt");

const NOW: Micros = 1_700_000_000_000_000;
const LEASE: Micros = 30_000_000;
const DEADLINE: Micros = NOW + 2_000_000;
const BAR: Micros = NOW + 9_000_000;

/// The record of this name.
#[track_caller]
fn golden(name: &str) -> &'static str {
    let mut lines = GOLDEN.lines().filter_map(|line| line.split_once(": "));
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

/// A lock with a holder, a waiter and a released claim that may not return.
fn machine() -> Machine {
    let log = ["acquire", "join", "bar"].map(|name| golden(name)).concat();
    replay("", &log).unwrap_or_else(|error| panic!("{error}")).machine
}

#[test]
fn golden_operations_are_written_and_read() {
    for (name, deadline, op, now) in operations() {
        let text = ops_text(deadline, [&op]) + &format!(" {now};");
        assert_eq!(text, golden(name), "{name}");
        let outcome = Machine::default().apply_by(&op, deadline, now, &mut Vec::new());
        let read = replay("", golden(name)).unwrap();
        assert_eq!((read.outcomes, read.now), (vec![outcome], now));
    }
    // The snapshot, and these operations.
    assert_eq!(GOLDEN.lines().count(), 1 + operations().len());
}

#[test]
fn golden_snapshots_are_written_and_read() {
    assert_eq!(snapshot(&machine()), golden("snapshot"));
    assert_eq!(snapshot_of(golden("snapshot")).unwrap(), machine());
}

#[test]
fn golden_records_contain_holders_and_waiters() {
    let log = [golden("renew"), golden("release")].concat();
    let read = replay(golden("snapshot"), &log).unwrap();
    let state = read.machine.inspect(read.now);
    assert_eq!(state.holders[0].claim, id(2), "the waiter got the lock by the release");
    // The tokens that the first holder did not use are granted again.
    assert_eq!(state.last_token.map(|token| token.get()), Some(NOW + 3));
    let read = replay(golden("snapshot"), golden("raise")).unwrap();
    let note = read.machine.inspect(read.now).holders[0].note.clone();
    assert_eq!(note.as_ref().map(Note::as_str), Some("web-3 pid 1"));
    assert_eq!(read.machine.last_token(), NOW + 100);
}

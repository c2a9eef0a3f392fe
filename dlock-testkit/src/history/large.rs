//! Runs every checker on a history of two hundred thousand holds. A checker that compares all holds
//! with all others would not finish.

use std::time::Duration;

use dlock_core::Mode;

use super::{
    History, Violation, build::*, exclusion, fifo, permits, reentry, shared, tokens, wake_up,
};

const HOLDS: u64 = 200_000;
const BOUND: Duration = Duration::from_millis(10);

/// Returns a history of consecutive holds by four clients. A client requests the lock 1 ms after
/// the previous grant. It is granted 1 ms after the previous release was answered.
fn long(mode: Mode) -> History {
    let mut all = history((1..=HOLDS).map(|n| {
        let actor = usize::try_from(n % 4).unwrap();
        let mut events = hold(actor, mode, n, [n * 10 - 9, n * 10, n * 10 + 8]);
        // The numbers of two holds must not collide.
        events.iter_mut().for_each(|event| event.hold = n);
        events
    }));
    all.ended = Some(at(HOLDS * 10 + 10));
    all
}

/// Returns the indices of the last hold's acquire and release.
fn last(history: &mut History) -> [usize; 2] {
    let mut of = (0..history.events.len()).filter(|&i| history.events[i].hold == HOLDS);
    [of.next().unwrap(), of.next().unwrap()]
}

#[track_caller]
fn find(check: impl Fn(&History) -> Result<(), Violation>, right: &History, wrong: &History) {
    assert_eq!(check(right), Ok(()));
    assert!(check(wrong).is_err());
}

#[test]
fn an_error_at_the_end_of_a_long_history_is_found() {
    let right = long(Mode::Exclusive);
    let mut early = right.clone();
    let [acquire, _] = last(&mut early);
    if let Some((granted, _)) = &mut early.events[acquire].answer {
        *granted = at(HOLDS * 10 - 5);
    }
    find(exclusion::check, &right, &early);
    find(reentry::check, &right, &early);

    let mut small = right.clone();
    small.events[acquire].answer = small.events[0].answer;
    find(tokens::check, &right, &small);
    let mut late = right.clone();
    if let Some((granted, _)) = &mut late.events[acquire].answer {
        *granted = at(HOLDS * 10 + 50);
    }
    find(|history| wake_up::check(history, BOUND), &right, &late);

    // The last claim was seen in the queue before the previous claim was requested.
    let mut seen = right.clone();
    let mut arrive = seen.events[acquire].clone();
    (arrive.op, arrive.invoked) = (super::Op::Arrive, at(1));
    seen.events.push(arrive);
    find(fifo::check, &right, &seen);
}

#[test]
fn so_it_is_with_readers_and_permits() {
    let mut wrong = long(Mode::Shared);
    let right = wrong.clone();
    let [acquire, _] = last(&mut wrong);
    wrong.events[acquire].op = super::Op::Acquire(Mode::Exclusive);
    if let Some((granted, _)) = &mut wrong.events[acquire].answer {
        *granted = at(HOLDS * 10 - 5);
    }
    find(shared::check, &right, &wrong);
    assert_eq!(shared::most_readers(&right), 1);

    let mut wrong = long(Mode::Permits { n: 2, of: 3 });
    let right = wrong.clone();
    if let Some((granted, _)) = &mut wrong.events[acquire].answer {
        *granted = at(HOLDS * 10 - 5);
    }
    find(|history| permits::check(history, 3), &right, &wrong);
}

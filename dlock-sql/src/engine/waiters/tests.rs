use dlock_core::{
    Mode, Queue,
    machine::{Granted, Op, text},
};

use super::*;

fn id(n: u128) -> ClaimId {
    ClaimId::from_bits(n)
}

fn name() -> LockName {
    LockName::new("n").unwrap()
}

fn sample(now: Micros) -> ClockSample {
    ClockSample { sent: Clock::Boot.now(), now }
}

fn machine(ops: &[(Micros, Op)]) -> Machine {
    let log: String = ops.iter().map(|(now, op)| format!("{} {now};", text::op_text(op))).collect();
    text::replay("", &log).unwrap().machine
}

fn acquire(n: u128) -> Op {
    let (mode, queue) = (Mode::Exclusive, Queue::Enqueue);
    Op::Acquire { claim: id(n), mode, lease: 1_000_000, block: 1, queue, home: 0, note: None }
}

fn release(n: u128) -> Op {
    Op::Release { claim: id(n), used: 0, bar: 0 }
}

fn is_woken(wake: &Notify) -> bool {
    let mut notified = std::pin::pin!(wake.notified());
    notified.as_mut().enable()
}

#[test]
fn only_the_granted_and_the_next_waiter_are_woken() {
    let waiters = Waiters::default();
    let mut ops: Vec<_> = (1..5).map(|n| (10, acquire(n))).collect();
    for n in 2..5 {
        waiters.register(&name(), id(n), sample(10));
    }
    waiters.observe(&name(), Mark::default(), &machine(&ops), sample(10));
    let wakes: Vec<_> = (2..5)
        .map(|n| match waiters.standing(&name(), id(n)) {
            Standing::Waiting { wake, expiry, .. } => {
                assert_eq!(expiry.is_some(), n == 2);
                is_woken(&wake);
                wake
            }
            other => panic!("{other:?}"),
        })
        .collect();
    ops.push((20, release(1)));
    waiters.observe(&name(), Mark { base: 0, len: 1 }, &machine(&ops), sample(20));
    assert_eq!(wakes.iter().map(|b| is_woken(b)).collect::<Vec<_>>(), [true, true, false]);
    assert!(matches!(waiters.standing(&name(), id(2)), Standing::Granted(_)));
    assert!(matches!(waiters.standing(&name(), id(2)), Standing::Unknown));
}

/// The claim was granted, lost its lease unseen, and queued again. A late notification of the grant
/// does not begin a new lease.
#[test]
fn an_old_notification_grants_no_new_lease() {
    const SECOND: Micros = 1_000_000;
    let granted = Granted { claim: id(1), token: 7, block: 1, since: SECOND, home: 0 };
    let notification = Notification { name: name(), granted, expiry: SECOND };
    let seen = sample(2 * SECOND);
    for is_early in [true, false] {
        let waiters = Waiters::default();
        if is_early {
            waiters.notify(&notification);
        }
        waiters.register(&name(), id(1), seen);
        if !is_early {
            waiters.notify(&notification);
        }
        let Standing::Granted(grant) = waiters.standing(&name(), id(1)) else { panic!() };
        assert_eq!(seen.sent.since(grant.since), Duration::from_secs(1));
    }
}

#[test]
fn the_next_waiter_watches_leases_when_the_first_leaves() {
    let waiters = Waiters::default();
    waiters.register(&name(), id(1), sample(10));
    waiters.register(&name(), id(2), sample(10));
    let Standing::Waiting { wake, expiry: None, .. } = waiters.standing(&name(), id(2)) else {
        panic!()
    };
    waiters.remove(&name(), id(1));
    assert!(is_woken(&wake));
    assert!(matches!(waiters.standing(&name(), id(2)), Standing::Waiting { expiry: Some(_), .. }));
    waiters.remove(&name(), id(2));
    assert!(waiters.delay().is_none());
}

#[test]
fn a_removed_grant_leaves_nothing() {
    let waiters = Waiters::default();
    waiters.register(&name(), id(1), sample(10));
    let ops = [(10, acquire(1))];
    waiters.observe(&name(), Mark::default(), &machine(&ops), sample(10));
    waiters.remove(&name(), id(1));
    let inner = waiters.inner.lock();
    assert!(inner.ready.is_empty() && inner.queues.is_empty());
}

#[test]
fn a_waiter_that_left_the_queue_is_due_at_once() {
    let waiters = Waiters::default();
    waiters.register(&name(), id(2), sample(10));
    waiters.observe(&name(), Mark::default(), &machine(&[(10, acquire(1))]), sample(10));
    let Standing::Waiting { expiry: Some(expiry), .. } = waiters.standing(&name(), id(2)) else {
        panic!()
    };
    assert!(expiry <= Clock::Boot.now());
}

#[test]
fn a_waiter_of_a_free_lock_is_due_at_once() {
    let waiters = Waiters::default();
    waiters.register(&name(), id(1), sample(10));
    let join = |n| Op::Join {
        claim: id(n),
        mode: Mode::Exclusive,
        lease: 1_000_000,
        block: 1,
        home: 0,
        note: None,
    };
    let expiry = |ops: &[(Micros, Op)]| {
        waiters.observe(&name(), Mark::default(), &machine(ops), sample(10));
        match waiters.standing(&name(), id(1)) {
            Standing::Waiting { expiry: Some(expiry), .. } => expiry,
            other => panic!("{other:?}"),
        }
    };
    assert!(expiry(&[(10, join(1))]) <= Clock::Boot.now());
    assert!(expiry(&[(10, acquire(2)), (10, join(1))]) > Clock::Boot.now());
}

fn notification(claim: u128, since: Micros, expiry: Micros) -> Notification {
    let granted = Granted { claim: id(claim), token: since, block: 1, since, home: 0 };
    Notification { name: name(), granted, expiry }
}

#[test]
fn a_notification_grants_and_the_next_waiter_watches_leases() {
    let waiters = Waiters::default();
    waiters.register(&name(), id(1), sample(10));
    waiters.register(&name(), id(2), sample(10));
    let Standing::Waiting { wake, .. } = waiters.standing(&name(), id(2)) else { panic!() };
    waiters.notify(&notification(1, 20, 1_000_020));
    assert!(matches!(waiters.standing(&name(), id(1)), Standing::Granted(_)));
    assert!(is_woken(&wake));
    let Standing::Waiting { expiry: Some(expiry), .. } = waiters.standing(&name(), id(2)) else {
        panic!()
    };
    assert!(expiry > Clock::Boot.now(), "its lease has just begun");
}

#[test]
fn an_early_notification_is_kept_until_its_claim_registers() {
    let waiters = Waiters::default();
    waiters.notify(&notification(1, 20, 30));
    assert!(matches!(waiters.standing(&name(), id(1)), Standing::Unknown));
    waiters.register(&name(), id(1), sample(10));
    assert!(matches!(waiters.standing(&name(), id(1)), Standing::Granted(_)));
    assert!(waiters.inner.lock().queues.is_empty());
}

#[test]
fn notifications_of_unknown_claims_are_bounded() {
    let waiters = Waiters::default();
    for n in 0..10_000 {
        waiters.notify(&notification(n, 20, 30));
    }
    assert_eq!(waiters.inner.lock().early.len(), EARLY);
}

/// Returns whether a grant counts as missed if it began this long after the listener opened, and is
/// seen this long after that.
fn is_missed(began: Micros, seen: Micros) -> bool {
    let waiters = Waiters::default();
    waiters.listens(true);
    let opened = Clock::Boot.now();
    waiters.inner.lock().listens = Some(opened.saturating_sub(Duration::from_secs(60)));
    waiters.register(&name(), id(1), sample(10));
    // The statement that sees it was sent just now, and read a time `seen` seconds later than the
    // grant; the listener opened 60 seconds ago.
    let machine = machine(&[(began, acquire(1))]);
    waiters.observe(&name(), Mark::default(), &machine, sample(began + seen));
    let mut missed = std::pin::pin!(waiters.missed.notified());
    missed.as_mut().enable()
}

#[tokio::test]
async fn a_grant_without_a_notification_is_noticed() {
    assert!(!is_missed(100, 900_000), "it may be on its way");
    assert!(is_missed(100, 1_100_000));
    assert!(!is_missed(100, 61_000_000), "it was sent before anybody listened");
}

#[tokio::test]
async fn a_new_listener_causes_a_poll_and_ignores_earlier_grants() {
    let waiters = Waiters::default();
    waiters.missed.notify_one();
    waiters.listens(true);
    assert!(waiters.wants_a_poll() && !waiters.wants_a_poll());
    let mut missed = std::pin::pin!(waiters.missed.notified());
    assert!(!missed.as_mut().enable());
    assert_eq!(waiters.delay(), None);
    waiters.register(&name(), id(3), sample(10));
    assert_eq!(waiters.delay(), Some(Duration::from_millis(200)));
    waiters.listens(false);
    assert!(waiters.delay().unwrap() < Duration::from_millis(200));
}

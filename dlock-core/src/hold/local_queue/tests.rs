//! Tests of the local queue, without a runtime.

use std::{
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering::SeqCst},
    },
    task::{Wake, Waker},
};

use super::{LeaderRole, LocalQueue, Turn};
use crate::{Error, ErrorKind, FencingToken, Instant, LockName, LockOptions};

/// The handed-off value.
type Thing = &'static str;

fn queue() -> Arc<LocalQueue<Thing>> {
    Arc::new(LocalQueue::new(&LockName::new("n").unwrap(), &Arc::new(LockOptions::new())))
}

fn handed_off(what: Thing) -> Option<Turn<Thing>> {
    Some(Turn::HandedOff(Arc::new(what), FencingToken::MAX))
}

/// Returns the name of the turn of the task with this ticket.
fn seen(queue: &LocalQueue<Thing>, ticket: u64) -> &'static str {
    match queue.take(ticket, Waker::noop()) {
        Some(Turn::HandedOff(what, _)) => *what,
        Some(Turn::Leader) => "the leader role",
        Some(Turn::GivenUp(_)) => "given up",
        Some(Turn::Failed(_)) => "failed",
        None => "nothing",
    }
}

fn unreachable() -> Error {
    Error::new(ErrorKind::Unavailable, "unreachable")
}

#[derive(Default)]
struct Bell(AtomicUsize);

impl Wake for Bell {
    fn wake(self: Arc<Self>) {
        self.0.fetch_add(1, SeqCst);
    }
}

#[test]
fn one_leads_and_the_others_join() {
    let queue = queue();
    assert!(queue.try_begin() && !queue.try_begin() && !queue.has_queue());
    let ticket = queue.join(Waker::noop()).expect("it is busy");
    assert!(queue.has_queue());
    assert_eq!(seen(&queue, ticket), "nothing");
    queue.pass_leader_role();
    assert!(!queue.has_queue() && !queue.try_begin());
    assert_eq!(seen(&queue, ticket), "the leader role");
    queue.pass_leader_role();
    // The lock is free, so the joining task becomes the leader.
    assert_eq!(queue.join(Waker::noop()), None);
    assert!(!queue.try_begin());
}

#[test]
fn a_turn_goes_to_the_first_waiter_and_wakes_it() {
    let (queue, bell) = (queue(), Arc::new(Bell::default()));
    assert!(!queue.give(|| handed_off("nobody waits")));
    assert!(queue.try_begin());
    let first = queue.join(&Waker::from(Arc::clone(&bell))).unwrap();
    let second = queue.join(Waker::noop()).unwrap();
    assert!(!queue.give(|| None));
    assert!(queue.give(|| handed_off("a")));
    assert_eq!(bell.0.load(SeqCst), 1);
    assert!(queue.has_queue());
    assert_eq!((seen(&queue, second), seen(&queue, first)), ("nothing", "a"));
    assert!(queue.give(|| handed_off("b")));
    assert!(!queue.has_queue());
    assert_eq!(seen(&queue, second), "b");
}

#[test]
fn task_that_leaves_gives_its_turn_back_and_gets_none_later() {
    let queue = queue();
    assert!(queue.try_begin());
    let (first, second) = (queue.join(Waker::noop()).unwrap(), queue.join(Waker::noop()).unwrap());
    assert!(queue.leave(first).is_none());
    assert!(queue.give(|| Some(Turn::Leader)));
    assert!(matches!(queue.leave(second), Some(Turn::Leader)));
    assert!(!queue.has_queue());
    queue.pass_leader_role();
    assert!(queue.try_begin());
}

#[test]
fn a_dropped_leader_role_goes_to_the_next_task() {
    let queue = queue();
    assert!(queue.try_begin());
    let ticket = queue.join(Waker::noop()).unwrap();
    let role = LeaderRole::of(&queue);
    assert!(role.is_wanted());
    role.goes_with_the_hold();
    assert_eq!(seen(&queue, ticket), "nothing");
    drop(LeaderRole::of(&queue));
    assert_eq!(seen(&queue, ticket), "the leader role");
}

#[test]
fn tasks_that_waited_for_a_lease_give_up_with_their_leader() {
    let (queue, now) = (queue(), Instant::from_nanos(5));
    assert!(queue.try_begin());
    let early = queue.join(Waker::noop()).unwrap();
    assert_eq!(queue.store_failed(now, &unreachable()), now);
    assert_eq!(queue.store_failed(Instant::from_nanos(9), &unreachable()), now);
    assert!(queue.last_failure().is_some());
    queue.give_up(&unreachable());
    let late = queue.join(Waker::noop()).unwrap();
    queue.pass_leader_role();
    assert_eq!(seen(&queue, early), "given up");
    queue.pass_leader_role();
    assert_eq!(seen(&queue, late), "the leader role");
    // The next outage is counted from its own start.
    queue.store_is_back();
    assert!(queue.last_failure().is_none());
    assert_eq!(queue.store_failed(Instant::from_nanos(9), &unreachable()), Instant::from_nanos(9));
}

#[test]
fn all_fail_when_nobody_will_renew() {
    let queue = queue();
    assert!(queue.try_begin());
    let tickets = [queue.join(Waker::noop()).unwrap(), queue.join(Waker::noop()).unwrap()];
    queue.fail_all(unreachable);
    assert_eq!(tickets.map(|ticket| seen(&queue, ticket)), ["failed"; 2]);
    assert!(!queue.has_queue());
}

#[test]
fn hints_are_reported_once() {
    let queue = queue();
    assert!(queue.warns() && !queue.warns() && !queue.was_joined());
    assert!(queue.try_begin());
    queue.join(Waker::noop());
    assert!(queue.was_joined() && !queue.was_joined());
    let held = Arc::new("held");
    queue.remember(&held);
    assert!(queue.last().is_some());
    drop(held);
    assert!(queue.last().is_none());
}

//! The waiting claims of this process, and the grants that their tasks have not collected yet.
//!
//! ```text
//! queues  name  -> the waiting claims in the order in which they reached the store
//! ready   claim -> its grant, from the moment that a task of this process saw it in the row
//! ```
//! The workers and the reader show each row that they have read ([`Waiters::observe`]). The first
//! waiter of a queue is woken if it must act: collect a grant, or send a heartbeat because a
//! holder's lease ends. The others sleep, so the cost of a hand-off does not grow with the number
//! of waiters.
//!
//! # Concurrency
//!
//! Queues and grants change under one mutex. A grant is put into `ready` before its task is woken,
//! and the wake keeps one notification. So a task that checks, finds nothing and then waits is
//! woken.
//!
//! `poll_now` requests a poll from the reader. It is set before the reader is notified, and the
//! reader swaps it back before it reads rows. So a request that comes during a poll leads to
//! another poll.

use std::{
    collections::VecDeque,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use dlock_core::{
    ClaimId, Clock, Grant, Instant, LockName,
    machine::{Machine, Micros},
};
use parking_lot::Mutex;
use tokio::sync::Notify;

use super::{
    HashMap,
    notification::Notification,
    outcome::ClockSample,
    pace::{Pace, Rarely},
    row::Mark,
};

/// The number of early notifications that are kept: those that arrive before the answer that their
/// claim waits.
const EARLY: usize = 256;
/// The number of names whose pace is remembered from one wait to the next.
const PACES: usize = 1024;

/// How long after the end of a lease, by the store's clock, the first waiter sends a heartbeat.
const SLACK: Micros = 2_000;

#[derive(Debug, Default)]
pub(crate) struct Waiters {
    inner: Mutex<WaitersState>,
    arrived: Notify,
    /// Notified when a claim has joined a queue.
    waited: Notify,
    /// Notified if a notification did not arrive.
    missed: Notify,
    poll_now: AtomicBool,
    rarely: Rarely,
}

#[derive(Debug, Default)]
struct WaitersState {
    queues: HashMap<LockName, LocalQueue>,
    ready: HashMap<ClaimId, Grant>,
    /// Grows when a claim joins a queue and when a queue ends.
    changes: u64,
    /// The time since which the listener works. `None` while it does not.
    listens: Option<Instant>,
    early: VecDeque<Notification>,
    /// The time of one hand-off in a queue, from the last wait of this process in it.
    paces: HashMap<LockName, Duration>,
}

#[derive(Debug)]
struct LocalQueue {
    waiters: Vec<Waiter>,
    /// The last known state of the row.
    mark: Mark,
    /// The time when the first of the leases in the row ends.
    expiry: Instant,
    pace: Pace,
}

#[derive(Debug)]
struct Waiter {
    claim: ClaimId,
    /// The last renewal of its place in the store's queue, on both clocks.
    renewed: ClockSample,
    wake: Arc<Notify>,
}

impl WaitersState {
    /// Records that the last waiter of a name has ended.
    fn end(&mut self, name: &LockName) {
        if let Some(queue) = self.queues.remove(name) {
            if self.paces.len() >= PACES {
                self.paces.clear();
            }
            self.paces.insert(name.clone(), queue.pace.each());
        }
        self.changes += 1;
    }
}

/// The state of a claim, as this process knows it.
#[derive(Debug)]
pub(crate) enum Standing {
    /// It is granted. This was the only copy of the grant.
    Granted(Grant),
    /// It waits. `wake` is notified when this has changed.
    Waiting {
        wake: Arc<Notify>,
        /// The last renewal of its place in the store's queue.
        renewed: Instant,
        /// When it must send a heartbeat, since the store may grant it the lock after the end of a
        /// lease. Only the first of the queue must.
        expiry: Option<Instant>,
    },
    /// This process does not know it.
    Unknown,
}

impl Waiters {
    /// Creates an empty list. `rarely` is the pace of polls while the listener works.
    pub(crate) fn new(rarely: Rarely) -> Self {
        Self { rarely, ..Self::default() }
    }

    /// Adds a claim that waits in the store, according to the answer to a statement with this
    /// sample, which also renewed its place.
    pub(crate) fn register(&self, name: &LockName, claim: ClaimId, sample: ClockSample) {
        let now = sample.sent;
        {
            let mut inner = self.inner.lock();
            let early =
                inner.early.iter().position(|notification| notification.granted.claim == claim);
            if let Some(notification) = early.and_then(|at| inner.early.remove(at))
                && let Ok(grant) = sample.grant(notification.granted)
            {
                inner.ready.insert(claim, grant);
                return;
            }
            let each = inner.paces.get(name).copied().unwrap_or_default();
            let queue = inner.queues.entry(name.clone()).or_insert_with(|| LocalQueue {
                waiters: Vec::new(),
                mark: Mark::default(),
                expiry: now,
                pace: Pace::new(now, each),
            });
            if let Some(waiter) = queue.waiters.iter_mut().find(|waiter| waiter.claim == claim) {
                waiter.renewed = sample;
                return;
            }
            queue.waiters.push(Waiter { claim, renewed: sample, wake: Arc::default() });
            inner.changes += 1;
        }
        self.arrived.notify_one();
        self.waited.notify_one();
    }

    /// Waits until a claim has joined a queue.
    pub(crate) async fn has_waited(&self) {
        self.waited.notified().await;
    }

    /// Removes a claim that does not wait any more, or got its grant in another way.
    pub(crate) fn remove(&self, name: &LockName, claim: ClaimId) {
        let mut inner = self.inner.lock();
        inner.ready.remove(&claim);
        let Some(queue) = inner.queues.get_mut(name) else { return };
        let Some(at) = queue.waiters.iter().position(|waiter| waiter.claim == claim) else {
            return;
        };
        queue.waiters.remove(at);
        match queue.waiters.first() {
            None => inner.end(name),
            // It is now the first, and has to watch the leases.
            Some(first) if at == 0 => first.wake.notify_one(),
            Some(_) => {}
        }
    }

    /// Returns the state of a claim. Returns a grant only once.
    pub(crate) fn standing(&self, name: &LockName, claim: ClaimId) -> Standing {
        let mut inner = self.inner.lock();
        if let Some(grant) = inner.ready.remove(&claim) {
            return Standing::Granted(grant);
        }
        let Some(queue) = inner.queues.get(name) else { return Standing::Unknown };
        match queue.waiters.iter().position(|waiter| waiter.claim == claim) {
            Some(at) => Standing::Waiting {
                wake: queue.waiters[at].wake.clone(),
                renewed: queue.waiters[at].renewed.sent,
                expiry: (at == 0).then_some(queue.expiry),
            },
            None => Standing::Unknown,
        }
    }

    /// Processes a notification.
    pub(crate) fn notify(&self, notification: &Notification) {
        let mut inner = self.inner.lock();
        let WaitersState { queues, ready, early, .. } = &mut *inner;
        let claim = notification.granted.claim;
        let waiting = queues.get_mut(&notification.name).and_then(|queue| {
            let at = queue.waiters.iter().position(|waiter| waiter.claim == claim)?;
            Some((queue, at))
        });
        let Some((queue, at)) = waiting else {
            // Either the answer that the claim waits has not arrived yet, or the grant has been
            // seen already. Only `register` reads this map, so in the second case the entry is
            // never used.
            if early.len() == EARLY {
                early.pop_front();
            }
            early.push_back(notification.clone());
            return;
        };
        let waiter = queue.waiters.remove(at);
        if let Ok(grant) = waiter.renewed.grant(notification.granted) {
            ready.insert(claim, grant);
        }
        waiter.wake.notify_one();
        let expiry = waiter.renewed.instant_of(notification.expiry.saturating_add(SLACK));
        match queue.waiters.first() {
            None => inner.end(&notification.name),
            Some(next) => {
                queue.expiry = expiry;
                next.wake.notify_one();
            }
        }
    }

    /// Records whether the listener works from now on. Earlier notifications may have been lost, so
    /// the reader has to poll once.
    pub(crate) fn listens(&self, does: bool) {
        self.inner.lock().listens = does.then(|| Clock::Boot.now());
        // Consumes an old notification of `missed`, which was about the connection before.
        let mut missed = std::pin::pin!(self.missed.notified());
        missed.as_mut().enable();
        self.poll_now.store(true, Ordering::SeqCst);
        self.arrived.notify_one();
    }

    /// Returns whether to poll at once, regardless of the pace of the queues.
    pub(crate) fn wants_a_poll(&self) -> bool {
        self.poll_now.swap(false, Ordering::SeqCst)
    }

    /// Waits until a notification has been missed since the last call.
    pub(crate) async fn missed(&self) {
        self.missed.notified().await;
    }

    /// Processes the state of a row that was read.
    pub(crate) fn observe(
        &self,
        name: &LockName,
        mark: Mark,
        machine: &Machine,
        sample: ClockSample,
    ) {
        let mut inner = self.inner.lock();
        let WaitersState { queues, ready, listens, .. } = &mut *inner;
        let Some(queue) = queues.get_mut(name) else { return };
        queue.mark = mark;
        let first_before = queue.waiters.first().map(|waiter| waiter.claim);
        for granted in machine.grants() {
            let mine = queue.waiters.iter().position(|waiter| waiter.claim == granted.claim);
            let Some(at) = mine else { continue };
            let waiter = queue.waiters.remove(at);
            // A grant that can't be read is dropped. Its task sends a heartbeat, and gets the
            // error.
            if let Ok(grant) = sample.grant(granted) {
                ready.insert(waiter.claim, grant);
            }
            waiter.wake.notify_one();
            let began = sample.instant_of(granted.since);
            let late = self.rarely.lost(began) < Clock::Boot.now();
            if late && listens.is_some_and(|listens| listens < began) {
                self.missed.notify_one();
            }
        }
        let Some(first) = queue.waiters.first() else {
            inner.end(name);
            return;
        };
        let expiry = match machine.ahead_of(first.claim) {
            // The next write on the row grants the lock, so the first waiter writes now.
            Some(_) if machine.owes_a_grant() => sample.sent,
            Some(ahead) => {
                queue.pace.observe(ahead, sample.sent);
                let ends = machine.next_expiry().unwrap_or(sample.now);
                sample.instant_of(ends.saturating_add(SLACK))
            }
            // Its place has been lost. The store's answer will show it.
            None => sample.sent,
        };
        if expiry != queue.expiry || Some(first.claim) != first_before {
            queue.expiry = expiry;
            first.wake.notify_one();
        }
    }

    /// Returns whether this state of the row is new.
    pub(crate) fn is_new(&self, name: &LockName, mark: Mark) -> bool {
        self.inner.lock().queues.get(name).is_some_and(|queue| queue.mark != mark)
    }

    /// Returns the names with waiters, if a claim has joined since `changes`.
    pub(crate) fn names(&self, changes: u64) -> Option<(u64, Vec<LockName>)> {
        let inner = self.inner.lock();
        (inner.changes != changes).then(|| (inner.changes, inner.queues.keys().cloned().collect()))
    }

    /// Returns the time until the next poll of the rows. `None` without waiters.
    pub(crate) fn delay(&self) -> Option<Duration> {
        let inner = self.inner.lock();
        if inner.queues.is_empty() {
            return None;
        }
        let now = Clock::Boot.now();
        let delay = |queue: &LocalQueue| match inner.listens {
            Some(_) => queue.pace.rare_delay(now, self.rarely),
            None => queue.pace.delay(now),
        };
        inner.queues.values().map(delay).min()
    }

    /// Waits until a claim has joined a queue, or the listener has started or stopped, since the
    /// last call.
    pub(crate) async fn arrived(&self) {
        self.arrived.notified().await;
    }
}

#[cfg(test)]
mod tests {
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
        let log: String =
            ops.iter().map(|(now, op)| format!("{} {now};", text::op_text(op))).collect();
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
        assert!(matches!(
            waiters.standing(&name(), id(2)),
            Standing::Waiting { expiry: Some(_), .. }
        ));
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
        let Standing::Waiting { expiry: Some(expiry), .. } = waiters.standing(&name(), id(2))
        else {
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
        let Standing::Waiting { expiry: Some(expiry), .. } = waiters.standing(&name(), id(2))
        else {
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
}

//! The claims of this process that wait, and the grants that nobody has collected yet.
//!
//! ```text
//! lines   name  -> the waiting claims in the order in which they reached the store
//! ready   claim -> its grant, from the moment that anybody here saw it in the row
//! ```
//! Whoever has read a row, the worker or the reader, shows it here ([`Waiters::observe`]). The
//! first of a line is rung when it must do something: collect, or take over from a holder whose
//! lease ends. The others sleep, so a hand-over costs the same however many wait.

use std::{
    collections::{HashMap, VecDeque},
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

use super::{note::Note, pace::Pace, row::Mark, told::Sight};

/// A note that has not arrived by then is lost.
const LATE: Duration = Duration::from_secs(1);
/// How many notes are remembered that came before the answer that their claim waits.
const EARLY: usize = 256;
/// Of how many names the pace is remembered from one wait to the next.
const PACES: usize = 1024;

/// How long after a lease has ended by the store's clock somebody looks whether it has.
const SLACK: Micros = 2_000;

#[derive(Debug, Default)]
pub(crate) struct Waiters {
    inner: Mutex<Inner>,
    arrived: Notify,
    /// A note did not arrive.
    missed: Notify,
    look: AtomicBool,
}

#[derive(Debug, Default)]
struct Inner {
    lines: HashMap<LockName, Line>,
    ready: HashMap<ClaimId, Grant>,
    /// Grows when a claim joins a line and when a line ends.
    changes: u64,
    /// Since when notes arrive.
    listens: Option<Instant>,
    early: VecDeque<Note>,
    /// How long one of a queue took when somebody here last waited in it.
    paces: HashMap<LockName, Duration>,
}

#[derive(Debug)]
struct Line {
    waiters: Vec<Waiter>,
    /// The row as it was last seen.
    mark: Mark,
    /// When the first of the leases in the row ends.
    expiry: Instant,
    pace: Pace,
}

#[derive(Debug)]
struct Waiter {
    claim: ClaimId,
    /// When its place in the store's queue was last renewed, on both clocks.
    renewed: Sight,
    bell: Arc<Notify>,
}

impl Inner {
    /// Nobody waits for the name any more.
    fn end(&mut self, name: &LockName) {
        if let Some(line) = self.lines.remove(name) {
            if self.paces.len() >= PACES {
                self.paces.clear();
            }
            self.paces.insert(name.clone(), line.pace.each());
        }
        self.changes += 1;
    }
}

/// Where a claim stands.
#[derive(Debug)]
pub(crate) enum Standing {
    /// It is granted, and this was the only copy of the grant.
    Granted(Grant),
    /// It waits. The bell rings when this has changed.
    Waiting {
        bell: Arc<Notify>,
        /// When its place in the store's queue was last renewed.
        renewed: Instant,
        /// When it must ask the store, which a lease's end may have made grant it. Only the first
        /// in line has to.
        expiry: Option<Instant>,
    },
    /// It is not known here.
    Unknown,
}

impl Waiters {
    /// A claim waits in the store, as the statement of this sight says, which renewed its place.
    pub(crate) fn register(&self, name: &LockName, claim: ClaimId, sight: Sight) {
        let now = sight.sent;
        {
            let mut inner = self.inner.lock();
            let early = inner.early.iter().position(|note| note.granted.claim == claim);
            if let Some(note) = early.and_then(|at| inner.early.remove(at))
                && let Ok(grant) = sight.grant(note.granted)
            {
                inner.ready.insert(claim, grant);
                return;
            }
            let each = inner.paces.get(name).copied().unwrap_or_default();
            let line = inner.lines.entry(name.clone()).or_insert_with(|| Line {
                waiters: Vec::new(),
                mark: Mark::default(),
                expiry: now,
                pace: Pace::new(now, each),
            });
            if let Some(waiter) = line.waiters.iter_mut().find(|waiter| waiter.claim == claim) {
                waiter.renewed = sight;
                return;
            }
            line.waiters.push(Waiter { claim, renewed: sight, bell: Arc::default() });
            inner.changes += 1;
        }
        self.arrived.notify_one();
    }

    /// A claim waits no more, or was told of its grant otherwise.
    pub(crate) fn withdraw(&self, name: &LockName, claim: ClaimId) {
        let mut inner = self.inner.lock();
        inner.ready.remove(&claim);
        let Some(line) = inner.lines.get_mut(name) else { return };
        let Some(at) = line.waiters.iter().position(|waiter| waiter.claim == claim) else { return };
        line.waiters.remove(at);
        match line.waiters.first() {
            None => inner.end(name),
            // It may not have known that it is on it to watch the leases.
            Some(first) if at == 0 => first.bell.notify_one(),
            Some(_) => {}
        }
    }

    /// Where a claim stands; a grant is handed out once.
    pub(crate) fn standing(&self, name: &LockName, claim: ClaimId) -> Standing {
        let mut inner = self.inner.lock();
        if let Some(grant) = inner.ready.remove(&claim) {
            return Standing::Granted(grant);
        }
        let Some(line) = inner.lines.get(name) else { return Standing::Unknown };
        match line.waiters.iter().position(|waiter| waiter.claim == claim) {
            Some(at) => Standing::Waiting {
                bell: line.waiters[at].bell.clone(),
                renewed: line.waiters[at].renewed.sent,
                expiry: (at == 0).then_some(line.expiry),
            },
            None => Standing::Unknown,
        }
    }

    /// A note has arrived.
    pub(crate) fn told(&self, note: &Note) {
        let mut inner = self.inner.lock();
        let Inner { lines, ready, early, .. } = &mut *inner;
        let claim = note.granted.claim;
        let waiting = lines.get_mut(&note.name).and_then(|line| {
            let at = line.waiters.iter().position(|waiter| waiter.claim == claim)?;
            Some((line, at))
        });
        let Some((line, at)) = waiting else {
            // The answer that it waits may be on its way; or its grant has been seen by now.
            if early.len() == EARLY {
                early.pop_front();
            }
            early.push_back(note.clone());
            return;
        };
        let waiter = line.waiters.remove(at);
        if let Ok(grant) = waiter.renewed.grant(note.granted) {
            ready.insert(claim, grant);
        }
        waiter.bell.notify_one();
        let expiry = waiter.renewed.instant_of(note.expiry.saturating_add(SLACK));
        match line.waiters.first() {
            None => inner.end(&note.name),
            Some(next) => {
                line.expiry = expiry;
                next.bell.notify_one();
            }
        }
    }

    /// Whether notes arrive from now on. Those of the past may have been lost, so somebody has to
    /// look.
    pub(crate) fn listens(&self, does: bool) {
        self.inner.lock().listens = does.then(|| Clock::Boot.now());
        // What was missed before is no fault of these ears.
        let mut missed = std::pin::pin!(self.missed.notified());
        missed.as_mut().enable();
        self.look.store(true, Ordering::SeqCst);
        self.arrived.notify_one();
    }

    /// Whether to look at once, for a reason that has nothing to do with the pace of a queue.
    pub(crate) fn wants_a_look(&self) -> bool {
        self.look.swap(false, Ordering::SeqCst)
    }

    /// Ends when a note has been missed since the last time.
    pub(crate) async fn missed(&self) {
        self.missed.notified().await;
    }

    /// A row was seen to hold this state.
    pub(crate) fn observe(&self, name: &LockName, mark: Mark, machine: &Machine, sight: Sight) {
        let mut inner = self.inner.lock();
        let Inner { lines, ready, listens, .. } = &mut *inner;
        let Some(line) = lines.get_mut(name) else { return };
        line.mark = mark;
        let first_before = line.waiters.first().map(|waiter| waiter.claim);
        for granted in machine.grants() {
            let mine = line.waiters.iter().position(|waiter| waiter.claim == granted.claim);
            let Some(at) = mine else { continue };
            let waiter = line.waiters.remove(at);
            // A grant that can't be read is found again, with its error, when it is asked for.
            if let Ok(grant) = sight.grant(granted) {
                ready.insert(waiter.claim, grant);
            }
            waiter.bell.notify_one();
            let began = sight.instant_of(granted.since);
            let late = began.saturating_add(LATE) < Clock::Boot.now();
            if late && listens.is_some_and(|listens| listens < began) {
                self.missed.notify_one();
            }
        }
        let Some(first) = line.waiters.first() else {
            inner.end(name);
            return;
        };
        let expiry = match machine.ahead_of(first.claim) {
            Some(ahead) => {
                line.pace.observe(ahead, sight.sent);
                let ends = machine.next_expiry().unwrap_or(sight.now);
                sight.instant_of(ends.saturating_add(SLACK))
            }
            // Its place has been lost, which the store will tell it.
            None => sight.sent,
        };
        if expiry != line.expiry || Some(first.claim) != first_before {
            line.expiry = expiry;
            first.bell.notify_one();
        }
    }

    /// Whether this state of the row has not been seen yet.
    pub(crate) fn is_news(&self, name: &LockName, mark: Mark) -> bool {
        self.inner.lock().lines.get(name).is_some_and(|line| line.mark != mark)
    }

    /// The names that somebody waits for, if a claim has joined since `changes`.
    pub(crate) fn names(&self, changes: u64) -> Option<(u64, Vec<LockName>)> {
        let inner = self.inner.lock();
        (inner.changes != changes).then(|| (inner.changes, inner.lines.keys().cloned().collect()))
    }

    /// When to look at the rows again; `None` while nobody waits.
    pub(crate) fn delay(&self) -> Option<Duration> {
        let inner = self.inner.lock();
        if inner.lines.is_empty() {
            return None;
        }
        let now = Clock::Boot.now();
        let delay = |line: &Line| match inner.listens {
            Some(_) => line.pace.rare_delay(now),
            None => line.pace.delay(now),
        };
        inner.lines.values().map(delay).min()
    }

    /// Ends when a claim has joined a line, or the ears have opened or closed, since the last time.
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

    fn sight(now: Micros) -> Sight {
        Sight { sent: Clock::Boot.now(), now }
    }

    fn machine(ops: &[(Micros, Op)]) -> Machine {
        let log: String =
            ops.iter().map(|(now, op)| format!("{} {now};", text::op_text(op))).collect();
        text::replay("", &log).unwrap().machine
    }

    fn acquire(n: u128) -> Op {
        let (mode, queue) = (Mode::Exclusive, Queue::Enqueue);
        Op::Acquire { claim: id(n), mode, lease: 1_000_000, block: 1, queue, home: 0 }
    }

    fn release(n: u128) -> Op {
        Op::Release { claim: id(n), used: 0 }
    }

    fn has_rung(bell: &Notify) -> bool {
        let mut rung = std::pin::pin!(bell.notified());
        rung.as_mut().enable()
    }

    #[test]
    fn only_the_granted_and_the_next_are_rung() {
        let waiters = Waiters::default();
        let mut ops: Vec<_> = (1..5).map(|n| (10, acquire(n))).collect();
        for n in 2..5 {
            waiters.register(&name(), id(n), sight(10));
        }
        waiters.observe(&name(), Mark::default(), &machine(&ops), sight(10));
        let bells: Vec<_> = (2..5)
            .map(|n| match waiters.standing(&name(), id(n)) {
                Standing::Waiting { bell, expiry, .. } => {
                    assert_eq!(expiry.is_some(), n == 2);
                    has_rung(&bell);
                    bell
                }
                other => panic!("{other:?}"),
            })
            .collect();
        ops.push((20, release(1)));
        waiters.observe(&name(), Mark { base: 0, len: 1 }, &machine(&ops), sight(20));
        assert_eq!(bells.iter().map(|b| has_rung(b)).collect::<Vec<_>>(), [true, true, false]);
        assert!(matches!(waiters.standing(&name(), id(2)), Standing::Granted(_)));
        assert!(matches!(waiters.standing(&name(), id(2)), Standing::Unknown));
    }

    #[test]
    fn the_next_takes_over_the_watch_when_the_first_leaves() {
        let waiters = Waiters::default();
        waiters.register(&name(), id(1), sight(10));
        waiters.register(&name(), id(2), sight(10));
        let Standing::Waiting { bell, expiry: None, .. } = waiters.standing(&name(), id(2)) else {
            panic!()
        };
        waiters.withdraw(&name(), id(1));
        assert!(has_rung(&bell));
        assert!(matches!(
            waiters.standing(&name(), id(2)),
            Standing::Waiting { expiry: Some(_), .. }
        ));
        waiters.withdraw(&name(), id(2));
        assert!(waiters.delay().is_none());
    }

    #[test]
    fn a_withdrawn_grant_leaves_nothing() {
        let waiters = Waiters::default();
        waiters.register(&name(), id(1), sight(10));
        let ops = [(10, acquire(1))];
        waiters.observe(&name(), Mark::default(), &machine(&ops), sight(10));
        waiters.withdraw(&name(), id(1));
        let inner = waiters.inner.lock();
        assert!(inner.ready.is_empty() && inner.lines.is_empty());
    }

    #[test]
    fn who_has_lost_its_place_must_ask_at_once() {
        let waiters = Waiters::default();
        waiters.register(&name(), id(2), sight(10));
        waiters.observe(&name(), Mark::default(), &machine(&[(10, acquire(1))]), sight(10));
        let Standing::Waiting { expiry: Some(expiry), .. } = waiters.standing(&name(), id(2))
        else {
            panic!()
        };
        assert!(expiry <= Clock::Boot.now());
    }

    fn note(claim: u128, since: Micros, expiry: Micros) -> Note {
        let granted = Granted { claim: id(claim), token: since, block: 1, since, home: 0 };
        Note { name: name(), granted, expiry }
    }

    #[test]
    fn a_note_grants_and_gives_the_next_the_watch() {
        let waiters = Waiters::default();
        waiters.register(&name(), id(1), sight(10));
        waiters.register(&name(), id(2), sight(10));
        let Standing::Waiting { bell, .. } = waiters.standing(&name(), id(2)) else { panic!() };
        waiters.told(&note(1, 20, 1_000_020));
        assert!(matches!(waiters.standing(&name(), id(1)), Standing::Granted(_)));
        assert!(has_rung(&bell));
        let Standing::Waiting { expiry: Some(expiry), .. } = waiters.standing(&name(), id(2))
        else {
            panic!()
        };
        assert!(expiry > Clock::Boot.now(), "its lease has just begun");
    }

    #[test]
    fn a_note_may_come_before_the_answer_that_its_claim_waits() {
        let waiters = Waiters::default();
        waiters.told(&note(1, 20, 30));
        assert!(matches!(waiters.standing(&name(), id(1)), Standing::Unknown));
        waiters.register(&name(), id(1), sight(10));
        assert!(matches!(waiters.standing(&name(), id(1)), Standing::Granted(_)));
        assert!(waiters.inner.lock().lines.is_empty());
    }

    #[test]
    fn notes_for_nobody_are_forgotten_in_the_end() {
        let waiters = Waiters::default();
        for n in 0..10_000 {
            waiters.told(&note(n, 20, 30));
        }
        assert_eq!(waiters.inner.lock().early.len(), EARLY);
    }

    /// Whether a grant that began so long after the ears opened, and is seen so long after that,
    /// counts as one that a note should have told of.
    fn is_missed(began: Micros, seen: Micros) -> bool {
        let waiters = Waiters::default();
        waiters.listens(true);
        let opened = Clock::Boot.now();
        waiters.inner.lock().listens = Some(opened.saturating_sub(Duration::from_secs(60)));
        waiters.register(&name(), id(1), sight(10));
        // The statement that sees it was sent just now, and read the time `seen` seconds later than
        // the grant; the ears opened 60 seconds ago.
        let machine = machine(&[(began, acquire(1))]);
        waiters.observe(&name(), Mark::default(), &machine, sight(began + seen));
        let mut heard = std::pin::pin!(waiters.missed.notified());
        heard.as_mut().enable()
    }

    #[tokio::test]
    async fn a_grant_that_no_note_told_of_is_noticed() {
        assert!(!is_missed(100, 900_000), "it may be on its way");
        assert!(is_missed(100, 1_100_000));
        assert!(!is_missed(100, 61_000_000), "it was sent before anybody listened");
    }

    #[tokio::test]
    async fn new_ears_have_somebody_look_and_miss_nothing_of_the_past() {
        let waiters = Waiters::default();
        waiters.missed.notify_one();
        waiters.listens(true);
        assert!(waiters.wants_a_look() && !waiters.wants_a_look());
        let mut heard = std::pin::pin!(waiters.missed.notified());
        assert!(!heard.as_mut().enable());
        assert_eq!(waiters.delay(), None);
        waiters.register(&name(), id(3), sight(10));
        assert_eq!(waiters.delay(), Some(Duration::from_millis(200)));
        waiters.listens(false);
        assert!(waiters.delay().unwrap() < Duration::from_millis(200));
    }
}

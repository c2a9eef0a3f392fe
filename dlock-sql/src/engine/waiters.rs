//! The claims of this process that wait, and the grants that nobody has collected yet.
//!
//! ```text
//! lines   name  -> the waiting claims in the order in which they reached the store
//! ready   claim -> its grant, from the moment that anybody here saw it in the row
//! ```
//! Whoever has read a row, the worker or the reader, shows it here ([`Waiters::observe`]). The
//! first of a line is rung when it must do something: collect, or take over from a holder whose
//! lease ends. The others sleep, so a hand-over costs the same however many wait.
//!
//! # Concurrency
//!
//! Lines and grants change under one mutex. `look` asks the reader for a look: it is set before the
//! reader is notified, and the reader swaps it back before it reads rows. So a request that comes during
//! a look leads to another one.

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
use hashbrown::HashMap;
use parking_lot::Mutex;
use tokio::sync::Notify;

use super::{
    note::Note,
    pace::{Pace, Rarely},
    row::Mark,
    told::Sight,
};

#[cfg(test)]
mod tests;

/// How many notes are remembered that came before the answer that their claim waits.
const EARLY: usize = 256;
/// Of how many names the pace is remembered from one wait to the next.
const PACES: usize = 1024;

/// How long after a lease has ended by the store's clock somebody looks whether it has.
const SLACK: Micros = 2_000;

#[derive(Debug, Default)]
pub(crate) struct Waiters {
    inner: Mutex<WaitersState>,
    arrived: Notify,
    /// A note did not arrive.
    missed: Notify,
    look: AtomicBool,
    rarely: Rarely,
}

#[derive(Debug, Default)]
struct WaitersState {
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

impl WaitersState {
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
    /// Nobody yet. `rarely` is how they look while notes arrive.
    pub(crate) fn new(rarely: Rarely) -> Self {
        Self { rarely, ..Self::default() }
    }

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
        let WaitersState { lines, ready, early, .. } = &mut *inner;
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
        let WaitersState { lines, ready, listens, .. } = &mut *inner;
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
            let late = self.rarely.lost(began) < Clock::Boot.now();
            if late && listens.is_some_and(|listens| listens < began) {
                self.missed.notify_one();
            }
        }
        let Some(first) = line.waiters.first() else {
            inner.end(name);
            return;
        };
        let expiry = match machine.ahead_of(first.claim) {
            // Whoever writes next lets in the first of the queue.
            Some(_) if machine.owes_a_grant() => sight.sent,
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
            Some(_) => line.pace.rare_delay(now, self.rarely),
            None => line.pace.delay(now),
        };
        inner.lines.values().map(delay).min()
    }

    /// Ends when a claim has joined a line, or the ears have opened or closed, since the last time.
    pub(crate) async fn arrived(&self) {
        self.arrived.notified().await;
    }
}

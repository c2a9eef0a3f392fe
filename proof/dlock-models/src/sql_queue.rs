//! The queue in an SQL row: a snapshot and a log that every client replays.
//!
//! Models `apply_one.sql` of `dlock-sql` and `dlock-sql/src/engine/` (`worker/`, `cache.rs`,
//! `row.rs`, `outcome.rs`, `waiters/`). The model runs the real rules of the lock: the row is real
//! text, replayed by `dlock_core::machine`.
//!
//! A statement appends an operation, whose timestamp may be in the past by then. It also folds the
//! log if the row still has the base that the client has seen. The answer may be lost. Then the
//! client sends the same operation again, and the first one may take effect after the second, or
//! even after the release. So an operation has a deadline by the database's clock. If a claim was
//! sent more than once, its release also bars it until none of its statements can begin or still
//! run. The writer of an operation that grants the lock to a waiter notifies the waiter; the
//! notification may be lost. Leases expire by the database's clock. A holder counts its lease from
//! the sending of the statement whose answer showed the grant. A statement that skips the sync is
//! answered before it is on the disk. If the server dies, the statement is lost, unless a statement
//! with a sync followed it.
//!
//! Left out: several locks in one statement; rows that are deleted after a long time; a holder's
//! renewals (see the model `lease`).

use std::{cell::RefCell, collections::HashMap, rc::Rc};

use dlock_core::{
    ClaimId, Mode, Queue,
    machine::{
        Op, Outcome,
        text::{Replayed, ops_text, replay, snapshot},
    },
};
use stateright::{Model, Property};

use crate::check::{EXCLUSION, ORDER, Tokens, WAKES, breaks, holds};

/// The rules of the protocol. Each can be switched off.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Rule {
    /// A repeated statement carries the same claim.
    SameClaim,
    /// A waiter polls the row.
    Poll,
    /// A fold is applied only if the row still has the base that it was made from.
    FoldByBase,
    /// A hold counts from the sending of the statement, not from its answer.
    SinceSent,
    /// A statement that skips the sync joins the queue and grants nothing to any claim.
    JoinsGrantNothing,
    /// An acquire carries a deadline.
    Deadline,
    /// A deadline uses the lower bound of the database's clock.
    LowerBound,
    /// A release bars a claim that was sent more than once.
    Bar,
    /// The bar outlasts a statement that begins at the deadline.
    BarOutlastsStatements,
}

/// The rules, and the property that is violated without each of them.
pub const RULES: [(Rule, &str); 10] = [
    (Rule::SameClaim, ONCE),
    (Rule::Poll, WAKES),
    (Rule::FoldByBase, READABLE),
    (Rule::SinceSent, EXCLUSION),
    (Rule::JoinsGrantNothing, EXCLUSION),
    (Rule::Deadline, TIMELY),
    (Rule::Deadline, GONE),
    (Rule::LowerBound, TIMELY),
    (Rule::Bar, GONE),
    (Rule::BarOutlastsStatements, GONE),
];

const CLIENTS: usize = 2;
/// The number of claims that each client makes.
const CLAIMS: [u8; CLIENTS] = [1, 1];
const LEASE: u64 = 2;
/// The time at which the model ends.
const END: u64 = 3;
/// The number of faults: lost or late answers, statements and notifications, and deaths of clients
/// and servers.
const FAULTS: u8 = 1;
/// The length of a log, in characters, above which it is folded.
const FOLD_ABOVE: usize = 60;

/// The time for which the sender of an acquire waits for its answer.
const ANSWER_TIMEOUT: u64 = 1;
/// The time of the request that showed the database's clock, which was read at its end. An upper
/// bound of that clock is too high by this time.
const SLOW: u64 = 1;
/// The time for which a statement runs after it began.
const STATEMENT: u64 = 1;

/// A statement whose sender no longer waits has no effect.
const TIMELY: &str = "nothing begins too late";

/// A claim that was cancelled and has ended does not return.
const GONE: &str = "nobody holds for those who have gone";

const ONCE: &str = "a claim stands in the queue once";

const READABLE: &str = "the row can be read";

#[derive(Default)]
struct SqlQueue {
    without: Option<Rule>,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct State {
    now: u64,
    row: Row,
    /// The row on the disk, if it differs from the current row.
    disk: Option<Row>,
    clients: [Client; CLIENTS],
    /// The pending statements, sorted. The first one of a client may be an old one.
    wire: Vec<Letter>,
    notifications: Vec<Notification>,
    faults: u8,
    tokens: Tokens<u64>,
    /// Whether a statement began after its sender had stopped waiting.
    is_untimely: bool,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
struct Client {
    claims: u8,
    /// The number of times that the claim was sent. `requested` is the last time.
    copies: u8,
    requested: u64,
    /// Whether a claim of this client has ended, according to the answer to its release.
    gone: bool,
    /// Whether the claim was sent in a statement that skips the sync.
    skips_sync: bool,
    phase: Phase,
    fold: Option<Fold>,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
enum Phase {
    #[default]
    Idle,
    Requesting,
    /// `at` is the time at which the place in the queue was renewed.
    Waiting {
        sent: u64,
        at: u64,
    },
    Held {
        until: u64,
    },
    Leaving,
    Dead,
}

#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
struct Fold {
    base: u64,
    cut: usize,
    snap: String,
}

#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
struct Letter {
    client: usize,
    claim: u8,
    copy: u8,
    release: bool,
    /// The end of the bar of a release, or 0.
    bar: u64,
    skips_sync: bool,
    sent: u64,
    fold: Option<Fold>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct Notification {
    claim: ClaimId,
    client: usize,
    token: u64,
    since: u64,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Action {
    Tick,
    Ask(usize),
    /// Sends the claim in a statement that skips the sync.
    Join(usize),
    /// The statement takes effect and is answered; `late` if it began before the last tick.
    Applies {
        letter: Letter,
        late: bool,
    },
    /// The statement takes effect, and its answer is lost.
    AppliesUnanswered(Letter),
    /// The client considers the statement lost and sends it again; the first one arrives later.
    SendAgain(usize),
    NotificationArrives(usize),
    NotificationLost(usize),
    Poll(usize),
    Leave(usize),
    GiveUp(usize),
    /// The holder has detected in time that its lease ends.
    Lose(usize),
    Die(usize),
    /// The server dies, and restarts with the row on the disk.
    Crash,
}

impl SqlQueue {
    fn has(&self, rule: Rule) -> bool {
        self.without != Some(rule)
    }

    fn op(&self, letter: &Letter) -> Op {
        let copy = if self.has(Rule::SameClaim) { 0 } else { letter.copy };
        let claim = id(letter.client, letter.claim, copy);
        if letter.release {
            return Op::Release { claim, used: 1, bar: letter.bar };
        }
        let home = u32::try_from(letter.client + 1).unwrap_or_default();
        let (mode, queue) = (Mode::Exclusive, Queue::Enqueue);
        if letter.skips_sync && self.has(Rule::JoinsGrantNothing) {
            return Op::Join { claim, mode, lease: LEASE, block: 1, home, note: None };
        }
        Op::Acquire { claim, mode, lease: LEASE, block: 1, queue, home, note: None }
    }

    /// Returns the deadline before which an acquire that was sent at this time must begin.
    fn deadline(&self, sent: u64) -> u64 {
        let shows = if self.has(Rule::LowerBound) { sent } else { sent + SLOW };
        shows + ANSWER_TIMEOUT
    }

    fn send(&self, state: &mut State, at: usize, release: bool) {
        let client = &mut state.clients[at];
        if !release {
            client.requested = state.now;
        }
        let (claim, copy, fold) = (client.claims, client.copies, client.fold.clone());
        let (skips_sync, sent) = (client.skips_sync && !release, state.now);
        let goes_on = if self.has(Rule::BarOutlastsStatements) { STATEMENT } else { 0 };
        let bar = match release && copy > 0 && self.has(Rule::Bar) {
            true => self.deadline(client.requested) + goes_on + 1,
            false => 0,
        };
        let client = at;
        state.wire.push(Letter { client, claim, copy, release, bar, skips_sync, sent, fold });
        state.wire.sort_unstable();
    }

    /// Appends an operation, with a letter's fold. Returns the result of replaying the row.
    fn append(&self, state: &mut State, op: &Op, at: u64, letter: Option<&Letter>) -> Rc<Replayed> {
        let fold = letter.and_then(|letter| letter.fold.as_ref());
        let skips_sync = letter.is_some_and(|letter| letter.skips_sync);
        let disk = state.disk.take();
        if skips_sync {
            state.disk = disk.or_else(|| Some(state.row.clone()));
        }
        let row = &mut state.row;
        if let Some(fold) = fold
            && (row.base == fold.base || !self.has(Rule::FoldByBase))
        {
            row.log = row.log.get(fold.cut..).unwrap_or_default().to_owned();
            row.snap.clone_from(&fold.snap);
            row.base = at.max(row.base + 1);
        }
        let by = letter.filter(|letter| !letter.release && self.has(Rule::Deadline));
        let by = by.map(|letter| self.deadline(letter.sent));
        row.log += &format!("{} {at};", ops_text(by, [op]));
        let replayed = row.replay();
        for granted in replayed.grants.iter().filter(|granted| Some(granted.claim) != op.claim()) {
            let client = usize::try_from(granted.home - 1).unwrap_or_default();
            let (claim, token, since) = (granted.claim, granted.token, granted.since);
            state.notifications.push(Notification { claim, client, token, since });
        }
        replayed
    }

    fn apply(&self, state: &mut State, letter: &Letter, late: bool, answered: bool) {
        state.wire.retain(|other| other != letter);
        let stamp = if late { state.now - 1 } else { state.now };
        let replayed = self.append(state, &self.op(letter), stamp, Some(letter));
        let outcome = replayed.outcomes.last().copied();
        let done = outcome != Some(Outcome::Late);
        state.is_untimely |= !letter.release && done && stamp > letter.sent + ANSWER_TIMEOUT;
        let client = &mut state.clients[letter.client];
        let current = (letter.claim, letter.copy) == (client.claims, client.copies);
        if !answered || !current {
            return;
        }
        client.fold = (state.row.log.len() > FOLD_ABOVE).then(|| Fold {
            base: state.row.base,
            cut: state.row.log.len(),
            snap: snapshot(&replayed.machine),
        });
        match (client.phase, outcome) {
            (Phase::Leaving, _) => {
                client.gone = true;
                (client.phase, client.claims, client.copies) = (Phase::Idle, client.claims + 1, 0);
            }
            // The claim is sent again.
            (Phase::Requesting, Some(Outcome::Late)) => {}
            (Phase::Requesting, Some(Outcome::Granted(granted))) => {
                // The lease is counted on the holder's clock from this statement.
                let sent = if self.has(Rule::SinceSent) { letter.sent } else { state.now };
                let until = (sent + LEASE + granted.since).saturating_sub(stamp);
                state.hold(letter.client, granted.token, until);
            }
            (Phase::Requesting, Some(_)) => {
                client.phase = Phase::Waiting { sent: letter.sent, at: stamp };
            }
            _ => {}
        }
    }

    fn notify(&self, state: &mut State, at: usize) {
        let notification = state.notifications.remove(at);
        if let Phase::Waiting { sent, at } = state.clients[notification.client].phase
            && state.claim(notification.client) == notification.claim
        {
            let until = (sent + LEASE + notification.since).saturating_sub(at);
            state.hold(notification.client, notification.token, until);
        }
    }

    /// Sends a request that renews the place in the queue.
    fn poll(&self, state: &mut State, at: usize) {
        let (claim, now) = (state.claim(at), state.now);
        let op = Op::Renew { claim, mode: Mode::Exclusive, lease: LEASE, is_last: false };
        let replayed = self.append(state, &op, now, None);
        match replayed.outcomes.last().copied() {
            Some(Outcome::Granted(granted)) => state.hold(at, granted.token, now + LEASE),
            Some(Outcome::Queued { .. }) => {
                state.clients[at].phase = Phase::Waiting { sent: now, at: now };
            }
            _ => state.start_over(at),
        }
    }

    /// Runs all pending steps without faults. Returns whether a client then holds the lock, or no
    /// client waits.
    fn comes_to_rest(&self, state: &State) -> bool {
        if !state.clients.iter().any(|client| matches!(client.phase, Phase::Waiting { .. })) {
            return true;
        }
        let mut state = state.clone();
        for _ in 0..=2 * LEASE {
            while let Some(letter) = state.wire.first().cloned() {
                self.apply(&mut state, &letter, false, true);
            }
            while !state.notifications.is_empty() {
                self.notify(&mut state, 0);
            }
            for at in 0..CLIENTS {
                let waits = matches!(state.clients[at].phase, Phase::Waiting { .. });
                if waits && self.has(Rule::Poll) {
                    self.poll(&mut state, at);
                }
            }
            let waits = |client: &Client| matches!(client.phase, Phase::Waiting { .. });
            let held = |client: &Client| matches!(client.phase, Phase::Held { .. });
            if state.clients.iter().any(held) || !state.clients.iter().any(waits) {
                return true;
            }
            state.now += 1;
        }
        false
    }
}

fn id(client: usize, claim: u8, copy: u8) -> ClaimId {
    let client = u128::try_from(client + 1).unwrap_or_default();
    ClaimId::from_bits(client << 16 | u128::from(claim) << 8 | u128::from(copy))
}

impl State {
    fn claim(&self, at: usize) -> ClaimId {
        id(at, self.clients[at].claims, 0)
    }

    fn hold(&mut self, at: usize, token: u64, until: u64) {
        if until <= self.now {
            // The lease expired before the answer arrived.
            return self.start_over(at);
        }
        self.tokens.add(token);
        self.clients[at].phase = Phase::Held { until };
    }

    /// Abandons the claim, which ends when its lease expires.
    fn start_over(&mut self, at: usize) {
        let client = &mut self.clients[at];
        (client.phase, client.claims, client.copies) = (Phase::Idle, client.claims + 1, 0);
    }

    /// Whether the last statement of this client is still pending.
    fn is_sent(&self, at: usize) -> bool {
        let client = &self.clients[at];
        let last = (at, client.claims, client.copies);
        self.wire.iter().any(|letter| (letter.client, letter.claim, letter.copy) == last)
    }

    fn relies_on_lock(&self, at: usize) -> bool {
        matches!(self.clients[at].phase, Phase::Held { until } if self.now < until)
    }
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
struct Row {
    base: u64,
    snap: String,
    log: String,
}

/// The results of replaying rows, by snapshot and log.
type Read = HashMap<(String, String), Option<Rc<Replayed>>>;

thread_local! {
    /// A cache: many states have the same row, and replaying it takes most of the time.
    static READ: RefCell<Read> = RefCell::default();
}

impl Row {
    /// Returns `None` for an unreadable row.
    fn read(&self) -> Option<Rc<Replayed>> {
        let row = (self.snap.clone(), self.log.clone());
        READ.with_borrow_mut(|read| {
            let (snap, log) = (&self.snap, &self.log);
            read.entry(row).or_insert_with(|| replay(snap, log).ok().map(Rc::new)).clone()
        })
    }

    fn replay(&self) -> Rc<Replayed> {
        self.read().unwrap_or_else(|| Self::default().read().expect("an empty row can be read"))
    }
}

impl Model for SqlQueue {
    type State = State;
    type Action = Action;

    fn init_states(&self) -> Vec<State> {
        vec![State {
            now: 1,
            row: Row { base: 1, ..Row::default() },
            disk: None,
            clients: [Client::default(), Client::default()],
            wire: Vec::new(),
            notifications: Vec::new(),
            faults: FAULTS,
            tokens: Tokens::default(),
            is_untimely: false,
        }]
    }

    fn actions(&self, state: &State, actions: &mut Vec<Action>) {
        let faults = state.faults > 0;
        if state.now < END {
            actions.push(Action::Tick);
        }
        for (at, client) in state.clients.iter().enumerate() {
            let sent = state.is_sent(at);
            match client.phase {
                Phase::Idle if client.claims < CLAIMS[at] => {
                    actions.push(Action::Ask(at));
                    // The client may join although the lock is free by now. It is enough if one
                    // client does so, which gives a third of the states.
                    if at > 0 {
                        actions.push(Action::Join(at));
                    }
                }
                Phase::Idle | Phase::Dead => {}
                Phase::Requesting | Phase::Leaving if !sent => actions.push(Action::SendAgain(at)),
                Phase::Requesting | Phase::Leaving if faults => actions.push(Action::SendAgain(at)),
                Phase::Requesting | Phase::Leaving => {}
                Phase::Waiting { at: renewed, .. } => {
                    actions.push(Action::GiveUp(at));
                    // Once per tick, and whenever the claim has been granted.
                    let granted = state.row.replay().machine.grant_of(state.claim(at)).is_some();
                    if self.has(Rule::Poll) && (granted || renewed < state.now) {
                        actions.push(Action::Poll(at));
                    }
                    if faults {
                        actions.push(Action::Die(at));
                    }
                }
                Phase::Held { .. } => actions.extend([Action::Leave(at), Action::Lose(at)]),
            }
        }
        if faults && state.disk.is_some() {
            actions.push(Action::Crash);
        }
        for letter in &state.wire {
            actions.push(Action::Applies { letter: letter.clone(), late: false });
            if letter.sent < state.now {
                actions.push(Action::Applies { letter: letter.clone(), late: true });
            }
            if faults {
                actions.push(Action::AppliesUnanswered(letter.clone()));
            }
        }
        for at in 0..state.notifications.len() {
            actions.push(Action::NotificationArrives(at));
            if faults {
                actions.push(Action::NotificationLost(at));
            }
        }
    }

    fn next_state(&self, before: &State, action: Action) -> Option<State> {
        let mut state = before.clone();
        match action {
            Action::Tick => state.now += 1,
            Action::Ask(at) | Action::Join(at) => {
                let client = &mut state.clients[at];
                (client.phase, client.skips_sync) =
                    (Phase::Requesting, matches!(action, Action::Join(_)));
                self.send(&mut state, at, false);
            }
            Action::Applies { letter, late } => self.apply(&mut state, &letter, late, true),
            Action::AppliesUnanswered(letter) => {
                state.faults -= 1;
                self.apply(&mut state, &letter, false, false);
            }
            Action::SendAgain(at) => {
                if state.is_sent(at) {
                    state.faults -= 1;
                }
                state.clients[at].copies += 1;
                let release = state.clients[at].phase == Phase::Leaving;
                self.send(&mut state, at, release);
            }
            Action::NotificationArrives(at) => self.notify(&mut state, at),
            Action::NotificationLost(at) => {
                state.faults -= 1;
                state.notifications.remove(at);
            }
            Action::Poll(at) => self.poll(&mut state, at),
            Action::Leave(at) | Action::GiveUp(at) => {
                state.clients[at].phase = Phase::Leaving;
                self.send(&mut state, at, true);
            }
            Action::Lose(at) => state.start_over(at),
            Action::Crash => {
                state.faults -= 1;
                state.row = state.disk.take().unwrap_or_default();
            }
            Action::Die(at) => {
                state.faults -= 1;
                state.clients[at].phase = Phase::Dead;
            }
        }
        (state != *before).then_some(state)
    }

    fn properties(&self) -> Vec<Property<Self>> {
        vec![
            Property::always(EXCLUSION, |_, state: &State| {
                (0..CLIENTS).filter(|at| state.relies_on_lock(*at)).count() < 2
            }),
            Property::always(ORDER, |_, state: &State| !state.tokens.disorder),
            Property::always(READABLE, |_, state: &State| state.row.read().is_some()),
            Property::always(ONCE, |_, state: &State| {
                let seen = state.row.replay().machine.inspect(0);
                let all: Vec<_> = seen.holders.iter().chain(&seen.waiters).collect();
                let attempt = |claim: ClaimId| claim.to_bits() >> 8;
                (1..all.len()).all(|at| {
                    all[..at].iter().all(|one| attempt(one.claim) != attempt(all[at].claim))
                })
            }),
            Property::always(TIMELY, |_, state: &State| !state.is_untimely),
            Property::always(GONE, |_, state: &State| {
                let seen = state.row.replay().machine.inspect(state.now);
                let mut all = seen.holders.iter().chain(&seen.waiters);
                all.all(|one| {
                    !state.clients.iter().enumerate().any(|(at, client)| {
                        client.gone && one.claim.to_bits() >> 16 == id(at, 0, 0).to_bits() >> 16
                    })
                })
            }),
            Property::always(WAKES, |model: &Self, state: &State| model.comes_to_rest(state)),
            Property::sometimes("a late one", |_, state: &State| {
                state.row.replay().outcomes.contains(&Outcome::Late)
            }),
            Property::sometimes("folded", |_, state: &State| !state.row.snap.is_empty()),
            Property::sometimes("a notification", |_, state: &State| {
                !state.notifications.is_empty()
            }),
        ]
    }
}

/// Returns how the property is violated without the rule.
pub fn without(rule: Rule, property: &'static str) -> String {
    breaks("sql_queue", rule, SqlQueue { without: Some(rule) }, property)
}

/// Visits every state of the protocol with all its rules. No property is violated.
///
/// # Panics
/// If a property is violated. The message contains the steps to the violation.
pub fn visit() {
    holds("sql_queue", SqlQueue::default(), 1_000_000);
}

//! The queue in a row of SQL: a snapshot and a log that every client replays.
//!
//! Stands for `apply_one.sql` of `dlock-sql` and `dlock-sql/src/engine/` (`worker.rs`, `cache.rs`,
//! `row.rs`, `told.rs`, `waiters.rs`). The rules of the lock are not modelled but run: the row is
//! real text, replayed by `dlock_core::machine`.
//!
//! A statement appends an operation, perhaps stamped with a time that has passed since, and folds
//! the log if the row still has the base that the client has seen. Its answer may be lost; then the
//! same operation is sent again, and the first may come behind the second, and behind the release. So
//! it has a deadline by the database's clock, and a claim that was sent more than once is barred by its
//! release until none of its statements can begin, or go on. Who writes the operation
//! that lets a waiter in sends it a note, which may be lost. Leases end by the database's clock;
//! holders rely on them from the sending of the statement that told them. A statement in a hurry is
//! answered before it is on the disk, and lost with the server, unless one that was not in a hurry
//! came behind it.
//!
//! Left out: several locks in one statement; rows that are deleted after a long time; a holder's
//! renewals (see the model `lease`).

use std::rc::Rc;

use dlock_core::{
    ClaimId, Mode, Queue,
    machine::{
        Op, Outcome,
        text::{Replayed, ops_text, snapshot},
    },
};

mod row;
mod rules;
mod space;

use self::row::Row;
pub use self::rules::{RULES, Rule};
use crate::check::{Tokens, breaks, holds};

const CLIENTS: usize = 2;
/// How many claims each client makes.
const CLAIMS: [u8; CLIENTS] = [1, 1];
const LEASE: u64 = 2;
/// No more time than this is looked at.
const END: u64 = 3;
/// How many answers, statements and notes are lost or late, clients die, and servers.
const FAULTS: u8 = 1;
/// A log is folded when it has more than so many characters.
const FOLD_ABOVE: usize = 60;

/// For so long the sender of an acquire waits for its answer.
const PATIENCE: u64 = 1;
/// How long the answer took that showed the database's clock, which was read at its end: by so much an
/// upper bound of that clock is too high.
const SLOW: u64 = 1;
/// A statement goes on for so long after it began.
const STATEMENT: u64 = 1;

/// What nobody waits for any more takes no effect.
const TIMELY: &str = "nothing begins too late";

/// A claim that was given up, and is gone, does not come back.
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
    /// What is on the disk, if not all of it is.
    disk: Option<Row>,
    clients: [Client; CLIENTS],
    /// Statements on their way, sorted; the first of a client may be an old one.
    wire: Vec<Letter>,
    notes: Vec<Note>,
    faults: u8,
    tokens: Tokens<u64>,
    /// Something began after its sender had stopped to wait.
    is_untimely: bool,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
struct Client {
    claims: u8,
    /// How often its claim was sent, and when last.
    copies: u8,
    asked: u64,
    /// A claim of it is gone, as the answer to its release said.
    gone: bool,
    /// Whether its claim was sent in a hurry.
    hurries: bool,
    phase: Phase,
    fold: Option<Fold>,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
enum Phase {
    #[default]
    Idle,
    Asking,
    /// With the moment at which its place was renewed.
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
    /// Of a release, or 0.
    bar: u64,
    hurries: bool,
    sent: u64,
    fold: Option<Fold>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct Note {
    claim: ClaimId,
    client: usize,
    token: u64,
    since: u64,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Action {
    Tick,
    Ask(usize),
    /// In a hurry.
    Join(usize),
    /// The statement takes effect and is answered; `late` if it began before the last tick.
    Applies {
        letter: Letter,
        late: bool,
    },
    /// Its answer is lost.
    AppliesUnanswered(Letter),
    /// It is taken for lost, and comes later.
    SendAgain(usize),
    NoteArrives(usize),
    NoteLost(usize),
    Poll(usize),
    Leave(usize),
    GiveUp(usize),
    /// The holder has noticed in time that its lease ends.
    Lose(usize),
    Die(usize),
    /// The server dies, and starts again with what is on the disk.
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
        if letter.hurries && self.has(Rule::JoinsLetNobodyIn) {
            return Op::Join { claim, mode, lease: LEASE, block: 1, home, note: None };
        }
        Op::Acquire { claim, mode, lease: LEASE, block: 1, queue, home, note: None }
    }

    /// By when an acquire has to begin that was sent then.
    fn deadline(&self, sent: u64) -> u64 {
        let shows = if self.has(Rule::LowerBound) { sent } else { sent + SLOW };
        shows + PATIENCE
    }

    fn send(&self, state: &mut State, at: usize, release: bool) {
        let client = &mut state.clients[at];
        if !release {
            client.asked = state.now;
        }
        let (claim, copy, fold) = (client.claims, client.copies, client.fold.clone());
        let (hurries, sent) = (client.hurries && !release, state.now);
        let goes_on = if self.has(Rule::BarOutlastsStatements) { STATEMENT } else { 0 };
        let bar = match release && copy > 0 && self.has(Rule::Bar) {
            true => self.deadline(client.asked) + goes_on + 1,
            false => 0,
        };
        let client = at;
        state.wire.push(Letter { client, claim, copy, release, bar, hurries, sent, fold });
        state.wire.sort_unstable();
    }

    /// Appends an operation, with a letter's fold; what the row then says.
    fn append(&self, state: &mut State, op: &Op, at: u64, letter: Option<&Letter>) -> Rc<Replayed> {
        let fold = letter.and_then(|letter| letter.fold.as_ref());
        let hurries = letter.is_some_and(|letter| letter.hurries);
        let disk = state.disk.take();
        if hurries {
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
            state.notes.push(Note { claim, client, token, since });
        }
        replayed
    }

    fn apply(&self, state: &mut State, letter: &Letter, late: bool, answered: bool) {
        state.wire.retain(|other| other != letter);
        let stamp = if late { state.now - 1 } else { state.now };
        let replayed = self.append(state, &self.op(letter), stamp, Some(letter));
        let outcome = replayed.outcomes.last().copied();
        let done = outcome != Some(Outcome::Late);
        state.is_untimely |= !letter.release && done && stamp > letter.sent + PATIENCE;
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
            // It is sent again.
            (Phase::Asking, Some(Outcome::Late)) => {}
            (Phase::Asking, Some(Outcome::Granted(granted))) => {
                // A moment of the holder's clock is mapped by this statement.
                let sent = if self.has(Rule::SinceSent) { letter.sent } else { state.now };
                let until = (sent + LEASE + granted.since).saturating_sub(stamp);
                state.hold(letter.client, granted.token, until);
            }
            (Phase::Asking, Some(_)) => {
                client.phase = Phase::Waiting { sent: letter.sent, at: stamp };
            }
            _ => {}
        }
    }

    fn note(&self, state: &mut State, at: usize) {
        let note = state.notes.remove(at);
        if let Phase::Waiting { sent, at } = state.clients[note.client].phase
            && state.claim(note.client) == note.claim
        {
            let until = (sent + LEASE + note.since).saturating_sub(at);
            state.hold(note.client, note.token, until);
        }
    }

    /// Asks the store, which renews the place in the queue.
    fn poll(&self, state: &mut State, at: usize) {
        let (claim, now) = (state.claim(at), state.now);
        let op = Op::Renew { claim, mode: Mode::Exclusive, lease: LEASE };
        let replayed = self.append(state, &op, now, None);
        match replayed.outcomes.last().copied() {
            Some(Outcome::Granted(granted)) => state.hold(at, granted.token, now + LEASE),
            Some(Outcome::Queued { .. }) => {
                state.clients[at].phase = Phase::Waiting { sent: now, at: now };
            }
            _ => state.start_over(at),
        }
    }

    /// Plays to its end what is under way, without faults: whether somebody holds the lock, or
    /// nobody waits.
    fn comes_to_rest(&self, state: &State) -> bool {
        if !state.clients.iter().any(|client| matches!(client.phase, Phase::Waiting { .. })) {
            return true;
        }
        let mut state = state.clone();
        for _ in 0..=2 * LEASE {
            while let Some(letter) = state.wire.first().cloned() {
                self.apply(&mut state, &letter, false, true);
            }
            while !state.notes.is_empty() {
                self.note(&mut state, 0);
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
            // Its lease went by on the way here.
            return self.start_over(at);
        }
        self.tokens.add(token);
        self.clients[at].phase = Phase::Held { until };
    }

    /// Leaves the claim behind, which ends with its lease.
    fn start_over(&mut self, at: usize) {
        let client = &mut self.clients[at];
        (client.phase, client.claims, client.copies) = (Phase::Idle, client.claims + 1, 0);
    }

    /// Whether the last thing that this client has sent is on its way.
    fn is_sent(&self, at: usize) -> bool {
        let client = &self.clients[at];
        let last = (at, client.claims, client.copies);
        self.wire.iter().any(|letter| (letter.client, letter.claim, letter.copy) == last)
    }

    fn believes(&self, at: usize) -> bool {
        matches!(self.clients[at].phase, Phase::Held { until } if self.now < until)
    }
}

/// How the property is violated without the rule.
pub fn without(rule: Rule, property: &'static str) -> String {
    breaks("sql_queue", rule, SqlQueue { without: Some(rule) }, property)
}

/// Visits every state of the protocol with all its rules. No property is violated.
///
/// # Panics
/// Where one is, with the steps that lead there.
pub fn visit() {
    holds("sql_queue", SqlQueue::default(), 1_000_000);
}

//! Acquires that reach Redis after their client has stopped waiting for them.
//!
//! Stands for `dlock-redis/src/link/node.rs` (what is sent), `unanswered.rs` and `later.rs`, with the
//! first lines of `quick.lua`; and for `dlock-core/src/contract/store_clock.rs`, where the deadline
//! comes from.
//!
//! A client takes a lock and gives it up, again and again. It may lose its connection at any time and
//! goes on over the next one, with the same claim or by giving it up. What it had sent stays on its way:
//! each connection keeps the order, but the last may be the first to arrive. A message may take as
//! long as it likes. The client learns the server's clock by answers, so it knows the least that this
//! shows, and that may be too little.
//!
//! Left out: leases, since nobody is to wait for the end of one here; other clients, which would find
//! the lock held or free as the server says; queues, whose places are taken by the same script; and
//! steps of the server's clock.

mod space;

use crate::check::{breaks, holds};

const CONNECTIONS: usize = 2;
const CLAIMS: u8 = 2;
/// How long the client waits for an answer.
const PATIENCE: u8 = 2;
/// How much less than the server's clock shows the client may take it for, at the most.
const BEHIND: u8 = 1;
/// The time goes on until then.
const END: u8 = 5;

const NOTHING_LEFT: &str = "who leaves, leaves nothing";
const KEEPS: &str = "nobody takes the lock from its holder";

/// The rules of the protocol, each of which can be taken out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Rule {
    /// The server refuses an acquire past its deadline.
    Deadline,
    /// The deadline is by the least that the server's clock can show, not by the most.
    LowerBound,
    /// A claim is given up once more if an acquire of it may still arrive.
    SecondCancel,
    /// That is sent when the deadline is past.
    AfterDeadline,
    /// A release that is answered settles what was sent on its own connection, and nothing else.
    OwnConnection,
    /// Only a claim that is over is given up once more.
    Over,
}

/// The rules, and what is violated without them.
pub const RULES: [(Rule, &str); 6] = [
    (Rule::Deadline, NOTHING_LEFT),
    (Rule::LowerBound, NOTHING_LEFT),
    (Rule::SecondCancel, NOTHING_LEFT),
    (Rule::AfterDeadline, NOTHING_LEFT),
    (Rule::OwnConnection, NOTHING_LEFT),
    (Rule::Over, KEEPS),
];

struct Late {
    without: Option<Rule>,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
struct State {
    time: u8,
    /// The claim that the server takes for the holder.
    held: Option<u8>,
    /// What is on its way, by connection.
    wires: [Vec<Letter>; CONNECTIONS],
    /// Which connection is used.
    connection: usize,
    claim: u8,
    phase: Phase,
    /// The acquires without an answer.
    lost: Vec<Lost>,
    /// The claims that are given up once more, and when.
    owed: Vec<(u8, u8)>,
    /// An acquire was refused for its deadline.
    refused: bool,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
enum Phase {
    #[default]
    Idle,
    Asking,
    Held,
    Leaving,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Letter {
    Acquire { claim: u8, deadline: u8, sent: u8 },
    Release { claim: u8, sent: u8 },
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct Lost {
    claim: u8,
    connection: usize,
    until: u8,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Action {
    /// The client sends its claim, and takes the server's clock for so much less than it shows.
    Ask(u8),
    /// The next on this connection arrives, and is answered if the client is still there.
    Arrives(usize),
    LoseConnection,
    /// The client wants no lock any more.
    Leave,
    /// It gives its claim up, perhaps not for the first time.
    Release,
    /// It gives this claim up once more.
    Again(u8),
    Tick,
}

impl Late {
    fn has(&self, rule: Rule) -> bool {
        self.without != Some(rule)
    }

    /// Until when the server is to take an acquire that is sent now.
    fn deadline(&self, now: u8, behind: u8) -> u8 {
        match self.has(Rule::LowerBound) {
            true => (now + PATIENCE).saturating_sub(behind),
            false => now + PATIENCE + behind,
        }
    }

    fn lose_connection(&self, state: &mut State) {
        let connection = state.connection;
        for letter in state.wires[connection].clone() {
            if let Letter::Acquire { claim, sent, .. } = letter {
                state.lost.push(Lost { claim, connection, until: sent + PATIENCE });
                if !self.has(Rule::Over) {
                    state.owe(claim, sent + PATIENCE);
                }
            }
        }
        state.connection += 1;
    }

    fn arrives(&self, state: &mut State, connection: usize) {
        let letter = state.wires[connection].remove(0);
        let is_heard = connection == state.connection;
        match letter {
            Letter::Acquire { claim, deadline, .. } => {
                let is_late = self.has(Rule::Deadline) && state.time > deadline;
                state.refused |= is_late;
                if !is_late && state.held.is_none_or(|holder| holder == claim) {
                    state.held = Some(claim);
                    if is_heard && state.phase == Phase::Asking && state.claim == claim {
                        state.phase = Phase::Held;
                    }
                }
            }
            Letter::Release { claim, sent } => {
                if state.held == Some(claim) {
                    state.held = None;
                }
                if is_heard {
                    self.is_released(state, claim, sent);
                }
            }
        }
    }

    /// The answer to a release that was sent then over the connection which is used.
    fn is_released(&self, state: &mut State, claim: u8, sent: u8) {
        state.owed.retain(|(owed, until)| *owed != claim || *until >= sent);
        if state.claim != claim || state.phase != Phase::Leaving {
            return;
        }
        let (own, connection) = (self.has(Rule::OwnConnection), state.connection);
        let is_left = |lost: &Lost| {
            own && lost.claim == claim && lost.connection != connection && lost.until >= sent
        };
        let left = state.lost.iter().filter(|lost| is_left(lost)).map(|lost| lost.until).max();
        if let Some(until) = left.filter(|_| self.has(Rule::SecondCancel)) {
            state.owe(claim, if self.has(Rule::AfterDeadline) { until } else { 0 });
        }
        state.lost.retain(|lost| lost.claim != claim);
        (state.claim, state.phase) = (claim + 1, Phase::Idle);
    }
}

impl State {
    fn owe(&mut self, claim: u8, until: u8) {
        self.owed.retain(|(owed, _)| *owed != claim);
        self.owed.push((claim, until));
    }

    fn send(&mut self, letter: Letter) {
        self.wires[self.connection].push(letter);
    }

    fn is_releasing(&self, claim: u8, connection: usize) -> bool {
        let releases =
            |letter: &Letter| matches!(letter, Letter::Release { claim: c, .. } if *c == claim);
        self.wires[connection].iter().any(releases)
    }

    fn is_live(&self, claim: u8) -> bool {
        self.claim == claim && self.phase != Phase::Idle
    }
}

/// How the property is violated without the rule.
pub fn without(rule: Rule, property: &'static str) -> String {
    breaks("redis_late", rule, Late { without: Some(rule) }, property)
}

/// Visits every state of the protocol with all its rules. No property is violated.
///
/// # Panics
/// Where one is, with the steps that lead there.
pub fn visit() {
    holds("redis_late", Late { without: None }, 5_000);
}

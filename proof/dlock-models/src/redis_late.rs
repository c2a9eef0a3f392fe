//! Acquires that reach Redis after their client has stopped waiting for them.
//!
//! Models `dlock-redis/src/link/node.rs` (the requests), `unanswered.rs` and `deferred_releases.rs`, with the
//! first lines of `acquire.lua`, and the `SET` of `take.rs`; and
//! `dlock-core/src/contract/store_clock.rs`, which computes the deadline.
//!
//! A client acquires and releases a lock again and again, by a script or by `SET NX PXAT`. The deadline
//! of a script is the time for which the client waits. That of a `SET` is a lease from its sending,
//! and its key ends then. It may lose its connection at any time.
//! It continues over the next connection, with the same claim or by cancelling it. The requests
//! that it had sent are still pending: each connection keeps their order, but the requests of the
//! last connection may arrive first. A message may be delayed without limit. The client learns the
//! server's clock from answers. It knows a lower bound of that clock, which may be too low.
//!
//! Left out: all leases but that of a `SET` whose answer is lost, because no client may have to wait
//! for one to expire here; other clients, which would find the lock held or free as the server reports it; queues, whose places are
//! assigned by the same script; and steps of the server's clock.

use stateright::{Model, Property};

use crate::check::{breaks, holds};

const CONNECTIONS: usize = 2;
const CLAIMS: u8 = 2;
/// The time for which the client waits for an answer.
const ANSWER_TIMEOUT: u8 = 2;
/// The lease of a `SET`.
const LEASE: u8 = 2;
/// The largest difference by which the client may underestimate the server's clock.
const BEHIND: u8 = 1;
/// The time at which the model ends.
const END: u8 = 6;

const NOTHING_LEFT: &str = "a released claim leaves nothing";
const KEEPS: &str = "no late acquire takes the lock from its holder";

/// The rules of the protocol. Each can be switched off.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Rule {
    /// The server refuses an acquire after its deadline.
    Deadline,
    /// The key of a `SET` ends at its deadline, and not a lease after it has arrived.
    End,
    /// The deadline uses the lower bound of the server's clock, not the upper bound.
    LowerBound,
    /// A claim is cancelled again if an acquire of it may still arrive.
    SecondCancel,
    /// Cancels are sent until the deadline has passed.
    AfterDeadline,
    /// An answered release settles only the requests on its own connection.
    OwnConnection,
    /// Only a claim that has ended is cancelled again.
    Over,
}

/// The rules, and the property that is violated without each of them.
pub const RULES: [(Rule, &str); 7] = [
    (Rule::Deadline, NOTHING_LEFT),
    (Rule::End, NOTHING_LEFT),
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
    /// The claim that the server considers the holder.
    held: Option<u8>,
    /// The end of the holder's key, if it is that of a `SET` without an answer.
    ends: Option<u8>,
    /// The pending messages of each connection.
    wires: [Vec<Letter>; CONNECTIONS],
    /// The index of the current connection.
    connection: usize,
    claim: u8,
    phase: Phase,
    /// The acquires without an answer.
    lost: Vec<Lost>,
    /// The claims to cancel again, and the time for that.
    deferred: Vec<(u8, u8)>,
    /// Whether an acquire was refused because of its deadline.
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
    Acquire { claim: u8, deadline: u8, until: u8, by: By },
    Release { claim: u8, sent: u8 },
}

/// The request that acquires.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum By {
    Script,
    Set,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct Lost {
    claim: u8,
    connection: usize,
    until: u8,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Action {
    /// The client sends its claim, and underestimates the server's clock by this amount.
    Ask(By, u8),
    /// The next message on this connection arrives. It is answered if the client still uses the
    /// connection.
    Arrives(usize),
    LoseConnection,
    /// The client no longer wants the lock.
    Leave,
    /// The client releases or cancels its claim, perhaps again.
    Release,
    /// The client cancels this claim again.
    Again(u8),
    Tick,
}

impl Late {
    fn has(&self, rule: Rule) -> bool {
        self.without != Some(rule)
    }

    /// Returns the time until which the server accepts an acquire whose deadline is this one by the
    /// client's clock.
    fn deadline(&self, until: u8, behind: u8) -> u8 {
        match self.has(Rule::LowerBound) {
            true => until.saturating_sub(behind),
            false => until + behind,
        }
    }

    fn lose_connection(&self, state: &mut State) {
        let connection = state.connection;
        for letter in state.wires[connection].clone() {
            if let Letter::Acquire { claim, until, .. } = letter {
                state.lost.push(Lost { claim, connection, until });
                if !self.has(Rule::Over) {
                    state.defer(claim, until);
                }
            }
        }
        state.connection += 1;
    }

    fn arrives(&self, state: &mut State, connection: usize) {
        let letter = state.wires[connection].remove(0);
        let is_heard = connection == state.connection;
        match letter {
            Letter::Acquire { claim, deadline, by, .. } => {
                let ends = match self.has(Rule::End) {
                    _ if by == By::Script => None,
                    true => Some(deadline),
                    false => Some(state.time + LEASE),
                };
                let is_late = match ends {
                    Some(ends) => state.time > ends,
                    None => self.has(Rule::Deadline) && state.time > deadline,
                };
                state.refused |= is_late;
                let is_heard = is_heard && state.phase == Phase::Asking && state.claim == claim;
                let is_free = state.held.is_none();
                if !is_late && (is_free || by == By::Script && state.held == Some(claim)) {
                    // From the answer on, the client renews it.
                    let ends = ends.filter(|_| !is_heard);
                    (state.held, state.ends) = (Some(claim), ends);
                    if is_heard {
                        state.phase = Phase::Held;
                    }
                }
            }
            Letter::Release { claim, sent } => {
                if state.held == Some(claim) {
                    (state.held, state.ends) = (None, None);
                }
                if is_heard {
                    self.is_released(state, claim, sent);
                }
            }
        }
    }

    /// Handles the answer to a release that was sent at this time over the current connection.
    fn is_released(&self, state: &mut State, claim: u8, sent: u8) {
        state.deferred.retain(|(deferred, until)| *deferred != claim || *until >= sent);
        if state.claim != claim || state.phase != Phase::Leaving {
            return;
        }
        let (own, connection) = (self.has(Rule::OwnConnection), state.connection);
        let is_left = |lost: &Lost| {
            own && lost.claim == claim && lost.connection != connection && lost.until >= sent
        };
        let left = state.lost.iter().filter(|lost| is_left(lost)).map(|lost| lost.until).max();
        if let Some(until) = left.filter(|_| self.has(Rule::SecondCancel)) {
            let until = if self.has(Rule::AfterDeadline) { until } else { 0 };
            state.defer(claim, until);
        }
        state.lost.retain(|lost| lost.claim != claim);
        (state.claim, state.phase) = (claim + 1, Phase::Idle);
    }
}

impl State {
    fn defer(&mut self, claim: u8, until: u8) {
        self.deferred.retain(|(deferred, _)| *deferred != claim);
        self.deferred.push((claim, until));
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

impl Model for Late {
    type State = State;
    type Action = Action;

    fn init_states(&self) -> Vec<State> {
        vec![State::default()]
    }

    fn actions(&self, state: &State, actions: &mut Vec<Action>) {
        let here = &state.wires[state.connection];
        let asks = here.iter().any(|letter| matches!(letter, Letter::Acquire { .. }));
        match state.phase {
            Phase::Idle if state.claim == CLAIMS => {}
            Phase::Idle | Phase::Asking if !asks => {
                for behind in 0..=BEHIND {
                    actions.push(Action::Ask(By::Script, behind));
                    // A claim whose acquire may be on its way is sent as a script.
                    if state.phase == Phase::Idle {
                        actions.push(Action::Ask(By::Set, behind));
                    }
                }
            }
            Phase::Leaving if !state.is_releasing(state.claim, state.connection) => {
                actions.push(Action::Release);
            }
            _ => {}
        }
        if matches!(state.phase, Phase::Asking | Phase::Held) {
            actions.push(Action::Leave);
        }
        for (connection, wire) in state.wires.iter().enumerate() {
            if !wire.is_empty() {
                actions.push(Action::Arrives(connection));
            }
        }
        for (claim, _) in &state.deferred {
            if !state.is_releasing(*claim, state.connection) {
                actions.push(Action::Again(*claim));
            }
        }
        if state.connection + 1 < CONNECTIONS {
            actions.push(Action::LoseConnection);
        }
        if state.time < END {
            actions.push(Action::Tick);
        }
    }

    fn next_state(&self, before: &State, action: Action) -> Option<State> {
        let mut state = before.clone();
        let (claim, sent) = (state.claim, state.time);
        match action {
            Action::Ask(by, behind) => {
                state.phase = Phase::Asking;
                // The end of a key is computed from the upper bound, so that it lives for the lease.
                let until = sent + if by == By::Set { LEASE + BEHIND } else { ANSWER_TIMEOUT };
                let deadline = self.deadline(until, behind);
                state.send(Letter::Acquire { claim, deadline, until, by });
            }
            Action::Arrives(connection) => self.arrives(&mut state, connection),
            Action::LoseConnection => self.lose_connection(&mut state),
            Action::Leave => state.phase = Phase::Leaving,
            Action::Release => state.send(Letter::Release { claim, sent }),
            Action::Again(claim) => state.send(Letter::Release { claim, sent }),
            Action::Tick => {
                state.time += 1;
                if state.ends.is_some_and(|ends| ends < state.time) {
                    (state.held, state.ends) = (None, None);
                }
            }
        }
        Some(state)
    }

    fn properties(&self) -> Vec<Property<Self>> {
        vec![
            Property::always(NOTHING_LEFT, |_, state: &State| {
                state.held.is_none_or(|claim| {
                    state.is_live(claim)
                        || state.deferred.iter().any(|(deferred, _)| *deferred == claim)
                        || (0..CONNECTIONS).any(|at| state.is_releasing(claim, at))
                })
            }),
            Property::always(KEEPS, |_, state: &State| {
                state.phase != Phase::Held || state.held == Some(state.claim)
            }),
            Property::sometimes("a late acquire is refused", |_, state: &State| state.refused),
            Property::sometimes("a late acquire is taken back", |_, state: &State| {
                let took = state.held.filter(|claim| !state.is_live(*claim));
                took.is_some_and(|claim| {
                    state.deferred.iter().any(|(deferred, _)| *deferred == claim)
                })
            }),
        ]
    }
}

/// Returns how the property is violated without the rule.
pub fn without(rule: Rule, property: &'static str) -> String {
    breaks("redis_late", rule, Late { without: Some(rule) }, property)
}

/// Visits every state of the protocol with all its rules. No property is violated.
///
/// # Panics
/// If a property is violated. The message contains the steps to the violation.
pub fn visit() {
    holds("redis_late", Late { without: None }, 5_000);
}

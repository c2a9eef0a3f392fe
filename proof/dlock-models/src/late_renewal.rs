//! Renewals of one claim that reach the store in another order than they were sent.
//!
//! Models the lease of a granted claim: `Entry::renew` in `dlock-core/src/machine/mod.rs`,
//! `dlock-redis/src/scripts/renew_exclusive.lua` and `renew_held` in `lock.lua`, `Life::extend` in
//! `dlock-core/src/session/life.rs`; and the last renewal in `dlock-core/src/hold/lease.rs`.
//!
//! A client renews its claim with leases of different lengths. It gives a renewal up and sends the
//! next one over another connection. At some point it sends the last renewal, which makes the store
//! keep the claim until a certain time, and retries it until it is answered. Every request may
//! arrive at any later time, in any order, or never.
//!
//! Left out: other claims, releases, and the difference of clocks (see the model `lease`). An
//! acquire that is sent again is an ordinary renewal here.

use stateright::{Model, Property};

use crate::check::{breaks, holds, send};

/// The leases of ordinary renewals.
const LEASES: [u8; 2] = [1, 3];
/// The times for which the last renewal keeps the claim.
const RESTS: [u8; 2] = [1, 4];
/// The number of requests of each kind.
const RENEWALS: u8 = 2;
const ATTEMPTS: u8 = 2;
/// The time at which the model ends.
const END: u8 = 4;

const KEPT: &str = "the store keeps a lease for as long as it has promised";
const SET: &str = "after the last renewal nothing extends the lease";

/// The rules of the protocol. Each can be switched off.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Rule {
    /// An ordinary renewal never shortens the lease.
    OnlyExtends,
    /// An ordinary renewal that arrives after the last one changes nothing.
    LastExcludes,
    /// Of two attempts of the last renewal, the earlier end counts.
    EarlierEnd,
    /// An attempt of the last renewal names the rest of the time, not the whole of it.
    RestOfTime,
}

/// The rules, and the property that is violated without each of them.
pub const RULES: [(Rule, &str); 4] = [
    (Rule::OnlyExtends, KEPT),
    (Rule::LastExcludes, SET),
    (Rule::EarlierEnd, SET),
    (Rule::RestOfTime, EXACT),
];

const EXACT: &str = "a request without delay keeps the claim exactly as long as intended";

struct LateRenewal {
    without: Option<Rule>,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct State {
    time: u8,
    /// The end of the lease in the store.
    ends: u8,
    /// Whether the last renewal has set it.
    is_final: bool,
    /// The requests that may still arrive.
    wire: Vec<Letter>,
    renewals: u8,
    attempts: u8,
    /// The time until which the store keeps the claim, according to the answers.
    promised: u8,
    /// The time until which the claim has to be kept after its holder has gone.
    until: Option<u8>,
    /// Whether a request has extended the lease after the last renewal.
    is_extended: bool,
    /// Whether a request that arrived at once has kept the claim for longer than intended.
    is_inexact: bool,
    /// Whether the last renewal has shortened the lease.
    is_shortened: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
struct Letter {
    sent: u8,
    lease: u8,
    is_last: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Action {
    Renew(u8),
    /// The holder ends, and the store keeps the claim for this time.
    Part(u8),
    /// The last renewal is sent, perhaps again.
    SendLast,
    Arrives {
        at: usize,
        is_answered: bool,
    },
    Tick,
}

impl LateRenewal {
    fn has(&self, rule: Rule) -> bool {
        self.without != Some(rule)
    }

    fn arrives(&self, state: &mut State, at: usize, is_answered: bool) {
        let Letter { sent, lease, is_last } = state.wire.remove(at);
        if state.time >= state.ends {
            return;
        }
        let (before, was_final, until) = (state.ends, state.is_final, state.time + lease);
        state.ends = match (is_last, was_final) {
            (true, true) if self.has(Rule::EarlierEnd) => before.min(until),
            (true, _) => until,
            (false, true) if self.has(Rule::LastExcludes) => before,
            (false, _) if self.has(Rule::OnlyExtends) => before.max(until),
            (false, _) => until,
        };
        state.is_final |= is_last;
        state.is_extended |= was_final && state.ends > before;
        state.is_shortened |= is_last && state.ends < before;
        state.is_inexact |= is_last && state.time == sent && state.until < Some(state.ends);
        match state.until {
            _ if !is_answered => {}
            Some(until) if is_last => state.promised = until,
            // The holder has gone, and nobody relies on the answer to an earlier renewal.
            Some(_) => {}
            None => state.promised = state.promised.max(sent + lease),
        }
    }
}

impl Model for LateRenewal {
    type State = State;
    type Action = Action;

    fn init_states(&self) -> Vec<State> {
        vec![State {
            time: 0,
            ends: LEASES[0],
            is_final: false,
            wire: Vec::new(),
            renewals: 0,
            attempts: 0,
            promised: LEASES[0],
            until: None,
            is_extended: false,
            is_inexact: false,
            is_shortened: false,
        }]
    }

    fn actions(&self, state: &State, actions: &mut Vec<Action>) {
        if state.until.is_some() {
            if state.attempts < ATTEMPTS && Some(state.time) < state.until {
                actions.push(Action::SendLast);
            }
        } else {
            if state.renewals < RENEWALS {
                actions.extend(LEASES.map(Action::Renew));
            }
            actions.extend(RESTS.map(Action::Part));
        }
        for at in 0..state.wire.len() {
            actions.extend([true, false].map(|is_answered| Action::Arrives { at, is_answered }));
        }
        if state.time < END {
            actions.push(Action::Tick);
        }
    }

    fn next_state(&self, before: &State, action: Action) -> Option<State> {
        let mut state = before.clone();
        let sent = state.time;
        match action {
            Action::Renew(lease) => {
                state.renewals += 1;
                send(&mut state.wire, Letter { sent, lease, is_last: false });
            }
            Action::Part(rest) => {
                state.until = Some(sent + rest);
                // Nobody relies on the lease any more until the last renewal is answered.
                state.promised = 0;
            }
            Action::SendLast => {
                let rest = state.until.and_then(|until| until.checked_sub(sent))?;
                let lease = if self.has(Rule::RestOfTime) { rest } else { RESTS[1] };
                state.attempts += 1;
                send(&mut state.wire, Letter { sent, lease, is_last: true });
            }
            Action::Arrives { at, is_answered } => self.arrives(&mut state, at, is_answered),
            Action::Tick => state.time += 1,
        }
        Some(state)
    }

    fn properties(&self) -> Vec<Property<Self>> {
        vec![
            Property::always(KEPT, |_, state: &State| state.ends >= state.promised),
            Property::always(SET, |_, state: &State| !state.is_extended),
            Property::always(EXACT, |_, state: &State| !state.is_inexact),
            Property::sometimes("the last renewal shortens the lease", |_, state: &State| {
                state.is_shortened
            }),
            Property::sometimes("the last renewal is sent twice", |_, state: &State| {
                state.is_final && state.wire.iter().any(|letter| letter.is_last)
            }),
        ]
    }
}

/// Returns how the property is violated without the rule.
pub fn without(rule: Rule, property: &'static str) -> String {
    breaks("late_renewal", rule, LateRenewal { without: Some(rule) }, property)
}

/// Visits every state of the protocol with all its rules. No property is violated.
///
/// # Panics
/// If a property is violated. The message contains the steps to the violation.
pub fn visit() {
    holds("late_renewal", LateRenewal { without: None }, 1_000);
}

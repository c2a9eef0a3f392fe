//! The lifetimes of a queue's keys in Redis.
//!
//! Models `dlock-redis/src/scripts/lock.lua` (the function `save`).
//!
//! A holder renews a long lease; two waiters with shorter leases of different lengths join, poll
//! and leave. Time passes in ticks, and never beyond the moment by which a waiter has to poll, so
//! every waiter sends its heartbeats. The queue and its waiters have one lifetime.
//!
//! Left out: messages, tokens and faults, which are the model `redis_hand_off`; and shared
//! holders, whose key has the lifetime of the queue's.

use stateright::{Model, Property};

use crate::check::{breaks, holds};

const WAITERS: usize = 2;
/// The lengths of the waiters' leases, and of the holder's.
const LEASES: [u8; WAITERS] = [2, 6];
const HOLDS: u8 = 8;
/// The time for which the keys outlive the leases in them.
const SPARE: u8 = 1;

const KEEPS: &str = "a waiter that polls keeps its position";

/// The rules of the protocol. Each can be switched off.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Rule {
    /// A waiter that polls extends the lifetime that it needs.
    Poll,
    /// A waiter with a short lease does not shorten a lifetime that another waiter needs.
    Longest,
}

/// The rules, and the property that is violated without each of them.
pub const RULES: [(Rule, &str); 2] = [(Rule::Poll, KEEPS), (Rule::Longest, KEEPS)];

struct Keys {
    without: Option<Rule>,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
struct State {
    /// The remaining time of the holder's lease.
    held: u8,
    /// The remaining lifetime of the queue and the waiters; 0 if there are no waiters.
    queue: u8,
    waiters: [Waiter; WAITERS],
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
enum Waiter {
    #[default]
    Idle,
    /// The client waits, and its position has this remaining time; 0 if it has expired.
    Waits(u8),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Action {
    Take,
    Renew,
    Join(usize),
    Ask(usize),
    Leave(usize),
    Tick,
}

impl Keys {
    fn has(&self, rule: Rule) -> bool {
        self.without != Some(rule)
    }

    /// The end of each script in which a claim with this lease has arrived or sent a heartbeat.
    fn save(&self, state: &mut State, lease: u8) {
        let need = lease + SPARE;
        let short = match self.has(Rule::Longest) {
            true => state.queue < need,
            false => state.queue != need + SPARE,
        };
        if short {
            state.queue = need + SPARE;
        }
    }
}

impl State {
    fn is_empty(&self) -> bool {
        self.waiters.iter().all(|waiter| *waiter == Waiter::Idle)
    }
}

impl Model for Keys {
    type State = State;
    type Action = Action;

    fn init_states(&self) -> Vec<State> {
        vec![State::default()]
    }

    fn actions(&self, state: &State, actions: &mut Vec<Action>) {
        match state.held {
            0 if state.is_empty() => actions.push(Action::Take),
            0 => {}
            _ => actions.push(Action::Renew),
        }
        for (at, waiter) in state.waiters.iter().enumerate() {
            match waiter {
                Waiter::Idle if state.held > 0 => actions.push(Action::Join(at)),
                Waiter::Idle => {}
                Waiter::Waits(_) => actions.extend([Action::Ask(at), Action::Leave(at)]),
            }
        }
        // Waiters poll in time, and the holder renews in time while there are waiters.
        let late = |waiter: &Waiter| matches!(waiter, Waiter::Waits(left) if *left <= 1);
        let held = state.held > 1 || state.is_empty();
        if held && !state.waiters.iter().any(late) {
            actions.push(Action::Tick);
        }
    }

    fn next_state(&self, before: &State, action: Action) -> Option<State> {
        let mut state = *before;
        match action {
            Action::Take | Action::Renew => state.held = HOLDS,
            Action::Join(at) => {
                state.waiters[at] = Waiter::Waits(LEASES[at]);
                self.save(&mut state, LEASES[at]);
            }
            Action::Ask(at) => {
                state.waiters[at] = Waiter::Waits(LEASES[at]);
                if self.has(Rule::Poll) {
                    self.save(&mut state, LEASES[at]);
                }
            }
            Action::Leave(at) => {
                state.waiters[at] = Waiter::Idle;
                if state.is_empty() {
                    state.queue = 0;
                }
            }
            Action::Tick => {
                state.held = state.held.saturating_sub(1);
                state.queue = state.queue.saturating_sub(1);
                for waiter in &mut state.waiters {
                    if let Waiter::Waits(left) = waiter {
                        *left -= 1;
                    }
                }
            }
        }
        Some(state)
    }

    fn properties(&self) -> Vec<Property<Self>> {
        vec![
            Property::always(KEEPS, |_, state: &State| state.is_empty() || state.queue > 0),
            Property::always("the keys outlive the leases in them", |_, state: &State| {
                let outlived = |waiter: &Waiter| match waiter {
                    Waiter::Idle => true,
                    Waiter::Waits(left) => state.queue >= *left,
                };
                state.waiters.iter().all(outlived)
            }),
            Property::sometimes("both wait behind a renewed lease", |_, state: &State| {
                let both = state.waiters.iter().filter(|waiter| **waiter != Waiter::Idle).count();
                both == WAITERS && state.held > state.queue
            }),
        ]
    }
}

/// Returns how the property is violated without the rule.
pub fn without(rule: Rule, property: &'static str) -> String {
    breaks("redis_keys", rule, Keys { without: Some(rule) }, property)
}

/// Visits every state of the protocol with all its rules. No property is violated.
///
/// # Panics
/// If a property is violated. The message contains the steps to the violation.
pub fn visit() {
    holds("redis_keys", Keys { without: None }, 300);
}

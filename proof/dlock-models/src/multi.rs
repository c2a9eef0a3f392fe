//! Multi-locks and single locks of one store, which must not deadlock.
//!
//! Models `dlock-core/src/kinds/multi.rs`, `dlock-redis/src/acquire_all.rs` and the grants of
//! `dlock-redis/src/scripts/lock.lua`.
//!
//! Five clients want some of four names, each once. Two names are in one shard and two in another.
//! A client acquires its names in steps: it enters the queues of a step, and begins the next step
//! when it holds all names of this one. At the end it releases all. A grant may skip a waiter whose
//! client can't be reached.
//!
//! Left out: leases, and claims that are lost. A multi-lock that has lost a claim starts over.

use stateright::{Model, Property};

use crate::check::{breaks, holds};

const NAMES: usize = 4;
const CLIENTS: usize = 5;
/// The names that each client wants.
const WANTED: [&[usize]; CLIENTS] = [&[0, 1, 2], &[0, 1], &[1, 2, 3], &[2, 3], &[0]];

/// Some client can go on, or all are done.
pub const NO_DEADLOCK: &str = "no deadlock";

/// The rules of the protocol. Each can be switched off.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Rule {
    /// All clients enter the queues of a shard at once. Without it, one client enters them one by
    /// one, in the order of names.
    SameSteps,
    /// All clients take the shards in one order. Without it, one client takes the last one first.
    OrderedShards,
    /// A waiter with several claims in a shard is never skipped.
    NeverSkipped,
}

/// The rules, and the property that is violated without each of them.
pub const RULES: [(Rule, &str); 3] = [
    (Rule::SameSteps, NO_DEADLOCK),
    (Rule::OrderedShards, NO_DEADLOCK),
    (Rule::NeverSkipped, NO_DEADLOCK),
];

#[derive(Default)]
struct Multi {
    without: Option<Rule>,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
struct State {
    holders: [Option<usize>; NAMES],
    queues: [Vec<usize>; NAMES],
    clients: [Phase; CLIENTS],
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Phase {
    /// It is about to enter the queues of this step.
    Enters(usize),
    /// It waits for the names of this step.
    Waits(usize),
    Done,
}

impl Default for Phase {
    fn default() -> Self {
        Self::Enters(0)
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Action {
    /// A client enters the queues of its next step.
    Enter(usize),
    /// The waiter at this place gets a name.
    Grant { name: usize, place: usize },
    /// A client with all its names releases them.
    Leave(usize),
}

impl Multi {
    fn has(&self, rule: Rule) -> bool {
        self.without != Some(rule)
    }

    /// Returns the names of each step of a client.
    fn steps(&self, client: usize) -> Vec<Vec<usize>> {
        let wanted = WANTED[client];
        if client == 1 && !self.has(Rule::SameSteps) {
            return wanted.iter().map(|name| vec![*name]).collect();
        }
        let mut steps: Vec<Vec<usize>> = (0..NAMES / 2)
            .map(|shard| wanted.iter().copied().filter(|name| name / 2 == shard).collect())
            .filter(|step: &Vec<usize>| !step.is_empty())
            .collect();
        if client == 0 && !self.has(Rule::OrderedShards) {
            steps.reverse();
        }
        steps
    }

    /// Returns whether a grant of this name may skip this client.
    fn may_skip(&self, client: usize, name: usize) -> bool {
        let claims = WANTED[client].iter().filter(|other| **other / 2 == name / 2).count();
        claims == 1 || !self.has(Rule::NeverSkipped)
    }
}

impl Model for Multi {
    type State = State;
    type Action = Action;

    fn init_states(&self) -> Vec<State> {
        vec![State::default()]
    }

    fn actions(&self, state: &State, actions: &mut Vec<Action>) {
        for client in 0..CLIENTS {
            match state.clients[client] {
                Phase::Enters(step) if step < self.steps(client).len() => {
                    actions.push(Action::Enter(client));
                }
                Phase::Enters(_) => actions.push(Action::Leave(client)),
                Phase::Waits(_) | Phase::Done => {}
            }
        }
        for name in (0..NAMES).filter(|name| state.holders[*name].is_none()) {
            for (place, client) in state.queues[name].iter().enumerate() {
                actions.push(Action::Grant { name, place });
                if !self.may_skip(*client, name) {
                    break;
                }
            }
        }
    }

    fn next_state(&self, before: &State, action: Action) -> Option<State> {
        let mut state = before.clone();
        match action {
            Action::Enter(client) => {
                let Phase::Enters(step) = state.clients[client] else { return None };
                for name in &self.steps(client)[step] {
                    state.queues[*name].push(client);
                }
                state.clients[client] = Phase::Waits(step);
            }
            Action::Grant { name, place } => {
                let client = state.queues[name].remove(place);
                state.holders[name] = Some(client);
                let Phase::Waits(step) = state.clients[client] else { return None };
                let names = &self.steps(client)[step];
                if names.iter().all(|name| state.holders[*name] == Some(client)) {
                    state.clients[client] = Phase::Enters(step + 1);
                }
            }
            Action::Leave(client) => {
                for name in WANTED[client] {
                    state.holders[*name] = None;
                }
                state.clients[client] = Phase::Done;
            }
        }
        Some(state)
    }

    fn properties(&self) -> Vec<Property<Self>> {
        vec![
            Property::always(NO_DEADLOCK, |model: &Self, state: &State| {
                let mut actions = Vec::new();
                model.actions(state, &mut actions);
                !actions.is_empty() || state.clients.iter().all(|phase| *phase == Phase::Done)
            }),
            Property::sometimes("two wait in both queues of a shard", |_, state: &State| {
                state.queues[0].len() > 1 && state.queues[1].len() > 1
            }),
        ]
    }
}

/// Returns how the property is violated without the rule.
pub fn without(rule: Rule, property: &'static str) -> String {
    breaks("multi", rule, Multi { without: Some(rule) }, property)
}

/// Visits every state of the protocol with all its rules. No property is violated.
///
/// # Panics
/// If a property is violated. The message contains the steps to the violation.
pub fn visit() {
    holds("multi", Multi::default(), 1000);
}

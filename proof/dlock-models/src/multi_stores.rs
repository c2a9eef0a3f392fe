//! Multi-locks over two stores, which all get their locks.
//!
//! Models `MultiMutex::take` of `dlock-core/src/kinds/multi.rs`.
//!
//! Three clients want one lock of each store, each once. Two of them take the stores in the same
//! order. The third one knows the stores by other addresses, so its order is the reverse. In a second
//! run of the model, two more clients take the lock of the second store again and again, so that its
//! queue is never empty. Each store grants its lock in the order of arrival.
//!
//! From every state, a *fair run* follows: in each round, each client takes its next step, and each
//! free lock is granted. A wait for the second lock of a multi-lock ends after some rounds, a
//! different number for each client.
//!
//! Left out: several locks of one store, which are the model `multi`; leases and outages.

use stateright::{Model, Property};

use crate::check::{breaks, holds};

const STORES: usize = 2;
/// The number of clients with a multi-lock. Those after them have single locks.
const MULTI: usize = 3;
const CLIENTS: usize = 5;
/// The number of rounds in which all multi-locks get their locks.
const ROUNDS: usize = 200;

/// In a fair run, each multi-lock gets its locks.
pub const PROGRESS: &str = "all multi-locks get their locks";
/// Clients that know the stores by the same addresses do not wait for each other.
pub const NO_CIRCLE: &str = "no circle";

/// The rules of the protocol. Each can be switched off.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Rule {
    /// The stores are taken in the order of their addresses. Without it, one client takes them in
    /// the order of its caller.
    OneOrder,
    /// A multi-lock waits for the second store. Without it, it tries, and starts over if the lock is
    /// busy.
    Waits,
    /// The wait for the second store is limited.
    Limit,
    /// The limit doubles.
    LimitDoubles,
    /// The limits differ, since they are random. Without it, clients that wait for each other start
    /// over at the same time.
    LimitsDiffer,
}

/// The rules, and the property that is violated without each of them.
pub const RULES: [(Rule, &str); 5] = [
    (Rule::OneOrder, NO_CIRCLE),
    (Rule::Waits, PROGRESS),
    (Rule::Limit, PROGRESS),
    (Rule::LimitDoubles, PROGRESS),
    (Rule::LimitsDiffer, PROGRESS),
];

struct MultiStores {
    /// The number of clients with single locks.
    singles: usize,
    without: Option<Rule>,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
struct State {
    holders: [Option<usize>; STORES],
    queues: [Vec<usize>; STORES],
    clients: [Phase; CLIENTS],
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Phase {
    /// It is about to take the lock of this step.
    Enters(usize),
    /// It is in the queue for the lock of this step.
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
    /// A client enters the queue of its next store, or tries.
    Enter(usize),
    /// The first waiter gets the lock of this store.
    Grant(usize),
    /// A client with all its locks releases them.
    Leave(usize),
    /// A wait for a later store ends, and the client starts over.
    TimeOut(usize),
}

impl MultiStores {
    fn has(&self, rule: Rule) -> bool {
        self.without != Some(rule)
    }

    /// Returns the stores of a client in its order.
    fn steps(&self, client: usize) -> &'static [usize] {
        match client {
            0 => &[0, 1],
            1 if self.has(Rule::OneOrder) => &[0, 1],
            1 | 2 => &[1, 0],
            _ => &[1],
        }
    }

    /// Returns the step of a client that is not in a queue.
    fn next(&self, state: &State, client: usize) -> Option<Action> {
        match state.clients[client] {
            _ if client >= MULTI + self.singles => None,
            Phase::Enters(step) if step < self.steps(client).len() => Some(Action::Enter(client)),
            Phase::Enters(_) => Some(Action::Leave(client)),
            Phase::Waits(_) | Phase::Done => None,
        }
    }

    /// Runs a client that wants a lock of this step.
    fn enter(&self, state: &mut State, client: usize, step: usize) {
        let store = self.steps(client)[step];
        let is_free = state.holders[store].is_none() && state.queues[store].is_empty();
        if step == 0 || self.has(Rule::Waits) {
            state.queues[store].push(client);
            state.clients[client] = Phase::Waits(step);
        } else if is_free {
            state.holders[store] = Some(client);
            state.clients[client] = Phase::Enters(step + 1);
        } else {
            state.release(client);
        }
    }

    /// Runs all clients for many rounds. Returns whether all multi-locks got their locks.
    fn settles(&self, state: &State) -> bool {
        let mut state = state.clone();
        let mut waited = [0; MULTI];
        let mut limits = if self.has(Rule::LimitsDiffer) { [1, 2, 3] } else { [1; MULTI] };
        for _ in 0..ROUNDS {
            let timed_out: Vec<_> =
                (0..MULTI).filter(|client| waited[*client] >= limits[*client]).collect();
            // All at the same time.
            for client in timed_out.into_iter().filter(|_| self.has(Rule::Limit)) {
                state.release(client);
                waited[client] = 0;
                if self.has(Rule::LimitDoubles) {
                    limits[client] *= 2;
                }
            }
            for client in 0..CLIENTS {
                if let Some(action) = self.next(&state, client) {
                    state = self.after(&state, action);
                }
            }
            for store in 0..STORES {
                if state.grants(store) {
                    state = self.after(&state, Action::Grant(store));
                }
            }
            for (waited, phase) in waited.iter_mut().zip(&state.clients) {
                *waited = if *phase == Phase::Waits(1) { *waited + 1 } else { 0 };
            }
        }
        state.clients[..MULTI].iter().all(|phase| *phase == Phase::Done)
    }

    fn after(&self, before: &State, action: Action) -> State {
        let mut state = before.clone();
        match action {
            Action::Enter(client) => {
                if let Phase::Enters(step) = state.clients[client] {
                    self.enter(&mut state, client, step);
                }
            }
            Action::Grant(store) => {
                let client = state.queues[store].remove(0);
                state.holders[store] = Some(client);
                if let Phase::Waits(step) = state.clients[client] {
                    state.clients[client] = Phase::Enters(step + 1);
                }
            }
            Action::Leave(client) => {
                state.release(client);
                if client < MULTI {
                    state.clients[client] = Phase::Done;
                }
            }
            Action::TimeOut(client) => state.release(client),
        }
        state
    }
}

impl State {
    /// Returns whether a waiter can have the lock of this store.
    fn grants(&self, store: usize) -> bool {
        self.holders[store].is_none() && !self.queues[store].is_empty()
    }

    /// Ends the claims of a client, which starts over.
    fn release(&mut self, client: usize) {
        for store in 0..STORES {
            self.queues[store].retain(|waiter| *waiter != client);
            self.holders[store] = self.holders[store].filter(|holder| *holder != client);
        }
        self.clients[client] = Phase::Enters(0);
    }

    /// Returns whether the first two clients each hold what the other one waits for.
    fn has_circle(&self) -> bool {
        let waits = |client: usize, store: usize| self.queues[store].contains(&client);
        let holds = |client: usize, store: usize| self.holders[store] == Some(client);
        (0..STORES).any(|store| {
            let other = 1 - store;
            holds(0, store) && waits(0, other) && holds(1, other) && waits(1, store)
        })
    }
}

impl Model for MultiStores {
    type State = State;
    type Action = Action;

    fn init_states(&self) -> Vec<State> {
        vec![State::default()]
    }

    fn actions(&self, state: &State, actions: &mut Vec<Action>) {
        actions.extend((0..CLIENTS).filter_map(|client| self.next(state, client)));
        actions.extend((0..STORES).filter(|store| state.grants(*store)).map(Action::Grant));
        let waits = |client: &usize| state.clients[*client] == Phase::Waits(1);
        let limited = (0..MULTI).filter(|client| self.has(Rule::Limit) && waits(client));
        actions.extend(limited.map(Action::TimeOut));
    }

    fn next_state(&self, before: &State, action: Action) -> Option<State> {
        Some(self.after(before, action))
    }

    fn properties(&self) -> Vec<Property<Self>> {
        vec![
            Property::always(PROGRESS, |model: &Self, state: &State| model.settles(state)),
            Property::always(NO_CIRCLE, |_, state: &State| !state.has_circle()),
            Property::sometimes("a multi-lock waits for its second lock", |_, state: &State| {
                state.clients[0] == Phase::Waits(1) && state.holders[1].is_some()
            }),
        ]
    }
}

/// Returns how the property is violated without the rule.
pub fn without(rule: Rule, property: &'static str) -> String {
    let singles = if rule == Rule::LimitsDiffer { 0 } else { 2 };
    breaks("multi_stores", rule, MultiStores { singles, without: Some(rule) }, property)
}

/// Visits every state of the protocol with all its rules. No property is violated.
///
/// # Panics
/// If a property is violated. The message contains the steps to the violation.
pub fn visit() {
    holds("multi_stores", MultiStores { singles: 0, without: None }, 100);
    holds("multi_stores, with single locks", MultiStores { singles: 2, without: None }, 1000);
}

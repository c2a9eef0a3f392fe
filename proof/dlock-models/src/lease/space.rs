//! The state space: the possible actions in each state, and the properties.

use stateright::{Model, Property};

use super::{Action, CLIENTS, Client, END, Lease, NO_STALE_WRITE, Rule, State, StoreFault};
use crate::check::{EXCLUSION, ORDER, Tokens};

impl Model for Lease {
    type State = State;
    type Action = Action;

    fn init_states(&self) -> Vec<State> {
        vec![State {
            now: 1,
            fresh: true,
            held: None,
            last: 0,
            store_fault: StoreFault::None,
            grants: 0,
            tokens: Tokens::default(),
            clients: [Client::default(); CLIENTS],
            mark: 0,
            newest: 0,
            stale: false,
        }]
    }

    fn actions(&self, state: &State, actions: &mut Vec<Action>) {
        if state.now < END {
            for missed in [[false, false], [false, true], [true, false], [true, true]] {
                if (0..CLIENTS).all(|at| !missed[at] || state.clients[at].may_miss()) {
                    actions.push(Action::Tick { missed });
                }
            }
        }
        if state.store_fault == StoreFault::None && state.grants > 0 {
            actions.extend([Action::LoseData, Action::SetClockBack]);
        }
        for (at, client) in state.clients.iter().enumerate() {
            let steps = client.steps(state, self.has(Rule::FineClock));
            actions.extend(steps.into_iter().map(|step| Action::Of(at, step)));
        }
    }

    fn next_state(&self, before: &State, action: Action) -> Option<State> {
        let mut state = before.clone();
        match action {
            Action::Tick { missed } => {
                state.now += 1;
                state.fresh = true;
                for (client, missed) in state.clients.iter_mut().zip(missed) {
                    client.tick(missed);
                }
            }
            Action::LoseData => {
                (state.held, state.last) = (None, 0);
                state.store_fault = StoreFault::DataLost;
            }
            Action::SetClockBack => {
                state.now -= 1;
                state.store_fault = StoreFault::ClockSetBack;
            }
            Action::Of(at, step) => self.step(&mut state, at, step),
        }
        Some(state)
    }

    fn properties(&self) -> Vec<Property<Self>> {
        vec![
            Property::always(EXCLUSION, |_, state: &State| {
                let valid = state.clients.iter().filter(|client| client.is_valid()).count();
                valid < 2 || state.store_fault == StoreFault::DataLost
            }),
            Property::always(ORDER, |_, state: &State| !state.tokens.disorder),
            Property::always(NO_STALE_WRITE, |_, state: &State| !state.stale),
            Property::sometimes("three grants", |_, state: &State| state.grants == 3),
            Property::sometimes("a late write", |_, state: &State| {
                let late = |client: &Client| client.write.is_some_and(|w| w.token < state.mark);
                state.clients.iter().any(late)
            }),
        ]
    }
}

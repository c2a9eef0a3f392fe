//! The state space: the possible actions in each state, and the properties.

use stateright::{Model, Property};

use super::{Action, CLIENTS, Multi, NAMES, NO_DEADLOCK, Phase, State, WANTED};

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

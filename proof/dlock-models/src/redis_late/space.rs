//! The state space: the possible actions in each state, and the properties.

use stateright::{Model, Property};

use super::{
    Action, BEHIND, CLAIMS, CONNECTIONS, END, KEEPS, Late, Letter, NOTHING_LEFT, Phase, State,
};

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
                actions.extend((0..=BEHIND).map(Action::Ask));
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
        for (claim, until) in &state.owed {
            // Only after the deadline.
            if state.time > *until && !state.is_releasing(*claim, state.connection) {
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
            Action::Ask(behind) => {
                state.phase = Phase::Asking;
                let deadline = self.deadline(sent, behind);
                state.send(Letter::Acquire { claim, deadline, sent });
            }
            Action::Arrives(connection) => self.arrives(&mut state, connection),
            Action::LoseConnection => self.lose_connection(&mut state),
            Action::Leave => state.phase = Phase::Leaving,
            Action::Release => state.send(Letter::Release { claim, sent }),
            Action::Again(claim) => state.send(Letter::Release { claim, sent }),
            Action::Tick => state.time += 1,
        }
        Some(state)
    }

    fn properties(&self) -> Vec<Property<Self>> {
        vec![
            Property::always(NOTHING_LEFT, |_, state: &State| {
                state.held.is_none_or(|claim| {
                    state.is_live(claim)
                        || state.owed.iter().any(|(owed, _)| *owed == claim)
                        || (0..CONNECTIONS).any(|at| state.is_releasing(claim, at))
                })
            }),
            Property::always(KEEPS, |_, state: &State| {
                state.phase != Phase::Held || state.held == Some(state.claim)
            }),
            Property::sometimes("a late acquire is refused", |_, state: &State| state.refused),
            Property::sometimes("a late acquire is taken back", |_, state: &State| {
                let took = state.held.filter(|claim| !state.is_live(*claim));
                took.is_some_and(|claim| state.owed.iter().any(|(owed, _)| *owed == claim))
            }),
        ]
    }
}

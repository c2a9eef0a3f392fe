//! The state space: the possible actions in each state, and the properties.

use stateright::{Model, Property};

use super::{Action, GAP, HALF_TICK, Kind, Lifetime, PENDING, Request, State, TIMEOUT};
use crate::check::EXCLUSION;

impl Model for Lifetime {
    type State = State;
    type Action = Action;

    /// The session was just created. The follower's next report is due at any time.
    fn init_states(&self) -> Vec<State> {
        let state = |report| State {
            deadline: TIMEOUT,
            ended: false,
            report,
            heard: false,
            requests: Vec::new(),
            letters: Vec::new(),
            answers: Vec::new(),
            pulses: [0; GAP + 1],
            created: TIMEOUT,
            proven: 0,
        };
        (1..=HALF_TICK).map(state).collect()
    }

    fn actions(&self, state: &State, actions: &mut Vec<Action>) {
        actions.push(Action::Tick);
        if !state.answers.is_empty() {
            actions.push(Action::ClientHears);
        }
        if !state.requests.is_empty() {
            actions.push(Action::FollowerHears);
        }
        if !state.letters.is_empty() {
            actions.push(Action::LeaderHears);
        }
        if state.pending() < PENDING {
            actions.extend([Action::Send(Kind::Read), Action::Send(Kind::Write)]);
        }
        if !state.ended {
            actions.push(Action::Reconnect);
            if state.deadline == 0 {
                actions.push(Action::End);
            }
        }
    }

    fn next_state(&self, before: &State, action: Action) -> Option<State> {
        let mut state = before.clone();
        match action {
            Action::Tick => state.tick(),
            Action::Send(kind) => {
                let proof = self.proof(&state);
                state.requests.push(Request { kind, left: TIMEOUT, proof });
            }
            Action::FollowerHears => state.follower_hears(),
            Action::LeaderHears => state.leader_hears(),
            Action::ClientHears => self.client_hears(&mut state),
            Action::Reconnect => state.reconnect(),
            Action::End => state.ended = true,
        }
        Some(state)
    }

    fn properties(&self) -> Vec<Property<Self>> {
        vec![
            Property::always(EXCLUSION, |_, state: &State| !state.ended || !state.believes()),
            Property::sometimes("a beat proves more than the creation", |_, state: &State| {
                state.proven > state.created
            }),
            Property::sometimes("an answer after the end", |_, state: &State| {
                state.ended && state.answers.iter().any(|answer| answer.kind == Kind::Write)
            }),
        ]
    }
}

//! The state space: the possible actions in each state, and the properties.

use stateright::{Model, Property};

use super::{Action, GAP, HALF_TICK, Letter, Lifetime, PENDING, State, TIMEOUT};
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
            forwarded: Vec::new(),
            answers: Vec::new(),
            pulses: [0; GAP + 1],
            proven: TIMEOUT,
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
        if state.ended {
            // A request that is sent now proves nothing.
            return;
        }
        if !state.forwarded.is_empty() {
            actions.push(Action::LeaderHears);
        }
        if state.pending() < PENDING {
            actions.push(Action::Read);
            if self.proof(state) > state.proven {
                actions.push(Action::Write);
            }
        }
        actions.push(Action::Reconnect);
        if state.deadline == 0 {
            actions.push(Action::End);
        }
    }

    fn next_state(&self, before: &State, action: Action) -> Option<State> {
        let mut state = before.clone();
        match action {
            Action::Tick => state.tick(),
            Action::Read => state.requests.push(Letter::Read(TIMEOUT)),
            Action::Write => state.requests.push(Letter::Write(self.proof(before))),
            Action::FollowerHears => self.follower_hears(&mut state),
            Action::LeaderHears => state.leader_hears(),
            Action::ClientHears => self.client_hears(&mut state),
            Action::Reconnect => state.reconnect(),
            Action::End => state.end(),
        }
        state.forget();
        Some(state)
    }

    fn properties(&self) -> Vec<Property<Self>> {
        vec![
            Property::always(EXCLUSION, |_, state: &State| !state.ended || state.proven == 0),
            Property::sometimes("a beat proves a longer life", |_, state: &State| {
                state.answers.iter().any(|answer| matches!(answer, Letter::Write(1..)))
            }),
            Property::sometimes("an answer to a beat after the end", |_, state: &State| {
                state.ended && state.answers.contains(&Letter::Write(0))
            }),
        ]
    }
}

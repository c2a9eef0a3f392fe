//! The state space: the possible actions in each state, and the properties.

use stateright::{Model, Property};

use super::{
    ATTEMPTS, Action, END, EXACT, KEPT, LEASES, LateRenewal, Letter, RENEWALS, RESTS, Rule, SET,
    State,
};
use crate::check::send;

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

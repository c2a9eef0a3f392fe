//! The state space: the possible actions in each state, and the properties.

use stateright::{Model, Property};

use super::{Action, CLAIMS, Client, END, HAS_CLIENT, NO_GRANT, READER, RedisGuard, State, Verb};
use crate::check::EXCLUSION;

impl Model for RedisGuard {
    type State = State;
    type Action = Action;

    fn init_states(&self) -> Vec<State> {
        vec![State::default()]
    }

    fn actions(&self, state: &State, actions: &mut Vec<Action>) {
        for claim in 0..CLAIMS {
            let is_in_store = state.store.holders.iter().any(|holder| holder.claim == claim);
            let verbs: &[Verb] = match state.clients[claim] {
                Client::Idle => &[Verb::Acquire],
                Client::Waits => &[Verb::Poll, Verb::Leave],
                Client::Holds { shared: false, .. } if claim == 0 => {
                    &[Verb::Renew, Verb::Downgrade, Verb::Leave]
                }
                Client::Holds { .. } if claim == 0 => &[Verb::Renew, Verb::Leave],
                Client::Holds { .. } => &[Verb::Leave],
                Client::Leaves { .. } => &[Verb::Leave],
                Client::Over if is_in_store => &[Verb::Force],
                Client::Over => &[],
            };
            for verb in verbs {
                for (is_answered, are_notified) in
                    [(true, true), (true, false), (false, true), (false, false)]
                {
                    actions.push(Action::Ask { claim, verb: *verb, is_answered, are_notified });
                }
            }
        }
        let is_empty = state.store.holders.is_empty() && state.store.queue.is_empty();
        if !state.saved && state.restarted.is_none() && !is_empty {
            actions.push(Action::Save);
        }
        if state.restarted.is_none() {
            actions.push(Action::Restart);
        }
        if state.time < END {
            actions.push(Action::Tick);
        }
    }

    fn next_state(&self, before: &State, action: Action) -> Option<State> {
        let mut state = before.clone();
        match action {
            Action::Ask { claim, verb, is_answered, are_notified } => {
                self.ask(&mut state, (claim, verb), is_answered, are_notified)?;
            }
            Action::Save => (state.disk, state.saved) = (state.store.clone(), true),
            Action::Restart => {
                state.store = std::mem::take(&mut state.disk);
                (state.restarted, state.saved) = (Some(state.time), true);
            }
            Action::Tick => state.time += 1,
        }
        (state != *before).then_some(state)
    }

    fn properties(&self) -> Vec<Property<Self>> {
        vec![
            Property::always(NO_GRANT, |_, state: &State| !state.is_early),
            Property::always(HAS_CLIENT, |model: &Self, state: &State| {
                let granted = state.store.holders.iter().filter(|holder| holder.is_new);
                let mut live = granted.filter(|holder| holder.ends > state.time);
                live.all(|holder| match state.clients[holder.claim] {
                    Client::Holds { .. } | Client::Leaves { .. } => true,
                    // Its next poll finds the grant, unless it is refused.
                    client => client == Client::Waits && model.may_grant(state, Verb::Poll, client),
                })
            }),
            Property::always(EXCLUSION, |_, state: &State| {
                let modes: Vec<_> = (0..CLAIMS).filter_map(|c| state.relies_on(c)).collect();
                modes.len() < 2 || modes.iter().all(|shared| *shared)
            }),
            Property::sometimes("a claim is granted after the guard", |_, state: &State| {
                state.store.holders.iter().any(|holder| holder.is_new)
            }),
            Property::sometimes("a lease outlives the server's memory", |_, state: &State| {
                let is_forgotten = |claim: &usize| {
                    state.relies_on(*claim).is_some()
                        && state.store.holders.iter().all(|holder| holder.claim != *claim)
                };
                state.restarted.is_some() && (0..CLAIMS).any(|claim| is_forgotten(&claim))
            }),
            Property::sometimes("two clients share the lock", |_, state: &State| {
                state.relies_on(0) == Some(true) && state.relies_on(READER) == Some(true)
            }),
        ]
    }
}

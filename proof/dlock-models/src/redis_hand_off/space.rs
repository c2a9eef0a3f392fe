//! The state space: the possible actions in each state, and the properties.

use stateright::{Model, Property};

use super::{
    Action, CLIENTS, Claim, Client, FAULTS, Letter, ONCE, Phase, RedisHandOff, Rule, State,
};
use crate::check::{EXCLUSION, ORDER, Tokens, WAKES, send};

impl Model for RedisHandOff {
    type State = State;
    type Action = Action;

    fn init_states(&self) -> Vec<State> {
        vec![State {
            held: None,
            last: 0,
            queue: Vec::new(),
            wire: Vec::new(),
            clients: [Client::default(); CLIENTS],
            faults: FAULTS,
            tokens: Tokens::default(),
        }]
    }

    fn actions(&self, state: &State, actions: &mut Vec<Action>) {
        let faults = state.faults > 0;
        for (at, client) in state.clients.iter().enumerate() {
            match client.phase {
                Phase::Idle if client.claims < self.claims[at] => actions.push(Action::Ask(at)),
                Phase::Idle | Phase::Dead => continue,
                Phase::Asking if !state.wire.contains(&Letter::Acquire(state.claim(at))) => {
                    // The answer was lost: the same claim is sent again.
                    actions.push(Action::Ask(at));
                }
                Phase::Asking => {}
                Phase::Waiting if self.has(Rule::Poll) => {
                    actions.extend([Action::Poll(at), Action::GiveUp(at)]);
                }
                Phase::Waiting => actions.push(Action::GiveUp(at)),
                Phase::Held => actions.extend([Action::Leave(at), Action::Stop(at)]),
            }
            if faults && client.phase != Phase::Idle {
                actions.push(Action::Die(at));
            }
            match client.deaf {
                true => actions.push(Action::Reconnect(at)),
                false if faults => actions.push(Action::Cut(at)),
                false => {}
            }
        }
        for letter in &state.wire {
            actions.push(Action::Arrives(*letter));
            if faults {
                actions.push(Action::Repeats(*letter));
                actions.push(match letter {
                    Letter::Grant(..) => Action::Lost(*letter),
                    _ => Action::ArrivesUnanswered(*letter),
                });
            }
        }
        let is_relied_on =
            |(claim, _)| state.is_current(claim) && state.phase(claim) == Phase::Held;
        if state.held.is_some_and(|held| !is_relied_on(held)) {
            actions.push(Action::LeaseEnds);
        }
        for (at, claim) in state.queue.iter().enumerate() {
            // Also the position of a client that pauses for longer than a lease.
            if faults || !state.is_wanted(*claim) {
                actions.push(Action::PlaceEnds(at));
            }
        }
    }

    fn next_state(&self, before: &State, action: Action) -> Option<State> {
        let mut state = before.clone();
        match action {
            Action::Ask(at) => {
                state.clients[at].phase = Phase::Asking;
                let claim = state.claim(at);
                send(&mut state.wire, Letter::Acquire(claim));
            }
            Action::Arrives(letter) => {
                state.wire.retain(|other| *other != letter);
                self.serve(&mut state, letter, true);
            }
            Action::ArrivesUnanswered(letter) => {
                state.faults -= 1;
                state.wire.retain(|other| *other != letter);
                self.serve(&mut state, letter, false);
            }
            Action::Repeats(letter) => {
                state.faults -= 1;
                self.serve(&mut state, letter, false);
            }
            Action::Lost(letter) => {
                state.faults -= 1;
                state.wire.retain(|other| *other != letter);
            }
            Action::Poll(at) => self.poll(&mut state, at),
            Action::GiveUp(at) | Action::Leave(at) => state.give_up(at),
            Action::Stop(at) => {
                state.clients[at].phase = Phase::Idle;
                state.clients[at].claims += 1;
            }
            Action::Die(at) => {
                state.faults -= 1;
                (state.clients[at].phase, state.clients[at].deaf) = (Phase::Dead, true);
            }
            Action::Cut(at) => {
                state.faults -= 1;
                state.clients[at].deaf = true;
                let mine = |l: &Letter| matches!(l, Letter::Grant(claim, _) if claim.client == at);
                state.wire.retain(|letter| !mine(letter));
            }
            Action::Reconnect(at) => state.clients[at].deaf = false,
            Action::LeaseEnds => state.held = None,
            Action::PlaceEnds(at) => {
                if state.is_wanted(state.queue[at]) {
                    state.faults -= 1;
                }
                state.queue.remove(at);
            }
        }
        Some(state)
    }

    fn properties(&self) -> Vec<Property<Self>> {
        vec![
            Property::always(EXCLUSION, |_, state: &State| {
                state.clients.iter().filter(|client| client.phase == Phase::Held).count() < 2
            }),
            Property::always(ORDER, |_, state: &State| !state.tokens.disorder),
            Property::always(ONCE, |_, state: &State| {
                let holder = state.held.map(|(claim, _)| claim);
                let mut all: Vec<Claim> = state.queue.iter().copied().chain(holder).collect();
                all.sort_unstable();
                all.windows(2).all(|pair| pair[0] != pair[1])
            }),
            Property::always(WAKES, |model: &Self, state: &State| model.comes_to_rest(state)),
            Property::sometimes("one waits", |_, state: &State| state.queue.len() == 1),
        ]
    }
}

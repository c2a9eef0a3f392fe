//! The state space: the possible actions in each state, and the properties.

use dlock_core::{ClaimId, machine::Outcome};
use stateright::{Model, Property};

use super::{
    Action, CLAIMS, CLIENTS, Client, END, FAULTS, GONE, ONCE, Phase, READABLE, Row, Rule, SqlQueue,
    State, TIMELY,
};
use crate::check::{EXCLUSION, ORDER, Tokens, WAKES};

impl Model for SqlQueue {
    type State = State;
    type Action = Action;

    fn init_states(&self) -> Vec<State> {
        vec![State {
            now: 1,
            row: Row { base: 1, ..Row::default() },
            disk: None,
            clients: [Client::default(), Client::default()],
            wire: Vec::new(),
            notifications: Vec::new(),
            faults: FAULTS,
            tokens: Tokens::default(),
            is_untimely: false,
        }]
    }

    fn actions(&self, state: &State, actions: &mut Vec<Action>) {
        let faults = state.faults > 0;
        if state.now < END {
            actions.push(Action::Tick);
        }
        for (at, client) in state.clients.iter().enumerate() {
            let sent = state.is_sent(at);
            match client.phase {
                Phase::Idle if client.claims < CLAIMS[at] => {
                    actions.push(Action::Ask(at));
                    // The client may join although the lock is free by now. It is enough if one
                    // client does so, which gives a third of the states.
                    if at > 0 {
                        actions.push(Action::Join(at));
                    }
                }
                Phase::Idle | Phase::Dead => {}
                Phase::Requesting | Phase::Leaving if !sent => actions.push(Action::SendAgain(at)),
                Phase::Requesting | Phase::Leaving if faults => actions.push(Action::SendAgain(at)),
                Phase::Requesting | Phase::Leaving => {}
                Phase::Waiting { at: renewed, .. } => {
                    actions.push(Action::GiveUp(at));
                    // Once per tick, and whenever the claim has been granted.
                    let granted = state.row.replay().machine.grant_of(state.claim(at)).is_some();
                    if self.has(Rule::Poll) && (granted || renewed < state.now) {
                        actions.push(Action::Poll(at));
                    }
                    if faults {
                        actions.push(Action::Die(at));
                    }
                }
                Phase::Held { .. } => actions.extend([Action::Leave(at), Action::Lose(at)]),
            }
        }
        if faults && state.disk.is_some() {
            actions.push(Action::Crash);
        }
        for letter in &state.wire {
            actions.push(Action::Applies { letter: letter.clone(), late: false });
            if letter.sent < state.now {
                actions.push(Action::Applies { letter: letter.clone(), late: true });
            }
            if faults {
                actions.push(Action::AppliesUnanswered(letter.clone()));
            }
        }
        for at in 0..state.notifications.len() {
            actions.push(Action::NotificationArrives(at));
            if faults {
                actions.push(Action::NotificationLost(at));
            }
        }
    }

    fn next_state(&self, before: &State, action: Action) -> Option<State> {
        let mut state = before.clone();
        match action {
            Action::Tick => state.now += 1,
            Action::Ask(at) | Action::Join(at) => {
                let client = &mut state.clients[at];
                (client.phase, client.skips_sync) =
                    (Phase::Requesting, matches!(action, Action::Join(_)));
                self.send(&mut state, at, false);
            }
            Action::Applies { letter, late } => self.apply(&mut state, &letter, late, true),
            Action::AppliesUnanswered(letter) => {
                state.faults -= 1;
                self.apply(&mut state, &letter, false, false);
            }
            Action::SendAgain(at) => {
                if state.is_sent(at) {
                    state.faults -= 1;
                }
                state.clients[at].copies += 1;
                let release = state.clients[at].phase == Phase::Leaving;
                self.send(&mut state, at, release);
            }
            Action::NotificationArrives(at) => self.notify(&mut state, at),
            Action::NotificationLost(at) => {
                state.faults -= 1;
                state.notifications.remove(at);
            }
            Action::Poll(at) => self.poll(&mut state, at),
            Action::Leave(at) | Action::GiveUp(at) => {
                state.clients[at].phase = Phase::Leaving;
                self.send(&mut state, at, true);
            }
            Action::Lose(at) => state.start_over(at),
            Action::Crash => {
                state.faults -= 1;
                state.row = state.disk.take().unwrap_or_default();
            }
            Action::Die(at) => {
                state.faults -= 1;
                state.clients[at].phase = Phase::Dead;
            }
        }
        (state != *before).then_some(state)
    }

    fn properties(&self) -> Vec<Property<Self>> {
        vec![
            Property::always(EXCLUSION, |_, state: &State| {
                (0..CLIENTS).filter(|at| state.relies_on_lock(*at)).count() < 2
            }),
            Property::always(ORDER, |_, state: &State| !state.tokens.disorder),
            Property::always(READABLE, |_, state: &State| state.row.read().is_some()),
            Property::always(ONCE, |_, state: &State| {
                let seen = state.row.replay().machine.inspect(0);
                let all: Vec<_> = seen.holders.iter().chain(&seen.waiters).collect();
                let attempt = |claim: ClaimId| claim.to_bits() >> 8;
                (1..all.len()).all(|at| {
                    all[..at].iter().all(|one| attempt(one.claim) != attempt(all[at].claim))
                })
            }),
            Property::always(TIMELY, |_, state: &State| !state.is_untimely),
            Property::always(GONE, |_, state: &State| {
                let seen = state.row.replay().machine.inspect(state.now);
                let mut all = seen.holders.iter().chain(&seen.waiters);
                all.all(|one| {
                    !state.clients.iter().enumerate().any(|(at, client)| {
                        client.gone
                            && one.claim.to_bits() >> 16 == super::id(at, 0, 0).to_bits() >> 16
                    })
                })
            }),
            Property::always(WAKES, |model: &Self, state: &State| model.comes_to_rest(state)),
            Property::sometimes("a late one", |_, state: &State| {
                state.row.replay().outcomes.contains(&Outcome::Late)
            }),
            Property::sometimes("folded", |_, state: &State| !state.row.snap.is_empty()),
            Property::sometimes("a notification", |_, state: &State| {
                !state.notifications.is_empty()
            }),
        ]
    }
}

//! The state space: the possible actions in each state, and the properties.

use stateright::{Model, Property};

use super::{Action, HOLDS, KEEPS, Keys, LEASES, LastToken, RETENTION, State, WAITERS, Waiter};

impl Model for Keys {
    type State = State;
    type Action = Action;

    fn init_states(&self) -> Vec<State> {
        vec![State::default()]
    }

    fn actions(&self, state: &State, actions: &mut Vec<Action>) {
        match state.held {
            0 if state.is_empty() => actions.push(Action::Take),
            0 => {}
            _ => actions.push(Action::Renew),
        }
        for (at, waiter) in state.waiters.iter().enumerate() {
            match waiter {
                Waiter::Idle if state.held > 0 => actions.push(Action::Join(at)),
                Waiter::Idle => {}
                Waiter::Waits(_) => actions.extend([Action::Ask(at), Action::Leave(at)]),
            }
        }
        // Waiters poll in time, and the holder renews in time while there are waiters.
        let late = |waiter: &Waiter| matches!(waiter, Waiter::Waits(left) if *left <= 1);
        let held = state.held > 1 || state.is_empty();
        if held && !state.waiters.iter().any(late) {
            actions.push(Action::Tick);
        }
    }

    fn next_state(&self, before: &State, action: Action) -> Option<State> {
        let mut state = *before;
        match action {
            Action::Take => {
                state.held = HOLDS;
                state.last = LastToken { lives: RETENTION, flag: false };
            }
            Action::Renew => {
                state.held = HOLDS;
                let need = RETENTION + HOLDS;
                if state.last.lives == 0 {
                    state.last = LastToken { lives: need + HOLDS, flag: false };
                }
                state.last.lives = state.last.lives.max(need);
            }
            Action::Join(at) => {
                let was_empty = state.is_empty();
                state.waiters[at] = Waiter::Waits(LEASES[at]);
                self.save(&mut state, LEASES[at], was_empty);
            }
            Action::Ask(at) => {
                state.waiters[at] = Waiter::Waits(LEASES[at]);
                self.save(&mut state, LEASES[at], false);
            }
            Action::Leave(at) => {
                state.waiters[at] = Waiter::Idle;
                if state.is_empty() {
                    state.queue = 0;
                    state.last = LastToken { lives: RETENTION, flag: false };
                }
            }
            Action::Tick => {
                state.held = state.held.saturating_sub(1);
                state.queue = state.queue.saturating_sub(1);
                state.last.lives = state.last.lives.saturating_sub(1);
                state.last.flag &= state.last.lives > 0;
                for waiter in &mut state.waiters {
                    if let Waiter::Waits(left) = waiter {
                        *left -= 1;
                    }
                }
            }
        }
        Some(state)
    }

    fn properties(&self) -> Vec<Property<Self>> {
        vec![
            Property::always(KEEPS, |_, state: &State| {
                state.is_empty() || state.queue > 0 && state.last.flag
            }),
            Property::always("the keys outlive the leases in them", |_, state: &State| {
                let outlived = |waiter: &Waiter| match waiter {
                    Waiter::Idle => true,
                    Waiter::Waits(left) => state.queue >= *left && state.last.lives >= *left,
                };
                state.waiters.iter().all(outlived)
            }),
            Property::sometimes("both wait behind a renewed lease", |_, state: &State| {
                let both = state.waiters.iter().filter(|waiter| **waiter != Waiter::Idle).count();
                both == WAITERS && state.last.lives > state.queue
            }),
        ]
    }
}

//! The state space: the possible actions in each state, and the properties.

use stateright::{Model, Property};

use super::{
    Action, BLOCK, Client, FAIR, HandOff, Hold, ONE_LEADER, OWNED, Other, Phase, State, TASKS,
    TURNS, Task,
};
use crate::check::{EXCLUSION, ORDER, Tokens, WAKES};

impl Model for HandOff {
    type State = State;
    type Action = Action;

    fn init_states(&self) -> Vec<State> {
        vec![State {
            tasks: [Task::default(); TASKS],
            queue: Vec::new(),
            busy: false,
            hold: Hold::default(),
            store: None,
            waits: Vec::new(),
            other: Other::Idle,
            last: 0,
            tokens: Tokens::default(),
            passed: 0,
            losses: 0,
        }]
    }

    fn actions(&self, state: &State, actions: &mut Vec<Action>) {
        for (at, task) in state.tasks.iter().enumerate() {
            match task.phase {
                // A task that has cancelled stays in the queue until it is removed there, and can
                // queue again only after that.
                Phase::Idle if task.turns < TURNS[at] && !state.queue.contains(&at) => {
                    actions.push(Action::Want(at));
                }
                Phase::Idle => {}
                Phase::Queued | Phase::Leading => actions.push(Action::Cancel(at)),
                Phase::Handed { .. } | Phase::Offered => {
                    actions.extend([Action::Take(at), Action::Cancel(at)]);
                }
                Phase::Held { .. } => actions.extend([Action::HandOff(at), Action::Release(at)]),
                Phase::Passing { .. } => actions.push(Action::PopNext(at)),
                Phase::Sending { .. } => actions.push(Action::Send(at)),
            }
        }
        if state.hold.running && state.losses < 2 {
            actions.push(Action::LoseHold);
        }
        if state.store == Some(Client::Process) && !state.hold.running {
            actions.push(Action::LeaseEnds);
        }
        match state.other {
            Other::Idle => actions.push(Action::OtherAcquires),
            Other::Held => actions.push(Action::OtherLeaves),
            Other::Waiting | Other::Done => {}
        }
    }

    fn next_state(&self, before: &State, action: Action) -> Option<State> {
        let mut state = before.clone();
        match action {
            Action::Want(at) => state.enter(at),
            Action::Cancel(at) => self.cancel(&mut state, at),
            Action::Take(at) => self.take(&mut state, at),
            Action::HandOff(at) | Action::Release(at) => {
                let Phase::Held { hold, .. } = state.tasks[at].phase else { return None };
                match action {
                    Action::HandOff(_) => self.hand_off(&mut state, at, hold),
                    _ => self.release(&mut state, at, hold),
                }
            }
            Action::PopNext(at) => {
                let Phase::Passing { hold, token } = state.tasks[at].phase else { return None };
                self.pop_next(&mut state, at, hold, token);
            }
            Action::Send(at) => {
                let Phase::Sending { hold, token, to } = state.tasks[at].phase else { return None };
                self.send(&mut state, at, (hold, token), to);
            }
            Action::LoseHold => {
                state.losses += 1;
                state.hold.running = false;
                for task in &mut state.tasks {
                    if let Phase::Held { is_valid, .. } = &mut task.phase {
                        *is_valid = false;
                    }
                }
                state.pass_leader_role();
            }
            Action::LeaseEnds => {
                state.store = None;
                state.promote();
            }
            Action::OtherAcquires => {
                (state.other, state.passed) = (Other::Waiting, 0);
                state.waits.push(Client::Other);
                state.promote();
            }
            Action::OtherLeaves => {
                (state.other, state.store) = (Other::Done, None);
                state.promote();
            }
        }
        Some(state)
    }

    fn properties(&self) -> Vec<Property<Self>> {
        vec![
            Property::always(EXCLUSION, |_, state: &State| {
                let is_valid =
                    |task: &&Task| matches!(task.phase, Phase::Held { is_valid: true, .. });
                let tasks = state.tasks.iter().filter(is_valid).count();
                tasks + usize::from(state.other == Other::Held) < 2
            }),
            Property::always(ORDER, |_, state: &State| !state.tokens.disorder),
            // The model has no timers, so while a task is queued another one must have a next step.
            Property::always(WAKES, |_, state: &State| {
                let acts = |task: &Task| !matches!(task.phase, Phase::Idle | Phase::Queued);
                let queued = |task: &Task| task.phase == Phase::Queued;
                !state.tasks.iter().any(queued) || state.tasks.iter().any(acts)
            }),
            Property::always(OWNED, |_, state: &State| {
                let number = state.hold.number;
                let has = |task: &Task| match task.phase {
                    Phase::Handed { hold, .. }
                    | Phase::Held { hold, .. }
                    | Phase::Passing { hold, .. }
                    | Phase::Sending { hold, .. } => hold == number,
                    _ => false,
                };
                !state.hold.running || state.tasks.iter().any(has)
            }),
            Property::always(ONE_LEADER, |_, state: &State| {
                let leads = |task: &&Task| matches!(task.phase, Phase::Leading | Phase::Offered);
                let leads = state.tasks.iter().filter(leads).count();
                leads + usize::from(state.hold.running) <= usize::from(state.busy)
            }),
            Property::always(FAIR, |_, state: &State| state.passed < BLOCK),
            Property::sometimes("a whole block", |_, state: &State| {
                state.hold.used == state.hold.end && state.hold.number > 0
            }),
            Property::sometimes("lost on the way", |_, state: &State| {
                let lost = |task: &Task| match task.phase {
                    Phase::Handed { hold, .. } => !state.runs(hold),
                    _ => false,
                };
                state.tasks.iter().any(lost)
            }),
        ]
    }
}

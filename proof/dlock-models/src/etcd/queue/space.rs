//! The state space: the possible actions in each state, and the properties.

use stateright::{Model, Property};

use super::{
    Action, CLIENTS, Client, EtcdQueue, NOBODYS, PERMIT_COUNT, Phase, Rule, Session, State,
};
use crate::check::{EXCLUSION, ORDER, Tokens, WAKES};

impl EtcdQueue {
    fn actions_of(&self, state: &State, at: usize, actions: &mut Vec<Action>) {
        let client = state.clients[at];
        let faults = state.faults;
        match client.phase {
            Phase::Idle if client.wants < self.setup.wants[at] => actions.push(Action::Want(at)),
            Phase::Asking => {
                let ready = self.session(state, at).marker != 0 || !self.has(Rule::MarkerFirst);
                actions.extend(self.own_step(state, at));
                if ready && state.full {
                    actions.push(Action::CreateRefused(at));
                }
                if ready && faults.late > 0 {
                    actions.extend([Action::CreateLost(at), Action::CreateLate(at)]);
                    if !state.full {
                        actions.push(Action::CreateUnanswered(at));
                    }
                }
            }
            Phase::Placed { applied, .. } => {
                actions.extend((applied..=state.rev).map(|from| Action::Watch(at, from)));
            }
            Phase::Reading { least, .. } => {
                actions.extend((least..=state.rev).map(|rev| Action::Read(at, rev)));
            }
            Phase::Held { .. } => {
                actions.extend(self.own_step(state, at));
                actions.push(Action::Leave(at));
            }
            Phase::Leaving { .. } => {
                actions.push(Action::Delete(at));
                if faults.late > 0 {
                    actions.push(Action::DeleteLate(at));
                }
            }
            _ => actions.extend(self.own_step(state, at)),
        }
        if client.wanted && !client.phase.holds() {
            actions.push(Action::Cancel(at));
        }
        if faults.failovers > 0 && client.phase.waits() {
            actions.extend((0..=state.rev).map(|applied| Action::FailOver(at, applied)));
        }
    }

    fn breaks_of(&self, state: &State, at: usize, actions: &mut Vec<Action>) {
        let there = state.keys.iter().any(|key| key.client == at && key.deleted.is_none());
        if !there || !self.is_queued(state, at) {
            return;
        }
        actions.push(Action::Break { client: at, all: false });
        let slots = self.setup.sessions;
        if (0..CLIENTS).all(|other| slots[other] != slots[at] || self.is_queued(state, other)) {
            actions.push(Action::Break { client: at, all: true });
        }
    }
}

impl Model for EtcdQueue {
    type State = State;
    type Action = Action;

    fn init_states(&self) -> Vec<State> {
        let client = Client {
            wants: 0,
            slot: 1,
            wanted: false,
            retired: false,
            seen: 0,
            phase: Phase::Idle,
        };
        vec![State {
            rev: 0,
            keys: Vec::new(),
            sessions: [Session { number: 1, dead: 0, marker: 1, puts: 1 }; CLIENTS],
            clients: [client; CLIENTS],
            late: Vec::new(),
            full: false,
            faults: self.setup.faults,
            tokens: Tokens::default(),
        }]
    }

    fn actions(&self, state: &State, actions: &mut Vec<Action>) {
        for at in 0..CLIENTS {
            self.actions_of(state, at, actions);
            if state.faults.broken > 0 {
                self.breaks_of(state, at, actions);
            }
            let mut clients = (0..CLIENTS).filter(|other| self.setup.sessions[*other] == at);
            let busy = clients.any(|client| state.clients[client].phase != Phase::Idle);
            if state.faults.ends > 0 && busy {
                actions.push(Action::EndSession(at));
            }
            if self.is_dying(state, at) {
                actions.push(Action::SessionEnds(at));
            }
        }
        actions.extend(state.late.iter().map(|letter| Action::HandIn(*letter)));
        if state.full {
            actions.push(Action::FreeSpace);
        } else if state.faults.full > 0 {
            actions.push(Action::RunFull);
        }
    }

    fn next_state(&self, before: &State, action: Action) -> Option<State> {
        let mut state = before.clone();
        self.act(&mut state, action);
        Some(state)
    }

    fn properties(&self) -> Vec<Property<Self>> {
        vec![
            Property::always(EXCLUSION, |model: &Self, state: &State| {
                let held = (0..CLIENTS).filter(|at| state.clients[*at].phase.holds());
                held.map(|at| model.setup.needs[at]).sum::<u8>() <= PERMIT_COUNT
            }),
            Property::always(ORDER, |_, state: &State| !state.tokens.disorder),
            Property::always(NOBODYS, |model: &Self, state: &State| {
                let mut keys = state.keys.iter().filter(|key| key.deleted.is_none());
                keys.all(|key| {
                    let client = state.clients[key.client];
                    let looks = matches!(client.phase, Phase::Unsure | Phase::Searching);
                    let known = looks && client.slot == key.slot;
                    let dying = key.session < model.session(state, key.client).number;
                    known || dying || client.phase.own() == Some(key.created)
                })
            }),
            Property::always(WAKES, |model: &Self, state: &State| model.comes_to_rest(state)),
        ]
    }
}

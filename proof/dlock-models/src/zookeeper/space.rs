//! The state space: the possible actions in each state, and the properties.

use stateright::{Model, Property};

use super::{Action, CLIENTS, Client, ENDS, FAULTS, NOBODYS, Phase, State, ZooKeeper};
use crate::check::{EXCLUSION, ORDER, Tokens, WAKES};

impl Model for ZooKeeper {
    type State = State;
    type Action = Action;

    fn init_states(&self) -> Vec<State> {
        let client = Client { claims: 0, session: 1, epoch: 0, wanted: false, phase: Phase::Idle };
        vec![State {
            nodes: Vec::new(),
            zxid: 0,
            clients: [client; CLIENTS],
            late: Vec::new(),
            dead: [0; CLIENTS],
            faults: FAULTS,
            ends: ENDS,
            tokens: Tokens::default(),
        }]
    }

    fn actions(&self, state: &State, actions: &mut Vec<Action>) {
        let faults = state.faults > 0;
        for (at, client) in state.clients.iter().enumerate() {
            actions.extend(self.own_step(state, at));
            match client.phase {
                Phase::Idle if client.claims < self.claims[at] => actions.push(Action::Want(at)),
                Phase::Asking if faults => actions.extend([
                    Action::CreateUnanswered(at),
                    Action::CreateLost(at),
                    Action::CreateLate(at),
                ]),
                Phase::Watching { before, armed, .. } if armed && !state.is_there(before.zxid) => {
                    // Also if its own node was deleted and the client was not notified of that.
                    actions.push(Action::Event(at));
                }
                Phase::Held { .. } => actions.push(Action::Leave(at)),
                _ => {}
            }
            if client.wanted && !matches!(client.phase, Phase::Held { .. } | Phase::Leaving { .. })
            {
                actions.push(Action::Cancel(at));
            }
            let waits = matches!(client.phase, Phase::Listed { .. } | Phase::Watching { .. });
            if faults && waits && client.phase.own().is_some_and(|own| state.is_there(own)) {
                actions.push(Action::Break(at));
            }
            if state.ends > 0 && client.phase != Phase::Idle {
                actions.push(Action::EndSession(at));
            }
            if state.dead[at] + 1 < client.session {
                actions.push(Action::SessionEnds(at));
            }
        }
        actions.extend(state.late.iter().map(|creation| Action::HandIn(*creation)));
    }

    fn next_state(&self, before: &State, action: Action) -> Option<State> {
        let mut state = before.clone();
        self.act(&mut state, action);
        Some(state)
    }

    fn properties(&self) -> Vec<Property<Self>> {
        vec![
            Property::always(EXCLUSION, |_, state: &State| {
                let held = |client: &&Client| matches!(client.phase, Phase::Held { .. });
                state.clients.iter().filter(held).count() < 2
            }),
            Property::always(ORDER, |_, state: &State| !state.tokens.disorder),
            Property::always(NOBODYS, |_, state: &State| {
                state.nodes.iter().all(|node| {
                    let client = state.clients[node.client];
                    let looks = matches!(client.phase, Phase::Unsure | Phase::Searching);
                    let known = looks && client.claims == node.claim;
                    known || client.phase.own() == Some(node.zxid) || node.session < client.session
                })
            }),
            Property::always(WAKES, |model: &Self, state: &State| model.comes_to_rest(state)),
            Property::sometimes("a node that is dying", |_, state: &State| {
                state.nodes.iter().any(|node| node.session < state.clients[node.client].session)
            }),
        ]
    }
}

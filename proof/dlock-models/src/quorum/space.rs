//! The state space: the possible actions in each state, and the properties.

use stateright::{Model, Property};

use super::{
    AHEAD, Action, CLIENTS, Client, Fault, Guard, Letter, NODES, NOTHING_LEFT, Node, Phase, Quorum,
    Rule, State, Vote,
};
use crate::check::{EXCLUSION, ORDER, Tokens, send};

impl Model for Quorum {
    type State = State;
    type Action = Action;

    fn init_states(&self) -> Vec<State> {
        vec![State {
            nodes: [Node::default(); NODES],
            clients: [Client::default(); CLIENTS],
            wire: Vec::new(),
            clock: 1,
            tokens: Tokens::default(),
            failed: false,
        }]
    }

    fn actions(&self, state: &State, actions: &mut Vec<Action>) {
        for (at, client) in state.clients.iter().enumerate() {
            match client.phase {
                Phase::Idle if client.tries < self.tries[at] => actions.push(Action::Begin(at)),
                Phase::Idle => {}
                Phase::Asking => {
                    if client.tokens().count() >= self.majority() {
                        actions.push(Action::Decide(at));
                    }
                    actions.push(Action::GiveUp(at));
                }
                Phase::Raising => {
                    let largest = client.tokens().max();
                    let lower = |vote| matches!(vote, Vote::Took(token) if Some(token) < largest);
                    let nodes = (0..NODES).filter(|node| lower(client.votes[*node]));
                    actions.extend(nodes.map(|node| Action::Raise(at, node)));
                    actions.push(Action::GiveUp(at));
                }
                Phase::Held => actions.push(Action::Unlock(at)),
            }
        }
        for letter in &state.wire {
            let waits = match *letter {
                Letter::Release { claim, node } => {
                    self.has(Rule::ReleaseBehind) && state.is_under_way(claim, node)
                }
                // The second release is sent only after the deadline.
                Letter::Again { claim, node } => {
                    self.has(Rule::Deadline) && state.is_late(claim, node)
                }
                Letter::Acquire { .. } | Letter::Late { .. } => false,
            };
            if !waits {
                actions.push(Action::Arrives(*letter));
            }
            match letter {
                Letter::Acquire { .. } if self.fault == Fault::Reconnect && !state.failed => {
                    actions.push(Action::Reconnect(*letter));
                }
                Letter::Late { .. } if self.has(Rule::Deadline) => {
                    actions.push(Action::Expire(*letter));
                }
                _ => {}
            }
        }
        for (at, node) in state.nodes.iter().enumerate() {
            if self.fault == Fault::DataLoss && !state.failed && node.last > 0 {
                actions.push(Action::LoseData(at));
            }
            match node.guard {
                Guard::Lost(live) if live == [false; CLIENTS] => actions.push(Action::Pass(at)),
                Guard::Passed(live) if live == [false; CLIENTS] => {
                    actions.push(Action::VoteAgain(at));
                }
                _ => {}
            }
        }
    }

    fn next_state(&self, before: &State, action: Action) -> Option<State> {
        let mut state = before.clone();
        match action {
            Action::Begin(at) => {
                let claim = self.claim(&state, at);
                let client = &mut state.clients[at];
                client.phase = Phase::Asking;
                let proposal = (state.clock + AHEAD[at]).max(client.seen + 1);
                for node in 0..NODES {
                    send(&mut state.wire, Letter::Acquire { claim, node, proposal });
                }
            }
            Action::Arrives(letter) => self.arrives(&mut state, letter),
            Action::Decide(at) => self.decide(&mut state, at),
            Action::Raise(at, node) => self.raise(&mut state, at, node),
            Action::GiveUp(at) | Action::Unlock(at) => self.end(&mut state, at),
            Action::LoseData(node) => {
                let guard = match self.has(Rule::RestartGuard) {
                    true => Guard::Lost(state.live()),
                    false => Guard::Votes,
                };
                state.nodes[node] = Node { guard, ..Node::default() };
                state.failed = true;
            }
            Action::Reconnect(letter) => {
                if let Letter::Acquire { claim, node, proposal } = letter {
                    send(&mut state.wire, Letter::Late { claim, node, proposal });
                }
                state.failed = true;
            }
            Action::Expire(letter) => state.wire.retain(|other| *other != letter),
            Action::Pass(node) => {
                state.nodes[node].guard = Guard::Passed(state.live());
                state.clock = state.clock.max(state.tokens.largest + 1);
            }
            Action::VoteAgain(node) => state.nodes[node].guard = Guard::Votes,
        }
        Some(state)
    }

    fn properties(&self) -> Vec<Property<Self>> {
        vec![
            Property::always(EXCLUSION, |_, state: &State| {
                state.clients.iter().filter(|client| client.phase == Phase::Held).count() < 2
            }),
            Property::always(ORDER, |_, state: &State| !state.tokens.disorder),
            Property::always(NOTHING_LEFT, |model: &Self, state: &State| {
                (0..NODES).all(|node| {
                    state.nodes[node].held.is_none_or(|(claim, _)| {
                        let live = state.clients[claim.client].phase != Phase::Idle
                            && model.claim(state, claim.client) == claim;
                        let released =
                            [Letter::Release { claim, node }, Letter::Again { claim, node }];
                        live || released.iter().any(|letter| state.wire.contains(letter))
                    })
                })
            }),
            Property::sometimes("a token written back", |_, state: &State| {
                state.clients.iter().any(|client| client.phase == Phase::Raising)
            }),
            Property::sometimes("held, and without a loss that is guarded", |_, state: &State| {
                let votes = state.nodes.iter().all(|node| node.guard == Guard::Votes);
                votes && state.clients.iter().any(|client| client.phase == Phase::Held)
            }),
        ]
    }
}

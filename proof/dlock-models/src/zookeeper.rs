//! Ephemeral sequential nodes of sessions, behind servers that may submit requests late.
//!
//! Models `dlock-zk/src/create.rs`, `epoch.rs`, `wait.rs`, `queue.rs` (the mutex), `own_watch.rs`
//! and `release.rs`.
//!
//! The answer to a creation may be missing. Then the node was created, or was not created, or a
//! follower keeps the request and submits it at any time before the session ends. The client ends
//! the epoch, searches for its claim, and continues with the result. A client reads the list of
//! nodes when its node is created; it sets the watch on the node before its own later. A session
//! ends for its client first, and for the servers later. The client retries with the same claim in
//! the next session. Another client may delete the node of a waiting claim.
//!
//! Left out: how a client detects in time that its session may have ended (see the model
//! `zookeeper_session`); readers and permits; directories; sequence numbers that overflow; and the
//! poll once per session timeout, so in this model only the watch can wake a waiter.

use stateright::{Model, Property};

use crate::check::{EXCLUSION, ORDER, Tokens, WAKES, breaks, holds};

/// The rules of the protocol. Each can be switched off.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Rule {
    /// A creation writes to the epoch, which is deleted after an unknown outcome.
    Epoch,
    /// The client searches for a cancelled claim too, and deletes its node.
    SeeThrough,
    /// The node that a search finds must belong to the current session.
    OwnerCheck,
    /// If the node to watch is already deleted, the client reads the queue again.
    Recheck,
    /// A client that is granted the lock because another node ended checks that its own node
    /// exists.
    OwnNode,
}

/// The rules, and the property that is violated without each of them.
pub const RULES: [(Rule, &str); 6] = [
    (Rule::Epoch, NOBODYS),
    (Rule::Epoch, WAKES),
    (Rule::SeeThrough, NOBODYS),
    (Rule::OwnerCheck, EXCLUSION),
    (Rule::Recheck, WAKES),
    (Rule::OwnNode, EXCLUSION),
];

const CLIENTS: usize = 3;
/// The number of unanswered creations and of nodes deleted by another client.
const FAULTS: u8 = 1;
/// The number of sessions that end.
const ENDS: u8 = 1;

const NOBODYS: &str = "no node of nobody";

struct ZooKeeper {
    /// The number of claims that each client makes.
    claims: [u8; CLIENTS],
    without: Option<Rule>,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct State {
    /// The queue: nodes in the order of their creation.
    nodes: Vec<Node>,
    zxid: u8,
    clients: [Client; CLIENTS],
    /// The creations that followers may still submit, sorted.
    late: Vec<Creation>,
    /// The last session of each client that has ended for the servers.
    dead: [u8; CLIENTS],
    faults: u8,
    ends: u8,
    tokens: Tokens<u8>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
struct Creation {
    client: usize,
    claim: u8,
    session: u8,
    epoch: u8,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct Node {
    client: usize,
    claim: u8,
    session: u8,
    zxid: u8,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct Client {
    claims: u8,
    session: u8,
    epoch: u8,
    /// Whether the caller still wants the lock.
    wanted: bool,
    phase: Phase,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Phase {
    Idle,
    Asking,
    Unsure,
    /// The client has ended the epoch.
    Searching,
    /// In the client's list, the node `before` is the one before its own.
    Listed {
        own: u8,
        before: Before,
    },
    /// `armed` if the node existed when the watch was set.
    Watching {
        own: u8,
        before: Before,
        armed: bool,
    },
    Held {
        own: u8,
    },
    Leaving {
        own: u8,
    },
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct Before {
    zxid: u8,
    /// Whether it is the only node before the client's own.
    only: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Action {
    Want(usize),
    Create(usize),
    CreateUnanswered(usize),
    CreateLost(usize),
    CreateLate(usize),
    HandIn(Creation),
    EndEpoch(usize),
    Search(usize),
    Watch(usize),
    Event(usize),
    /// The client is notified that its own node was deleted.
    OwnGone(usize),
    Cancel(usize),
    Leave(usize),
    Delete(usize),
    /// Another client deletes the node of a waiting claim.
    Break(usize),
    /// The session ends for its client.
    EndSession(usize),
    /// The session ends for the servers too.
    SessionEnds(usize),
}

impl ZooKeeper {
    fn has(&self, rule: Rule) -> bool {
        self.without != Some(rule)
    }

    fn search(&self, state: &mut State, at: usize) {
        let client = state.clients[at];
        let mine = |node: &&Node| {
            let here = node.session == client.session || !self.has(Rule::OwnerCheck);
            (node.client, node.claim) == (at, client.claims) && here
        };
        let found = state.nodes.iter().find(mine).map(|node| node.zxid);
        match (found, client.wanted) {
            (Some(own), true) => state.stand(at, own),
            (Some(own), false) => state.clients[at].phase = Phase::Leaving { own },
            (None, true) => state.clients[at].phase = Phase::Asking,
            (None, false) => state.finish(at),
        }
    }

    fn watch(&self, state: &mut State, at: usize) {
        let Phase::Listed { own, before } = state.clients[at].phase else { return };
        let armed = state.is_there(before.zxid);
        if armed || !self.has(Rule::Recheck) {
            state.clients[at].phase = Phase::Watching { own, before, armed };
        } else {
            self.gone(state, at, own, before);
        }
    }

    /// Handles the deletion of the node before the client's own.
    fn gone(&self, state: &mut State, at: usize, own: u8, before: Before) {
        if !before.only {
            state.stand(at, own);
        } else if state.is_there(own) || !self.has(Rule::OwnNode) {
            state.hold(at, own);
        } else {
            state.ask_anew(at);
        }
    }

    fn cancel(&self, state: &mut State, at: usize) {
        state.clients[at].wanted = false;
        match state.clients[at].phase {
            Phase::Listed { own, .. } | Phase::Watching { own, .. } => {
                state.clients[at].phase = Phase::Leaving { own };
            }
            Phase::Unsure | Phase::Searching if self.has(Rule::SeeThrough) => {}
            _ => state.finish(at),
        }
    }

    /// Whether the servers accept a late creation.
    fn takes(&self, state: &State, creation: Creation) -> bool {
        let client = state.clients[creation.client];
        // The epoch of a session that its client has abandoned was not ended.
        let open = creation.session != client.session || creation.epoch == client.epoch;
        creation.session > state.dead[creation.client] && (open || !self.has(Rule::Epoch))
    }

    /// Returns the next step of this client that needs no other client and no fault.
    fn own_step(&self, state: &State, at: usize) -> Option<Action> {
        match state.clients[at].phase {
            Phase::Idle | Phase::Held { .. } => None,
            Phase::Asking => Some(Action::Create(at)),
            Phase::Unsure => Some(Action::EndEpoch(at)),
            Phase::Searching => Some(Action::Search(at)),
            Phase::Listed { .. } => Some(Action::Watch(at)),
            Phase::Watching { own, .. } if !state.is_there(own) => Some(Action::OwnGone(at)),
            Phase::Watching { before, armed, .. } => {
                (armed && !state.is_there(before.zxid)).then_some(Action::Event(at))
            }
            Phase::Leaving { .. } => Some(Action::Delete(at)),
        }
    }

    /// Runs all pending steps without faults. Returns whether a client then holds the lock, or no
    /// client waits.
    fn comes_to_rest(&self, state: &State) -> bool {
        let mut state = state.clone();
        loop {
            let ended = (0..CLIENTS).find(|at| state.dead[*at] + 1 < state.clients[*at].session);
            let next = match ended {
                Some(at) => Some(Action::SessionEnds(at)),
                None => (0..CLIENTS).find_map(|at| self.own_step(&state, at)),
            };
            let Some(next) = next else { break };
            self.act(&mut state, next);
        }
        let waits = |client: &Client| matches!(client.phase, Phase::Watching { .. });
        let held = |client: &Client| matches!(client.phase, Phase::Held { .. });
        state.clients.iter().any(held) || !state.clients.iter().any(waits)
    }

    fn act(&self, state: &mut State, action: Action) {
        match action {
            Action::Want(at) => {
                (state.clients[at].phase, state.clients[at].wanted) = (Phase::Asking, true);
            }
            Action::Create(at) => {
                let own = state.create(state.creation(at));
                state.stand(at, own);
            }
            Action::CreateUnanswered(at) | Action::CreateLost(at) | Action::CreateLate(at) => {
                state.faults -= 1;
                let creation = state.creation(at);
                match action {
                    Action::CreateUnanswered(_) => _ = state.create(creation),
                    Action::CreateLate(_) => {
                        state.late.push(creation);
                        state.late.sort_unstable();
                    }
                    _ => {}
                }
                state.clients[at].phase = Phase::Unsure;
            }
            Action::HandIn(creation) => {
                state.late.retain(|other| *other != creation);
                if self.takes(state, creation) {
                    state.create(creation);
                }
            }
            Action::EndEpoch(at) => {
                state.clients[at].epoch += 1;
                state.clients[at].phase = Phase::Searching;
            }
            Action::Search(at) => self.search(state, at),
            Action::Watch(at) => self.watch(state, at),
            Action::Event(at) => {
                if let Phase::Watching { own, before, .. } = state.clients[at].phase {
                    self.gone(state, at, own, before);
                }
            }
            Action::OwnGone(at) => state.ask_anew(at),
            Action::Cancel(at) => self.cancel(state, at),
            Action::Leave(at) => {
                if let Phase::Held { own } = state.clients[at].phase {
                    state.clients[at].phase = Phase::Leaving { own };
                }
            }
            Action::Delete(at) => {
                if let Phase::Leaving { own } = state.clients[at].phase {
                    state.nodes.retain(|node| node.zxid != own);
                }
                state.finish(at);
            }
            Action::Break(at) => {
                state.faults -= 1;
                let own = state.clients[at].phase.own();
                state.nodes.retain(|node| Some(node.zxid) != own);
            }
            Action::EndSession(at) => {
                state.ends -= 1;
                let client = &mut state.clients[at];
                (client.session, client.epoch) = (client.session + 1, 0);
                match client.phase {
                    Phase::Held { .. } | Phase::Leaving { .. } => state.finish(at),
                    _ if client.wanted => client.phase = Phase::Asking,
                    _ => state.finish(at),
                }
            }
            Action::SessionEnds(at) => {
                state.dead[at] += 1;
                let dead = state.dead[at];
                state.nodes.retain(|node| node.client != at || node.session != dead);
            }
        }
    }
}

impl Phase {
    fn own(self) -> Option<u8> {
        match self {
            Self::Listed { own, .. }
            | Self::Watching { own, .. }
            | Self::Held { own }
            | Self::Leaving { own } => Some(own),
            _ => None,
        }
    }
}

impl State {
    fn creation(&self, at: usize) -> Creation {
        let client = self.clients[at];
        let (session, epoch) = (client.session, client.epoch);
        Creation { client: at, claim: client.claims, session, epoch }
    }

    fn create(&mut self, creation: Creation) -> u8 {
        self.zxid += 1;
        let Creation { client, claim, session, .. } = creation;
        self.nodes.push(Node { client, claim, session, zxid: self.zxid });
        self.zxid
    }

    fn is_there(&self, zxid: u8) -> bool {
        self.nodes.iter().any(|node| node.zxid == zxid)
    }

    /// Continues according to the position of the claim in the current list of nodes.
    fn stand(&mut self, at: usize, own: u8) {
        match self.nodes.iter().position(|node| node.zxid == own) {
            None => self.ask_anew(at),
            Some(0) => self.hold(at, own),
            Some(behind) => {
                let before = Before { zxid: self.nodes[behind - 1].zxid, only: behind == 1 };
                self.clients[at].phase = Phase::Listed { own, before };
            }
        }
    }

    fn hold(&mut self, at: usize, own: u8) {
        self.tokens.add(own);
        self.clients[at].phase = Phase::Held { own };
    }

    fn finish(&mut self, at: usize) {
        self.clients[at].phase = Phase::Idle;
        self.clients[at].wanted = false;
        self.clients[at].claims += 1;
    }

    /// The place in the queue is lost; the client makes another claim.
    fn ask_anew(&mut self, at: usize) {
        self.clients[at].phase = Phase::Asking;
        self.clients[at].claims += 1;
    }
}

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

/// Returns how the property is violated without the rule.
pub fn without(rule: Rule, property: &'static str) -> String {
    breaks("zookeeper", rule, ZooKeeper { claims: [1, 1, 1], without: Some(rule) }, property)
}

/// Visits every state of the protocol with all its rules. No property is violated.
///
/// # Panics
/// If a property is violated. The message contains the steps to the violation.
pub fn visit() {
    for (claims, least) in [([1, 1, 1], 190_000), ([2, 1, 0], 25_000)] {
        holds("zookeeper", ZooKeeper { claims, without: None }, least);
    }
}

//! A quorum of independent masters.
//!
//! Models `dlock-redis/src/quorum/vote.rs` and `member.rs`, with the scripts `acquire.lua` (an
//! acquire with a proposal), `quorum_token.lua` and `release.lua`; and `unanswered.rs` and
//! `deferred_releases.rs`.
//!
//! Two clients send requests to three masters, which answer independently. A client decides as soon
//! as a majority has answered, or cancels the attempt at any time. Requests that it has sent are
//! served anyway, and it repeats releases until they are answered. A client may lose one connection
//! to a master while an acquire is pending. It then resends the acquire over another connection,
//! and the first one may arrive at any time before its deadline, even after the release. The
//! clients' clocks differ. One master may lose its data once; after that it grants nothing for the
//! time of the longest lease. The clocks that proposals use differ by less than the margin between
//! the local deadline and the end of the lease. So an attempt that is still valid after that time
//! has a proposal above all tokens from before the loss.
//!
//! Left out: how a deadline is computed, which is the model `redis_late`; leases, whose expiry is
//! the same to a master as a late release; readers; and the wait between attempts, because a quorum
//! has no queue. Instead of wake-ups, the model checks that no claim stays behind without a client
//! that releases it.

use stateright::{Model, Property};

use crate::check::{EXCLUSION, ORDER, Tokens, breaks, holds, send};

const NODES: usize = 3;
const CLIENTS: usize = 2;
/// By how much each client's proposals are ahead of the time.
const AHEAD: [u8; CLIENTS] = [2, 0];

const NOTHING_LEFT: &str = "a released claim leaves nothing";

/// The rules of the protocol. Each can be switched off.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Rule {
    /// A token without a majority is written back until a majority has it.
    WriteBack,
    /// A decision needs more than half of the masters.
    Majority,
    /// A master that has lost its data grants nothing until all earlier leases have expired.
    RestartGuard,
    /// On each master, a release arrives after the acquire of its claim.
    ReleaseBehind,
    /// The next attempt has another id, so no release of the last attempt can end it.
    FreshId,
    /// A master accepts only proposals above its last token.
    AboveLast,
    /// A master refuses an acquire after its deadline.
    Deadline,
    /// If an acquire of a cancelled claim may still reach a master, the claim is cancelled again on
    /// that master after the deadline.
    SecondCancel,
}

/// The rules, and the property that is violated without each of them.
pub const RULES: [(Rule, &str); 8] = [
    (Rule::WriteBack, ORDER),
    (Rule::Majority, EXCLUSION),
    (Rule::RestartGuard, EXCLUSION),
    (Rule::ReleaseBehind, NOTHING_LEFT),
    (Rule::FreshId, EXCLUSION),
    (Rule::AboveLast, ORDER),
    (Rule::Deadline, NOTHING_LEFT),
    (Rule::SecondCancel, NOTHING_LEFT),
];

/// The kind of fault in a run. It occurs at most once.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Fault {
    None,
    /// A master loses its data.
    DataLoss,
    /// A client loses a connection.
    Reconnect,
}

struct Quorum {
    /// The number of attempts of each client.
    tries: [u8; CLIENTS],
    fault: Fault,
    without: Option<Rule>,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct State {
    nodes: [Node; NODES],
    clients: [Client; CLIENTS],
    /// The pending messages, sorted.
    wire: Vec<Letter>,
    /// The value from which proposals are counted.
    clock: u8,
    tokens: Tokens<u8>,
    failed: bool,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
struct Node {
    held: Option<(Claim, u8)>,
    last: u8,
    guard: Guard,
}

/// Whether a master grants, and why not.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
enum Guard {
    #[default]
    Votes,
    /// The master has lost its data. Attempts of these clients that began before the loss are still
    /// running.
    Lost([bool; CLIENTS]),
    /// The clocks of all clients have passed the tokens from before the loss. Attempts of these
    /// clients that began earlier are still running.
    Passed([bool; CLIENTS]),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
struct Claim {
    client: usize,
    id: u8,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
struct Client {
    tries: u8,
    seen: u8,
    phase: Phase,
    votes: [Vote; NODES],
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
enum Phase {
    #[default]
    Idle,
    Asking,
    Raising,
    Held,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
enum Vote {
    #[default]
    Open,
    Took(u8),
    Refused,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
enum Letter {
    Acquire {
        claim: Claim,
        node: usize,
        proposal: u8,
    },
    Release {
        claim: Claim,
        node: usize,
    },
    /// An acquire on a lost connection.
    Late {
        claim: Claim,
        node: usize,
        proposal: u8,
    },
    /// The second release of a claim.
    Again {
        claim: Claim,
        node: usize,
    },
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Action {
    Begin(usize),
    Arrives(Letter),
    Decide(usize),
    Raise(usize, usize),
    /// The attempt has failed, or took too long, or its caller has cancelled it.
    GiveUp(usize),
    Unlock(usize),
    LoseData(usize),
    /// A client loses the connection that carries this acquire.
    Reconnect(Letter),
    /// The deadline of an acquire passes.
    Expire(Letter),
    /// All grants from before the loss have ended, and the clocks have advanced.
    Pass(usize),
    /// The time of the longest lease has passed.
    VoteAgain(usize),
}

impl Quorum {
    fn has(&self, rule: Rule) -> bool {
        self.without != Some(rule)
    }

    fn majority(&self) -> usize {
        if self.has(Rule::Majority) { NODES / 2 + 1 } else { NODES / 2 }
    }

    fn claim(&self, state: &State, client: usize) -> Claim {
        let id = if self.has(Rule::FreshId) { state.clients[client].tries } else { 0 };
        Claim { client, id }
    }

    fn acquire(&self, node: &mut Node, claim: Claim, proposal: u8) -> Vote {
        match node.held {
            Some((holder, token)) if holder == claim => Vote::Took(token),
            Some(_) => Vote::Refused,
            None if node.guard != Guard::Votes => Vote::Refused,
            None => {
                let above = if self.has(Rule::AboveLast) { node.last + 1 } else { 0 };
                node.last = proposal.max(above);
                node.held = Some((claim, node.last));
                Vote::Took(node.last)
            }
        }
    }

    fn arrives(&self, state: &mut State, letter: Letter) {
        state.wire.retain(|other| *other != letter);
        match letter {
            Letter::Acquire { claim, node, proposal } => {
                let vote = self.acquire(&mut state.nodes[node], claim, proposal);
                if vote == Vote::Refused {
                    self.give_up_again(state, claim, node);
                }
                let current = self.claim(state, claim.client) == claim;
                let client = &mut state.clients[claim.client];
                if current && client.phase == Phase::Asking {
                    client.votes[node] = vote;
                }
            }
            Letter::Late { claim, node, proposal } => {
                self.acquire(&mut state.nodes[node], claim, proposal);
            }
            Letter::Release { claim, node } | Letter::Again { claim, node } => {
                let held = &mut state.nodes[node].held;
                if held.is_some_and(|(holder, _)| holder == claim) {
                    *held = None;
                }
                if matches!(letter, Letter::Release { .. }) {
                    self.give_up_again(state, claim, node);
                }
            }
        }
    }

    /// Decides by the token that a majority agrees on. Without one, starts to write the largest
    /// back.
    fn decide(&self, state: &mut State, at: usize) {
        let client = &mut state.clients[at];
        let agreed = client.tokens().find(|token| client.took(*token) >= self.majority());
        if let Some(token) = agreed {
            return state.hold(at, token);
        }
        let largest = client.tokens().max().unwrap_or_default();
        client.seen = client.seen.max(largest);
        if self.has(Rule::WriteBack) {
            client.phase = Phase::Raising;
        } else {
            state.hold(at, largest);
        }
    }

    fn raise(&self, state: &mut State, at: usize, node: usize) {
        let claim = self.claim(state, at);
        let client = &mut state.clients[at];
        let largest = client.tokens().max().unwrap_or_default();
        let node_of = &mut state.nodes[node];
        if node_of.held.is_some_and(|(holder, _)| holder == claim) {
            node_of.held = Some((claim, largest));
            node_of.last = node_of.last.max(largest);
            client.votes[node] = Vote::Took(largest);
        } else {
            client.votes[node] = Vote::Refused;
        }
        if client.took(largest) >= self.majority() {
            state.hold(at, largest);
        }
    }

    /// Cancels a claim again if it has ended here and an acquire of it may still arrive.
    fn give_up_again(&self, state: &mut State, claim: Claim, node: usize) {
        if self.has(Rule::SecondCancel) && state.is_late(claim, node) {
            send(&mut state.wire, Letter::Again { claim, node });
        }
    }

    /// Releases every grant that the attempt may have.
    fn end(&self, state: &mut State, at: usize) {
        let claim = self.claim(state, at);
        for node in 0..NODES {
            if state.clients[at].votes[node] != Vote::Refused {
                send(&mut state.wire, Letter::Release { claim, node });
            }
            if let Guard::Lost(live) | Guard::Passed(live) = &mut state.nodes[node].guard {
                live[at] = false;
            }
        }
        let client = &mut state.clients[at];
        client.tries += 1;
        (client.phase, client.votes) = (Phase::Idle, [Vote::Open; NODES]);
    }
}

impl State {
    fn live(&self) -> [bool; CLIENTS] {
        self.clients.map(|client| client.phase != Phase::Idle)
    }

    fn hold(&mut self, at: usize, token: u8) {
        self.tokens.add(token);
        let client = &mut self.clients[at];
        client.seen = client.seen.max(token);
        client.phase = Phase::Held;
    }

    /// Whether an acquire of this claim is pending on a lost connection.
    fn is_late(&self, claim: Claim, node: usize) -> bool {
        self.wire.iter().any(|letter| {
            matches!(letter, Letter::Late { claim: c, node: n, .. } if (*c, *n) == (claim, node))
        })
    }

    /// Whether an acquire of this claim to this master is still pending.
    fn is_under_way(&self, claim: Claim, node: usize) -> bool {
        self.wire.iter().any(|letter| {
            matches!(letter, Letter::Acquire { claim: c, node: n, .. } if (*c, *n) == (claim, node))
        })
    }
}

impl Client {
    fn tokens(&self) -> impl Iterator<Item = u8> {
        let votes = self.votes;
        votes.into_iter().filter_map(|vote| match vote {
            Vote::Took(token) => Some(token),
            _ => None,
        })
    }

    fn took(&self, token: u8) -> usize {
        self.tokens().filter(|other| *other == token).count()
    }
}

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

/// Returns how the property is violated without the rule.
pub fn without(rule: Rule, property: &'static str) -> String {
    let fault = match rule {
        Rule::RestartGuard => Fault::DataLoss,
        Rule::Deadline | Rule::SecondCancel => Fault::Reconnect,
        _ => Fault::None,
    };
    let twice = matches!(rule, Rule::FreshId | Rule::WriteBack);
    let tries = if twice { [2, 1] } else { [1, 1] };
    breaks("quorum", rule, Quorum { tries, fault, without: Some(rule) }, property)
}

/// Visits every state of the protocol with all its rules. No property is violated.
///
/// # Panics
/// If a property is violated. The message contains the steps to the violation.
pub fn visit() {
    for (tries, fault, least) in [
        ([1, 1], Fault::DataLoss, 100_000),
        ([1, 1], Fault::Reconnect, 20_000),
        ([2, 1], Fault::None, 1_000_000),
    ] {
        holds("quorum", Quorum { tries, fault, without: None }, least);
    }
}

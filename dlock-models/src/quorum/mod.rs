//! A majority of independent masters.
//!
//! Stands for `dlock-redis/src/quorum/vote.rs` and `member.rs`, with the scripts `quick.lua`
//! (an acquire with a proposal), `raise.lua` and `release.lua`; and for `unanswered.rs` and `later.rs`.
//!
//! Two clients ask three masters, each master in its own time. A client decides as soon as a
//! majority has answered, or gives the attempt up at any time; what it has sent is served anyway,
//! and releases are sent until they are answered. One connection of a client to a master may be lost
//! while an acquire is on its way: the client sends it again over another one, and the first may
//! arrive at any time before its deadline, behind the release as well. The clients' clocks differ. One master may lose
//! its data once; from then on it grants nothing for the time of the longest lease. The clocks that
//! proposals come from differ by less than the margin by which belief ends before a lease, so that
//! an attempt which is still believed then has a proposal above the tokens of before the loss.
//!
//! Left out: where a deadline comes from, which is the model `redis_late`; leases, which to a master are releases that come late; readers; the quiet waiting
//! between attempts, since a quorum has no queue: instead of wake-ups, it is checked that nothing
//! stays behind that nobody takes back.

mod space;

use crate::check::{EXCLUSION, ORDER, Tokens, breaks, holds, send};

const NODES: usize = 3;
const CLIENTS: usize = 2;
/// By how much each client's proposals are ahead of the time.
const AHEAD: [u8; CLIENTS] = [2, 0];

const NOTHING_LEFT: &str = "who leaves, leaves nothing";

/// The rules of the protocol, each of which can be taken out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Rule {
    /// A token that no majority took is written back until a majority has it.
    WriteBack,
    /// More than half of the masters.
    Majority,
    /// A master that has lost its data grants nothing before all leases of before have ended.
    RestartGuard,
    /// A release goes behind the acquire of its claim, on each master.
    ReleaseBehind,
    /// The next attempt has another id, which no release of the last one can meet.
    FreshId,
    /// A master takes no proposal that is not above its last token.
    AboveLast,
    /// A master refuses an acquire past its deadline.
    Deadline,
    /// A claim is given up once more on a master that an acquire of it may still reach, past its
    /// deadline.
    SecondCancel,
}

/// The rules, and what is violated without them.
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

/// What goes wrong, once.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Fault {
    None,
    /// A master loses its data.
    DataLoss,
    /// A client loses a connection.
    Reconnect,
}

struct Quorum {
    /// How many attempts each client makes.
    tries: [u8; CLIENTS],
    fault: Fault,
    without: Option<Rule>,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct State {
    nodes: [Node; NODES],
    clients: [Client; CLIENTS],
    /// What is on its way, sorted.
    wire: Vec<Letter>,
    /// Where proposals start.
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

/// Whether a master grants.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
enum Guard {
    #[default]
    Votes,
    /// It has lost its data, and attempts of these clients that began before go on.
    Lost([bool; CLIENTS]),
    /// The clocks of all clients are past the tokens of before, and attempts of these clients that
    /// began earlier go on.
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
    /// An acquire on a connection that was lost.
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
    /// The attempt has failed, or took too long, or its caller has gone.
    GiveUp(usize),
    Unlock(usize),
    LoseData(usize),
    /// A client loses the connection on which this acquire is.
    Reconnect(Letter),
    /// The deadline of an acquire goes by.
    Expire(Letter),
    /// All that was granted before the loss has ended, and clocks have moved on.
    Pass(usize),
    /// The time of the longest lease has gone by.
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

    /// What a majority of one mind says, or else what has to be written back.
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

    /// If an acquire of a claim that is over here may still arrive, it is given up once more.
    fn give_up_again(&self, state: &mut State, claim: Claim, node: usize) {
        if self.has(Rule::SecondCancel) && state.is_late(claim, node) {
            send(&mut state.wire, Letter::Again { claim, node });
        }
    }

    /// Releases all that the attempt may have got.
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

    /// Whether one is on its way over a connection that was lost.
    fn is_late(&self, claim: Claim, node: usize) -> bool {
        self.wire.iter().any(|letter| {
            matches!(letter, Letter::Late { claim: c, node: n, .. } if (*c, *n) == (claim, node))
        })
    }

    /// Whether an acquire of this claim is still on its way to this master.
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

/// How the property is violated without the rule.
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
/// Where one is, with the steps that lead there.
pub fn visit() {
    for (tries, fault, least) in [
        ([1, 1], Fault::DataLoss, 100_000),
        ([1, 1], Fault::Reconnect, 20_000),
        ([2, 1], Fault::None, 1_000_000),
    ] {
        holds("quorum", Quorum { tries, fault, without: None }, least);
    }
}

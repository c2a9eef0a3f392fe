//! A majority of independent masters.
//!
//! Stands for `dlock-redis/src/quorum/vote.rs` and `member.rs`, with the scripts `quick.lua`
//! (an acquire with a proposal), `raise.lua` and `release.lua`.
//!
//! Two clients ask three masters, each master in its own time. A client decides as soon as a
//! majority has answered, or gives the attempt up at any time; what it has sent is served anyway,
//! and releases are sent until they are answered. The clients' clocks differ. One master may lose
//! its data once; from then on it grants nothing for the time of the longest lease. The clocks that
//! proposals come from differ by less than the margin by which belief ends before a lease, so that
//! an attempt which is still believed then has a proposal above the tokens of before the loss.
//!
//! Left out: leases, which to a master are releases that come late; readers; the quiet waiting
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
}

/// The rules, and what is violated without them.
pub const RULES: [(Rule, &str); 6] = [
    (Rule::WriteBack, ORDER),
    (Rule::Majority, EXCLUSION),
    (Rule::RestartGuard, EXCLUSION),
    (Rule::ReleaseBehind, NOTHING_LEFT),
    (Rule::FreshId, EXCLUSION),
    (Rule::AboveLast, ORDER),
];

struct Quorum {
    /// How many attempts each client makes.
    tries: [u8; CLIENTS],
    /// Whether a master loses its data.
    loses: bool,
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
    crashed: bool,
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
    Acquire { claim: Claim, node: usize, proposal: u8 },
    Release { claim: Claim, node: usize },
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
                let current = self.claim(state, claim.client) == claim;
                let client = &mut state.clients[claim.client];
                if current && client.phase == Phase::Asking {
                    client.votes[node] = vote;
                }
            }
            Letter::Release { claim, node } => {
                let node = &mut state.nodes[node];
                if node.held.is_some_and(|(holder, _)| holder == claim) {
                    node.held = None;
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
    let loses = rule == Rule::RestartGuard;
    let twice = matches!(rule, Rule::FreshId | Rule::WriteBack);
    let tries = if twice { [2, 1] } else { [1, 1] };
    breaks("quorum", rule, Quorum { tries, loses, without: Some(rule) }, property)
}

/// Visits every state of the protocol with all its rules. No property is violated.
///
/// # Panics
/// Where one is, with the steps that lead there.
pub fn visit() {
    for (tries, loses, least) in [([1, 1], true, 100_000), ([2, 1], false, 1_000_000)] {
        holds("quorum", Quorum { tries, loses, without: None }, least);
    }
}

crate::check::tests!();

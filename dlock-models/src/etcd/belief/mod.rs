//! The local deadline of a session, between leaders that renew leases from memory.
//!
//! Models `dlock-etcd/src/beat.rs` and `session.rs`.
//!
//! # The server
//!
//! A lease is ended by the leader, by its own clock, from memory. A keepalive is not committed: the
//! member that receives it writes the header of the answer, and then asks the leader that it knows.
//! That leader renews the lease in its memory, even if a later leader was elected meanwhile and it
//! has not heard of it, because it was stopped or cut off. The model has no stopped members: any
//! member may make no step for any time, and then continue where it was.
//!
//! - A new leader gives the lease its whole TTL when it applies the empty entry that begins its
//!   term. If it lags behind, the empty entry of an earlier term counts, too.
//! - The term in a header is that of the last entry that the member has applied. A member that is
//!   brought up to date by a snapshot keeps the old one until it applies the next entry. The answer
//!   to a vote may be written just before the term of its own entry counts.
//! - A leader proposes to revoke a lease that it finds expired. The proposal may be slow, and be
//!   committed by a later leader, which has answered keepalives meanwhile.
//! - Before 3.4.38, 3.5.23 and 3.6.5, a keepalive that waits for the revocation of an expired lease
//!   is answered as if it had succeeded.
//!
//! # The client
//!
//! A *vote* is a request that is committed. A heartbeat is a keepalive, sent at `s` and answered
//! with a TTL and the term `t`, and two votes, both sent after `s`, the second after the answer to
//! the first. If one member answered both, and the second in a term of at most `t`, and the
//! session's deadline has not passed, then the session's next deadline is `s + TTL`.
//!
//! The reason: the header of the second answer is no less than the term of the first vote's entry,
//! since that entry was applied before. So this entry has a term of at most `t`, and the member
//! asked the leader of `t` or of a later term to renew. Each leader after the first vote's entry was
//! elected after `s`, so it gives the lease a TTL that ends after `s + TTL`. No leader before that
//! entry can propose a revocation any more. A leader between the two has found the lease expired
//! only if the session's deadline had passed before.
//!
//! An implementation may be stricter: wait for the keepalive's answer before it votes, compare all
//! terms for equality, or send all three requests to one member. The model covers these, since it
//! contains their runs. It shows that keepalive and votes need not go to the same member:
//! the term of the vote's entry is the same everywhere. The two votes need to, because each of two
//! members may have got a snapshot.
//!
//! # Sources
//!
//! The source of etcd 3.4.23, 3.5.1 and `main` of 2026-08: `EtcdServer.LeaseRenew`,
//! `revokeExpiredLeases`, `applyEntryNormal` and `applySnapshot` in `server/etcdserver`, `Renew` and
//! `Promote` in `server/lease/lessor.go`; its changelog. Tests on 3.4.23, 3.5.1 and 3.7.2: leaders
//! that are cut off answer keepalives for one to two seconds, and stopped leaders do so when they
//! continue.
//!
//! # What the mutants show
//!
//! | without | what happens |
//! |---|---|
//! | `Vote`, `SameTerm` | an old leader renews the lease in its memory; the new one ends it |
//! | `SecondVote` | the same, and the vote's answer shows the old term after a snapshot |
//! | `OneVoter` | the same, with snapshots at two members |
//! | `VotesLast` | the new leader was elected between the votes and the keepalive |
//! | `InTime` | a late revocation ends a lease that the new leader has renewed |
//! | `LeadersRevoke` | an old leader finds the lease expired that the new one has renewed: no rule of a client helps |
//!
//! The last rule is the server's. Before 3.4.31 and 3.5.13 it does not hold. Later versions check
//! once that the member is active before they revoke a list of leases, so it does not hold in a
//! short time after a stopped leader continues.
//!
//! Left out: elections that fail, and entries that are appended and not committed: the votes in
//! them prove nothing before they are committed. Clocks that drift are in the model `lease`. The
//! second client acquires the lock as soon as the revocation is committed.

mod space;

use crate::check::{EXCLUSION, breaks, holds};

const MEMBERS: usize = 3;
/// The number of ticks in a lease.
const TTL: u8 = 2;
/// The rules of the protocol. Each can be switched off.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Rule {
    /// A keepalive counts only if votes follow it.
    Vote,
    /// Two votes follow it, the second after the answer to the first.
    SecondVote,
    /// The last answer has a term of at most that of the keepalive's.
    SameTerm,
    /// The votes are sent after the keepalive.
    VotesLast,
    /// Both votes are answered by the same member.
    OneVoter,
    /// An answer that arrives after the session's deadline counts for nothing.
    InTime,
    /// Of the server: a member proposes to revoke a lease only as long as no later leader was
    /// elected.
    LeadersRevoke,
}

/// The rules, and the property that is violated without each of them.
pub const RULES: [(Rule, &str); 7] = [
    (Rule::Vote, EXCLUSION),
    (Rule::SecondVote, EXCLUSION),
    (Rule::SameTerm, EXCLUSION),
    (Rule::VotesLast, EXCLUSION),
    (Rule::OneVoter, EXCLUSION),
    (Rule::InTime, EXCLUSION),
    (Rule::LeadersRevoke, EXCLUSION),
];

struct Heartbeats {
    /// The last term.
    terms: u8,
    /// The number of heartbeats that the client begins.
    rounds: u8,
    /// Whether members are brought up to date by snapshots.
    snapshots: bool,
    without: Option<Rule>,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct State {
    /// The last term in which a leader was elected.
    term: u8,
    leader: usize,
    /// The committed entries, without those that all members have applied.
    log: Vec<Entry>,
    members: [Member; MEMBERS],
    revocation: Revocation,
    client: Client,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct Member {
    /// The term in which this member was elected, if it has applied no entry of a later one.
    leads: Option<u8>,
    /// The ticks that the lease has left in the memory of a leader.
    left: Option<u8>,
    /// The term in the headers of its answers.
    header: u8,
    /// The number of entries of the log that this member has applied.
    applied: usize,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct Entry {
    term: u8,
    content: Content,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Content {
    /// The first entry of a term.
    Empty,
    /// The vote for whose answer the client waits.
    Vote,
    /// A vote that the client has given up.
    Stray,
    Revoke,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Revocation {
    No,
    /// A leader has found the lease expired. Its proposal may be slow, and reach a later leader.
    Proposed,
    /// Another client acquires the lock at once.
    Committed,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct Client {
    /// The ticks until the session's deadline, which the last proven keepalive has set.
    left: u8,
    /// Whether the deadline has passed.
    lapsed: bool,
    rounds: u8,
    round: Option<Round>,
}

/// A heartbeat: a keepalive and its votes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct Round {
    /// The ticks until the deadline that this keepalive sets, if it is proven.
    left: u8,
    /// The term in the header of the keepalive's answer, once the member has written it.
    term: Option<u8>,
    /// Whether a leader has renewed the lease.
    renewed: bool,
    voter: Option<usize>,
    /// The number of votes that were answered.
    votes: u8,
    /// Whether a vote is under way.
    asked: bool,
    /// The term in the answer to the last vote.
    heard: u8,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Action {
    Tick,
    Elect(usize),
    Apply(usize),
    /// The vote is answered before its term is in the headers.
    ApplyEarly(usize),
    Snapshot(usize),
    /// A leader finds the lease expired, and proposes to revoke it.
    Expire(usize),
    Revoke,
    /// The client begins a heartbeat.
    Keepalive,
    /// This member writes the header of the answer to the keepalive.
    Read(usize),
    /// This member renews the lease in its memory.
    Renew(usize),
    /// The client sends a vote to this member, and it is committed.
    Vote(usize),
}

impl Heartbeats {
    fn has(&self, rule: Rule) -> bool {
        self.without != Some(rule)
    }

    fn votes(&self) -> u8 {
        match self.without {
            Some(Rule::Vote) => 0,
            Some(Rule::SecondVote) => 1,
            _ => 2,
        }
    }

    /// Whether this member may find the lease expired, and propose to revoke it.
    fn may_revoke(&self, state: &State, at: usize) -> bool {
        let member = state.members[at];
        let leads = member.leads == Some(state.term) || !self.has(Rule::LeadersRevoke);
        leads && member.left == Some(0) && state.revocation == Revocation::No
    }

    fn may_renew(&self, state: &State, at: usize) -> bool {
        let (Some(round), member) = (state.client.round, state.members[at]) else { return false };
        let knows = round.term.is_some() && member.leads >= round.term;
        // A leader that has waited for the revocation of an expired lease may answer yes.
        let alive = member.left.is_some_and(|left| left > 0 || state.has_revoked(at));
        !round.renewed && knows && alive
    }

    fn may_vote(&self, state: &State, at: usize) -> bool {
        let Some(round) = state.client.round else { return false };
        let same = round.voter.is_none_or(|voter| voter == at) || !self.has(Rule::OneVoter);
        same && !round.asked && round.votes < self.votes()
    }

    /// A member applies the next entry. `early` if it answers before the entry's term is in its
    /// headers.
    fn apply(&self, state: &mut State, at: usize, early: bool) {
        let entry = state.log[state.members[at].applied];
        let revoked = state.has_revoked(at);
        let member = &mut state.members[at];
        member.applied += 1;
        if member.leads.is_some_and(|term| term < entry.term) {
            (member.leads, member.left) = (None, None);
        }
        if entry.content == Content::Empty && member.leads.is_some() {
            member.left = (!revoked).then_some(TTL);
        }
        let header = if early { member.header } else { entry.term };
        member.header = entry.term;
        if state.waits_for(at, entry) {
            self.hear(state, header);
        }
        state.trim();
    }

    /// The client hears the answer to its vote.
    fn hear(&self, state: &mut State, term: u8) {
        let Some(round) = &mut state.client.round else { return };
        round.asked = false;
        round.votes += 1;
        round.heard = term;
        self.count(state);
    }

    /// Ends a complete heartbeat.
    fn count(&self, state: &mut State) {
        let client = &mut state.client;
        if let Some(round) = client.round.filter(|round| round.renewed)
            && round.votes == self.votes()
        {
            client.round = None;
            let proven = Some(round.heard) <= round.term || !self.has(Rule::SameTerm);
            if proven && (!client.lapsed || !self.has(Rule::InTime)) {
                client.left = client.left.max(round.left);
            }
        }
    }
}

impl State {
    /// Whether the member has applied the revocation.
    fn has_revoked(&self, at: usize) -> bool {
        let rest = &self.log[self.members[at].applied..];
        let pending = rest.iter().any(|entry| entry.content == Content::Revoke);
        self.revocation == Revocation::Committed && !pending
    }

    /// Whether the client waits for this member's answer to this entry.
    fn waits_for(&self, at: usize, entry: Entry) -> bool {
        let here = self.client.round.is_some_and(|round| round.voter == Some(at));
        entry.content == Content::Vote && here
    }

    fn commit(&mut self, content: Content) {
        self.log.push(Entry { term: self.term, content });
    }

    fn snapshot(&mut self, at: usize) {
        self.members[at].applied = self.members[self.leader].applied;
        (self.members[at].leads, self.members[at].left) = (None, None);
        self.trim();
    }

    /// Forgets the entries that all members have applied.
    fn trim(&mut self) {
        let done = self.members.iter().map(|member| member.applied).min().unwrap_or_default();
        self.log.drain(..done);
        for member in &mut self.members {
            member.applied -= done;
        }
    }

    fn tick(&mut self) {
        for left in self.members.iter_mut().filter_map(|member| member.left.as_mut()) {
            *left = left.saturating_sub(1);
        }
        let client = &mut self.client;
        client.left = client.left.saturating_sub(1);
        client.lapsed |= client.left == 0;
        if let Some(round) = &mut client.round {
            round.left = round.left.saturating_sub(1);
        }
    }

    /// Begins a heartbeat. The client no longer waits for earlier votes.
    fn begin(&mut self) {
        for entry in self.log.iter_mut().filter(|entry| entry.content == Content::Vote) {
            entry.content = Content::Stray;
        }
        self.client.rounds -= 1;
        self.client.round = Some(Round {
            left: TTL,
            term: None,
            renewed: false,
            voter: None,
            votes: 0,
            asked: false,
            heard: 0,
        });
    }
}

/// Returns how the property is violated without the rule.
pub fn without(rule: Rule, property: &'static str) -> String {
    let model = Heartbeats { terms: 2, rounds: 1, snapshots: true, without: Some(rule) };
    breaks("etcd::belief", rule, model, property)
}

/// Visits every state of the protocol with all its rules. No property is violated.
///
/// # Panics
/// If a property is violated. The message contains the steps to the violation.
pub fn visit() {
    for (terms, rounds, snapshots, least) in [(2, 2, true, 370_000), (3, 1, false, 560_000)] {
        holds("etcd::belief", Heartbeats { terms, rounds, snapshots, without: None }, least);
    }
}

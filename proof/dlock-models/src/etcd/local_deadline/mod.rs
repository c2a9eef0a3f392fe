//! The local deadline of a claim, between leaders that renew and end leases from memory.
//!
//! Models `dlock-etcd/src/proof.rs`, `heartbeat.rs`, `lease.rs` and `session.rs`.
//!
//! # The server
//!
//! The leader ends a lease, by its own clock, from memory. A keepalive is not committed: the member
//! that receives it writes the header of the answer, and then asks the leader that it knows. That
//! leader renews the lease in its memory, even if a later leader was elected meanwhile and it has
//! not heard of it, because it was stopped or cut off. The model has no stopped members: any member
//! may make no step for any time, and then continue where it was.
//!
//! - A new leader gives each lease its whole TTL when it applies the empty entry that begins its
//!   term. If it lags behind, the empty entry of an earlier term counts, too.
//! - A grant is a committed entry. A leader gives the lease its whole TTL when it applies the grant.
//!   A leader of an earlier term than the grant's never knows the lease: it stops leading before it
//!   applies the entry.
//! - The term in a header is that of the last entry that the member has applied. A member that is
//!   brought up to date by a snapshot keeps the old one until it applies the next entry. The answer
//!   to a vote may be written just before the term of its own entry counts, and any answer after
//!   later entries were applied.
//! - A member that assumes that it leads proposes to revoke a lease that is expired in its memory. If it
//!   does not lead any more, it forwards the proposal to the leader. The proposal may be slow, and
//!   be committed in any later term.
//! - A revocation deletes the keys that are attached to the lease at that position in the log.
//! - Before 3.4.38, 3.5.23 and 3.6.5, a keepalive that waits for the revocation of an expired lease
//!   is answered as if it had succeeded.
//!
//! So an old leader ends leases that its successor has renewed, and no version prevents it. Since
//! 3.4.34, 3.5.16 and 3.6, a member skips the check that it still leads if its last tick is recent,
//! and this is so right after a stopped member continues. The check and the proposal are two steps
//! in all versions.
//!
//! # The client
//!
//! A *vote* is a request that is committed. A *beat* at the time `s` shows that the servers keep a
//! lease until `s + TTL`. There are two kinds:
//!
//! - The grant of a lease that was requested at `s`.
//! - A heartbeat: a keepalive sent at `s` and answered with a TTL and the term `t`, and two votes,
//!   the first sent after this answer, the second after the answer to the first. One member answers
//!   both, in terms of at most `t`. The lease was granted in `t`.
//!
//! After an election, a header shows a later term than the one of the grant. Then the client
//! requests a new lease, and renews the old one no more. It writes the key of the claim again, with
//! the new lease, if the key is as the client has left it. The claim's deadline is that of the old
//! lease until this write is answered, and that of the new one from then on. An answer that arrives
//! after the claim's deadline counts for nothing.
//!
//! The term of a grant is `t` if the client has seen `t` in a header before it requested the lease,
//! and the votes of a heartbeat show no later term.
//!
//! # Why it is sound
//!
//! A leader of an earlier term than the grant's can't end the lease. All later ones, and the leader
//! of the grant's term, give it the whole TTL when they apply the grant, or later. So the grant is
//! a beat, whatever its term.
//!
//! Now consider a heartbeat. The client saw `t` in a header before it requested the lease, so an
//! entry of the term `t` precedes the grant, and the grant's term is `t` or later. The header of the
//! second vote's answer is no less than the term of the first vote's entry, since that entry was
//! applied before. So this entry has a term of at most `t`. It follows the grant in the log. So the
//! grant's term is `t`, and no leader of a later term was elected before the first vote was sent.
//! Before that, the keepalive was answered by the leader of `t` or of a later term. So the leader of
//! `t` has renewed the lease in its memory, after `s`. It is the only leader that could have found
//! the lease expired. Each later one was elected after `s`, so it gives the lease a TTL that ends
//! after `s + TTL`.
//!
//! A proposal from before the beat is no danger, either: a leader makes it only after the deadline
//! that the beats before have set. The write of the key is ordered with all revocations. Before it,
//! only a revocation of the old lease deletes the key, after it only one of the new lease, and the
//! deadline of the new lease is no earlier than that of the old one.
//!
//! An implementation may be stricter: compare all terms for equality, or send all requests to one
//! member. The model covers these, since it contains their runs. It shows that keepalive and votes need not go to the same member. The two
//! votes need to, because each of two members may have got a snapshot. A term that is earlier than
//! the grant's does no harm: no heartbeat counts then.
//!
//! In the model, a request is committed as soon as it is sent: a delay would only shorten the time
//! until the deadline that its answer sets. For the same reason, answers arrive at once. Only the
//! grant's answer may be written late: a vote's answer that is written late shows a later term at
//! most, and then the heartbeat does not count.
//!
//! # Sources
//!
//! The source of etcd 3.4.23, 3.5.1 and `main` of 2026-08: `EtcdServer.LeaseRenew`,
//! `revokeExpiredLeases`, `ensureLeadership`, `applyEntryNormal` and `applySnapshot` in
//! `server/etcdserver`, `Grant`, `Renew`, `Promote`, `Demote` and `Revoke` in
//! `server/lease/lessor.go`; its changelog. Tests on 3.4.23, 3.5.1 and 3.7.2: leaders that are cut
//! off answer keepalives for one to two seconds, and stopped leaders do so when they continue. On
//! 3.7.2, an old leader that continued after `SIGSTOP` ended leases that its successor had renewed
//! in 13 of 45 tries (three clusters at a time on two cores).
//!
//! # What the mutants show
//!
//! | without | what happens |
//! |---|---|
//! | `Vote`, `SameTerm` | only one leader renews the lease in its memory, and another one ends it |
//! | `SecondVote` | the same, and the vote's answer shows the old term after a snapshot |
//! | `OneVoter` | the same, with snapshots at two members |
//! | `VotesLast` | a leader is elected after the votes and renews the lease; the old one ends it |
//! | `InTime` | the revocation is committed, and the keepalive that has waited for it is answered |
//! | `OwnTerm` | the new leader renews the old lease; the old leader ends it |
//! | `GrantTerm` | the grant's answer is written late and shows the next term; the leader of the grant's term ends the lease that the next one has renewed |
//! | `Attached` | an old leader ends the old lease, to which the key is still attached |
//!
//! Left out: elections that fail, and entries that are appended and not committed: the votes in
//! them prove nothing before they are committed. Checkpoints of leases, with which a new leader does
//! not give the whole TTL: they are for leases of more than five minutes, and off by default. Clocks that drift are in the model `lease`. The
//! second client acquires the lock as soon as the key is deleted. The next change of the lease is
//! like the first one; a write of the key that was given up has no effect after a later one, since
//! it compares the key's revision.

mod steps;

use stateright::{Model, Property};

use crate::check::{EXCLUSION, breaks, holds};

const MEMBERS: usize = 3;
/// The number of ticks in a lease.
const TTL: u8 = 2;
const LEASES: usize = 2;
/// The lease of the session at first. It was granted in term 1, and the claim's key is attached to
/// it.
const OLD: usize = 0;
/// The lease that replaces it.
const NEW: usize = 1;

/// The rules of the protocol. Each can be switched off.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Rule {
    /// A keepalive counts only if votes follow it.
    Vote,
    /// Two votes follow it, the second after the answer to the first.
    SecondVote,
    /// The votes are answered in terms of at most that of the keepalive's answer.
    SameTerm,
    /// The votes are sent after the answer to the keepalive.
    VotesLast,
    /// Both votes are answered by the same member.
    OneVoter,
    /// An answer that arrives after the claim's deadline counts for nothing.
    InTime,
    /// A keepalive counts only if its term is the one in which the lease was granted.
    OwnTerm,
    /// This term is known from a header that the client has seen before it requested the lease, not
    /// from the answer to the request.
    GrantTerm,
    /// The beats of a new lease count for a claim after its key was attached to the lease.
    Attached,
}

/// The rules, and the property that is violated without each of them.
pub const RULES: [(Rule, &str); 9] = [
    (Rule::Vote, EXCLUSION),
    (Rule::SecondVote, EXCLUSION),
    (Rule::SameTerm, EXCLUSION),
    (Rule::VotesLast, EXCLUSION),
    (Rule::OneVoter, EXCLUSION),
    (Rule::InTime, EXCLUSION),
    (Rule::OwnTerm, EXCLUSION),
    (Rule::GrantTerm, EXCLUSION),
    (Rule::Attached, EXCLUSION),
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
    revocations: [Revocation; LEASES],
    /// Whether the claim's key was deleted. Another client acquires the lock at once.
    deleted: bool,
    client: Client,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct Member {
    /// The term in which this member was elected, if it has applied no entry of a later one.
    leads: Option<u8>,
    /// The ticks that each lease has left in the memory of a leader.
    left: [Option<u8>; LEASES],
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
    /// Grants the new lease.
    Grant,
    Revoke(usize),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Revocation {
    No,
    /// A member has found the lease expired. Its proposal may be slow, and reach a later leader.
    Proposed,
    Committed,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct Client {
    /// The ticks until each lease's deadline, which its last beat has set.
    left: [u8; LEASES],
    /// Whether the claim's deadline has passed.
    lapsed: bool,
    /// The lease that the client renews.
    lease: usize,
    /// The term in which this lease was granted, as far as the client knows.
    term: Option<u8>,
    /// The lease to which the claim's key is attached.
    claim: usize,
    rounds: u8,
    round: Option<Round>,
}

/// A heartbeat: a keepalive and its votes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct Round {
    /// The ticks until the deadline that this keepalive sets, if it is proven.
    left: u8,
    /// The term in the header of the keepalive's answer.
    term: u8,
    /// Whether a leader has renewed the lease, and the client has the answer.
    renewed: bool,
    voter: Option<usize>,
    /// The number of votes that were answered.
    votes: u8,
    /// Whether a vote is under way.
    asked: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Action {
    Tick,
    Elect(usize),
    Apply(usize),
    /// The vote is answered before its term is in the headers.
    ApplyEarly(usize),
    Snapshot(usize),
    /// A member that assumes that it leads finds this lease expired, and proposes to revoke it.
    Expire(usize),
    /// The revocation of this lease is committed.
    Revoke(usize),
    /// The client begins a heartbeat. This member gets the keepalive, and writes the header of the
    /// answer.
    Keepalive(usize),
    /// This member renews the lease in its memory, and the keepalive is answered.
    Renew(usize),
    /// The client sends a vote to this member, and it is committed.
    Vote(usize),
    /// The client sees a later term in a header of this member, and requests a new lease, which is
    /// granted.
    Change(usize),
    /// Without [`Rule::GrantTerm`]: the client takes the new lease's term from this member's answer
    /// to the request.
    Trust(usize),
    /// The claim's key is written with the new lease, and the write is answered.
    Attach,
}

impl Model for Heartbeats {
    type State = State;
    type Action = Action;

    fn init_states(&self) -> Vec<State> {
        let left = [None; LEASES];
        let mut members = [Member { leads: None, left, header: 1, applied: 0 }; MEMBERS];
        (members[0].leads, members[0].left[OLD]) = (Some(1), Some(TTL));
        vec![State {
            term: 1,
            leader: 0,
            log: Vec::new(),
            members,
            revocations: [Revocation::No; LEASES],
            deleted: false,
            client: Client {
                left: [TTL, 0],
                lapsed: false,
                lease: OLD,
                term: Some(1),
                claim: OLD,
                rounds: self.rounds,
                round: None,
            },
        }]
    }

    fn actions(&self, state: &State, actions: &mut Vec<Action>) {
        let client = &state.client;
        if client.lapsed && self.has(Rule::InTime) {
            // No claim is left that could be wrong.
            return;
        }
        actions.push(Action::Tick);
        for lease in [OLD, NEW] {
            if state.may_expire(lease) {
                actions.push(Action::Expire(lease));
            }
            if state.revocations[lease] == Revocation::Proposed {
                actions.push(Action::Revoke(lease));
            }
        }
        if state.may_attach() {
            actions.push(Action::Attach);
        }
        for (at, member) in state.members.iter().enumerate() {
            if state.term < self.terms && at <= usize::from(state.term) {
                actions.push(Action::Elect(at));
            }
            if let Some(entry) = state.log.get(member.applied) {
                actions.push(Action::Apply(at));
                if state.waits_for(at, *entry) && member.header != entry.term {
                    actions.push(Action::ApplyEarly(at));
                }
            }
            if self.snapshots && member.applied < state.members[state.leader].applied {
                actions.push(Action::Snapshot(at));
            }
            if self.may_keep(state, at) {
                actions.push(Action::Keepalive(at));
            }
            if self.may_renew(state, at) {
                actions.push(Action::Renew(at));
            }
            if self.may_vote(state, at) {
                actions.push(Action::Vote(at));
            }
            if client.lease == OLD && client.term < Some(member.header) {
                actions.push(Action::Change(at));
            }
            if self.may_trust(state, at) {
                actions.push(Action::Trust(at));
            }
        }
    }

    fn next_state(&self, before: &State, action: Action) -> Option<State> {
        let mut state = before.clone();
        match action {
            Action::Tick => self.tick(&mut state),
            Action::Elect(at) => {
                (state.term, state.leader) = (state.term + 1, at);
                let member = &mut state.members[at];
                (member.leads, member.left) = (Some(state.term), [None; LEASES]);
                state.commit(Content::Empty);
            }
            Action::Apply(at) => self.apply(&mut state, at, false),
            Action::ApplyEarly(at) => self.apply(&mut state, at, true),
            Action::Snapshot(at) => state.snapshot(at),
            Action::Expire(lease) => state.revocations[lease] = Revocation::Proposed,
            Action::Revoke(lease) => state.revoke(lease),
            Action::Keepalive(at) => state.begin(state.members[at].header),
            Action::Renew(at) => {
                let lease = state.client.lease;
                if !state.has_revoked(at, lease) {
                    state.members[at].left[lease] = Some(TTL);
                }
                state.client.round.as_mut()?.renewed = true;
                self.count(&mut state);
            }
            Action::Vote(at) => {
                state.commit(Content::Vote);
                let round = state.client.round.as_mut()?;
                (round.voter, round.asked) = (Some(at), true);
            }
            Action::Change(at) => {
                let seen = state.members[at].header;
                self.change(&mut state, seen);
            }
            Action::Trust(at) => state.client.term = Some(state.members[at].header),
            Action::Attach => state.attach(),
        }
        Some(state)
    }

    fn properties(&self) -> Vec<Property<Self>> {
        vec![
            Property::always(EXCLUSION, |model: &Self, state: &State| {
                model.deadline(&state.client) == 0 || !state.deleted
            }),
            Property::sometimes("a session outlives an election", |_, state: &State| {
                let client = &state.client;
                // The deadline of the old lease has passed since the new one was granted. So a
                // heartbeat has set the latter's.
                client.claim == NEW && client.left == [0, TTL] && !state.deleted
            }),
        ]
    }
}

/// Returns how the property is violated without the rule.
pub fn without(rule: Rule, property: &'static str) -> String {
    // A new lease is granted in term 2 at the earliest. Its term is mistaken for the next one.
    let (terms, snapshots) = if rule == Rule::GrantTerm { (3, false) } else { (2, true) };
    let model = Heartbeats { terms, rounds: 1, snapshots, without: Some(rule) };
    breaks("etcd::local_deadline", rule, model, property)
}

/// Visits every state of the protocol with all its rules. No property is violated.
///
/// # Panics
/// If a property is violated. The message contains the steps to the violation.
pub fn visit() {
    for (terms, rounds, snapshots, least) in [(2, 2, true, 340_000), (3, 1, true, 1_200_000)] {
        holds(
            "etcd::local_deadline",
            Heartbeats { terms, rounds, snapshots, without: None },
            least,
        );
    }
}

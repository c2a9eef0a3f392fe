//! The steps of members and client.

use super::{
    Client, Content, Entry, Heartbeats, LEASES, NEW, OLD, Revocation, Round, Rule, State, TTL,
};

impl Heartbeats {
    pub(super) fn has(&self, rule: Rule) -> bool {
        self.without != Some(rule)
    }

    fn votes(&self) -> u8 {
        match self.without {
            Some(Rule::Vote) => 0,
            Some(Rule::SecondVote) => 1,
            _ => 2,
        }
    }

    /// The ticks until the claim's deadline.
    pub(super) fn deadline(&self, client: &Client) -> u8 {
        client.left[if self.has(Rule::Attached) { client.claim } else { client.lease }]
    }

    /// Whether the client may send a keepalive to this member. One that can't count does no harm: it
    /// prolongs a lease in the memory of a leader. So the model leaves it out.
    pub(super) fn may_keep(&self, state: &State, at: usize) -> bool {
        let client = &state.client;
        let own = Some(state.members[at].header) == client.term || !self.has(Rule::OwnTerm);
        own && client.rounds > 0
    }

    pub(super) fn may_renew(&self, state: &State, at: usize) -> bool {
        let (Some(round), member) = (state.client.round, state.members[at]) else { return false };
        let lease = state.client.lease;
        let knows = member.leads >= Some(round.term);
        // A leader that has waited for the revocation of an expired lease may answer yes.
        let alive = member.left[lease].is_some_and(|left| left > 0 || state.has_revoked(at, lease));
        !round.renewed && knows && alive
    }

    pub(super) fn may_vote(&self, state: &State, at: usize) -> bool {
        let Some(round) = state.client.round else { return false };
        let same = round.voter.is_none_or(|voter| voter == at) || !self.has(Rule::OneVoter);
        let last = round.renewed || !self.has(Rule::VotesLast);
        same && last && !round.asked && round.votes < self.votes()
    }

    /// Whether the client may take the new lease's term from this member's answer.
    pub(super) fn may_trust(&self, state: &State, at: usize) -> bool {
        state.client.term.is_none() && state.has_granted(at)
    }

    /// A member applies the next entry. `early` if it answers before the entry's term is in its
    /// headers.
    pub(super) fn apply(&self, state: &mut State, at: usize, early: bool) {
        let entry = state.log[state.members[at].applied];
        state.members[at].applied += 1;
        let mut member = state.members[at];
        if member.leads.is_some_and(|term| term < entry.term) {
            (member.leads, member.left) = (None, [None; LEASES]);
        }
        for (lease, left) in member.left.iter_mut().enumerate() {
            let begins = match entry.content {
                Content::Empty => true,
                // A leader that has not begun its term yet keeps the lease for longer.
                Content::Grant => lease == NEW,
                _ => false,
            };
            if begins && member.leads.is_some() {
                *left = state.knows(at, lease).then_some(TTL);
            }
        }
        let header = if early { member.header } else { entry.term };
        member.header = entry.term;
        state.members[at] = member;
        if state.waits_for(at, entry) {
            self.hear(state, header);
        }
        state.trim();
    }

    /// The client hears the answer to its vote.
    fn hear(&self, state: &mut State, term: u8) {
        let Some(round) = &mut state.client.round else { return };
        if term > round.term && self.has(Rule::SameTerm) {
            state.client.round = None;
            return;
        }
        round.asked = false;
        round.votes += 1;
        self.count(state);
    }

    /// Ends a complete heartbeat.
    pub(super) fn count(&self, state: &mut State) {
        let client = &mut state.client;
        if let Some(round) = client.round.filter(|round| round.renewed)
            && round.votes == self.votes()
        {
            client.round = None;
            if !client.lapsed || !self.has(Rule::InTime) {
                let left = &mut client.left[client.lease];
                *left = round.left.max(*left);
            }
        }
    }

    /// The client requests a new lease, and gives up its heartbeat.
    pub(super) fn change(&self, state: &mut State, seen: u8) {
        state.give_up();
        state.commit(Content::Grant);
        let client = &mut state.client;
        client.lease = NEW;
        client.left[NEW] = TTL;
        client.term = self.has(Rule::GrantTerm).then_some(seen);
    }

    pub(super) fn tick(&self, state: &mut State) {
        let members = state.members.iter_mut();
        let lefts = members.flat_map(|member| member.left.iter_mut().flatten());
        let client = &mut state.client;
        let round = client.round.iter_mut().map(|round| &mut round.left);
        for left in lefts.chain(&mut client.left).chain(round) {
            *left = left.saturating_sub(1);
        }
        client.lapsed |= self.deadline(client) == 0;
    }
}

impl State {
    /// Whether the member has applied this entry, if it was committed.
    fn has_applied(&self, at: usize, content: Content) -> bool {
        let mut rest = self.log[self.members[at].applied..].iter();
        rest.all(|entry| entry.content != content)
    }

    /// Whether the member has applied the grant of the new lease.
    fn has_granted(&self, at: usize) -> bool {
        self.client.lease == NEW && self.has_applied(at, Content::Grant)
    }

    /// Whether the member has applied the revocation.
    pub(super) fn has_revoked(&self, at: usize, lease: usize) -> bool {
        let committed = self.revocations[lease] == Revocation::Committed;
        committed && self.has_applied(at, Content::Revoke(lease))
    }

    /// Whether this member knows a lease to which the claim's key is or may be attached.
    fn knows(&self, at: usize, lease: usize) -> bool {
        let granted = lease == OLD || self.has_granted(at);
        lease >= self.client.claim && granted && !self.has_revoked(at, lease)
    }

    /// Whether some member may propose to revoke this lease. It may be an old leader, and its
    /// proposal is forwarded to the leader of the last term.
    pub(super) fn may_expire(&self, lease: usize) -> bool {
        let expired = self.members.iter().any(|member| member.left[lease] == Some(0));
        expired && self.revocations[lease] == Revocation::No
    }

    pub(super) fn may_attach(&self) -> bool {
        let client = &self.client;
        let there = self.revocations[NEW] != Revocation::Committed;
        client.lease == NEW && client.claim == OLD && there && !self.deleted
    }

    /// Whether the client waits for this member's answer to this entry.
    pub(super) fn waits_for(&self, at: usize, entry: Entry) -> bool {
        let here = self.client.round.is_some_and(|round| round.voter == Some(at));
        entry.content == Content::Vote && here
    }

    /// Attaches the key to the new lease. Nothing depends on the old lease any more.
    pub(super) fn attach(&mut self) {
        self.client.claim = NEW;
        self.revocations[OLD] = Revocation::No;
        for member in &mut self.members {
            member.left[OLD] = None;
        }
    }

    pub(super) fn commit(&mut self, content: Content) {
        self.log.push(Entry { term: self.term, content });
    }

    pub(super) fn revoke(&mut self, lease: usize) {
        self.revocations[lease] = Revocation::Committed;
        self.commit(Content::Revoke(lease));
        self.deleted |= self.client.claim == lease;
    }

    pub(super) fn snapshot(&mut self, at: usize) {
        self.members[at].applied = self.members[self.leader].applied;
        (self.members[at].leads, self.members[at].left) = (None, [None; LEASES]);
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

    /// Gives up the heartbeat. The client no longer waits for its votes.
    fn give_up(&mut self) {
        for entry in self.log.iter_mut().filter(|entry| entry.content == Content::Vote) {
            entry.content = Content::Stray;
        }
        self.client.round = None;
    }

    pub(super) fn begin(&mut self, term: u8) {
        self.give_up();
        self.client.rounds -= 1;
        let round = Round { left: TTL, term, renewed: false, voter: None, votes: 0, asked: false };
        self.client.round = Some(round);
    }
}

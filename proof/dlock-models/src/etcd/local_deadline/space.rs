//! The state space: the possible actions in each state, and the properties.

use stateright::{Model, Property};

use super::{
    Action, Client, Content, Heartbeats, LEASES, MEMBERS, Member, NEW, OLD, Revocation, Rule,
    State, TTL,
};
use crate::check::EXCLUSION;

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

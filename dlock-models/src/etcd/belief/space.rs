//! The state space: the possible actions in each state, and the properties.

use stateright::{Model, Property};

use super::{Action, Client, Content, Heartbeats, MEMBERS, Member, Revocation, Rule, State, TTL};
use crate::check::EXCLUSION;

impl Model for Heartbeats {
    type State = State;
    type Action = Action;

    fn init_states(&self) -> Vec<State> {
        let mut members = [Member { leads: None, left: None, header: 1, applied: 0 }; MEMBERS];
        (members[0].leads, members[0].left) = (Some(1), Some(TTL));
        vec![State {
            term: 1,
            leader: 0,
            log: Vec::new(),
            members,
            revocation: Revocation::No,
            client: Client { left: TTL, lapsed: false, rounds: self.rounds, round: None },
        }]
    }

    fn actions(&self, state: &State, actions: &mut Vec<Action>) {
        if state.client.lapsed && self.has(Rule::InTime) {
            // No session is left that could be wrong.
            return;
        }
        actions.push(Action::Tick);
        if state.revocation == Revocation::Proposed {
            actions.push(Action::Revoke);
        }
        if state.client.rounds > 0 {
            actions.push(Action::Keepalive);
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
            if self.may_revoke(state, at) {
                actions.push(Action::Expire(at));
            }
            if state.client.round.is_some_and(|round| round.term.is_none()) {
                actions.push(Action::Read(at));
            }
            if self.may_renew(state, at) {
                actions.push(Action::Renew(at));
            }
            if self.may_vote(state, at) {
                actions.push(Action::Vote(at));
            }
        }
    }

    fn next_state(&self, before: &State, action: Action) -> Option<State> {
        let mut state = before.clone();
        match action {
            Action::Tick => state.tick(),
            Action::Elect(at) => {
                (state.term, state.leader) = (state.term + 1, at);
                (state.members[at].leads, state.members[at].left) = (Some(state.term), None);
                state.commit(Content::Empty);
            }
            Action::Apply(at) => self.apply(&mut state, at, false),
            Action::ApplyEarly(at) => self.apply(&mut state, at, true),
            Action::Snapshot(at) => state.snapshot(at),
            Action::Expire(_) => state.revocation = Revocation::Proposed,
            Action::Revoke => {
                state.revocation = Revocation::Committed;
                state.commit(Content::Revoke);
            }
            Action::Keepalive => state.begin(),
            Action::Read(at) => {
                let term = state.members[at].header;
                let round = state.client.round.as_mut()?;
                round.term = Some(term);
                if !self.has(Rule::VotesLast) {
                    // The keepalive is sent now.
                    round.left = TTL;
                }
            }
            Action::Renew(at) => {
                if !state.has_revoked(at) {
                    state.members[at].left = Some(TTL);
                }
                state.client.round.as_mut()?.renewed = true;
                self.count(&mut state);
            }
            Action::Vote(at) => {
                state.commit(Content::Vote);
                let round = state.client.round.as_mut()?;
                (round.voter, round.asked) = (Some(at), true);
            }
        }
        Some(state)
    }

    fn properties(&self) -> Vec<Property<Self>> {
        vec![
            Property::always(EXCLUSION, |_, state: &State| {
                state.client.left == 0 || state.revocation != Revocation::Committed
            }),
            Property::sometimes("a proof by a later leader", |_, state: &State| {
                let client = state.client;
                client.left == TTL && client.rounds == 0 && client.round.is_none()
            }),
        ]
    }
}

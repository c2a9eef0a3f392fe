//! Redis locks that are taken by three plain commands instead of a script.
//!
//! Models `dlock-redis/src/take.rs`; and in `dlock-redis/src/scripts/` the rules for a holder without
//! a token in `lock.lua`, `renew.lua`, `renew_exclusive.lua`, `release.lua` and `release_alone.lua`.
//!
//! Two writers take a lock by `SET NX PXAT`, `EXISTS` and `XADD`, which the server executes one after
//! another; scripts of others may come between them. A reader always uses scripts. The client knows
//! the server's clock only roughly, also because of a step that it has not seen. The connection of the
//! first writer may be lost: then its `SET` arrives at any later time, and its client continues with
//! the same claim. The server may lose its holder once, as in a failover to a replica that lacks the
//! last command.
//!
//! Left out: releases that overtake an acquire, and the end of a late `SET`, which are the model
//! `redis_late`; the order of tokens, which is the model `redis_tokens`; and lost messages and the
//! leases of waiters, which are the model `redis_hand_off`.

use stateright::{Model, Property};

use crate::check::{EXCLUSION, breaks, holds};

const CLAIMS: usize = 3;
/// The claim that wants a shared lock.
const READER: usize = 2;
const LEASE: u8 = 3;
/// The largest differences by which the client may misjudge the server's clock.
const BEHIND: [u8; 2] = [0, 2];
/// The time at which the model ends.
const END: u8 = 4;

const FAIR: &str = "no claim bypasses an earlier one";
const HANDS_ON: &str = "a release grants the lock to the next waiter";
const CONFIRMS: &str = "a renewal confirms only its own grant";
const RENEWS: &str = "a renewal keeps the lock that its claim holds";

/// The rules of the protocol. Each can be switched off.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Rule {
    /// `EXISTS` comes after `SET`.
    ExistsAfterSet,
    /// The lock counts as taken only if `EXISTS` finds no waiters and no readers.
    Exists,
    /// The client relies on the lock until the end that it has sent, by the clock in the answer.
    Belief,
    /// A script that acquires for a claim whose `SET` holds the key begins anew.
    TakenBack,
    /// The poll of a waiter whose late `SET` holds the key begins anew.
    PollTakesBack,
    /// After an outcome that is not known, the claim is sent as a script.
    ResendByScript,
    /// Only the renewal of a grant by plain commands accepts a holder without a token.
    OnlyOfTake,
    /// A waiter marks the holder's key, so that its release reads the queue.
    Mark,
    /// A holder without a token does not hide shared holders.
    Readers,
}

/// The rules, and the property that is violated without each of them.
pub const RULES: [(Rule, &str); 9] = [
    (Rule::ExistsAfterSet, EXCLUSION),
    (Rule::Exists, EXCLUSION),
    (Rule::Belief, EXCLUSION),
    (Rule::TakenBack, EXCLUSION),
    (Rule::PollTakesBack, FAIR),
    (Rule::ResendByScript, CONFIRMS),
    (Rule::OnlyOfTake, CONFIRMS),
    (Rule::Mark, HANDS_ON),
    (Rule::Readers, RENEWS),
];

struct RedisTake {
    without: Option<Rule>,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
struct State {
    /// The time, and the server's clock.
    now: u8,
    holder: Option<HolderKey>,
    /// The waiting claims in their order.
    queue: Vec<usize>,
    /// The shared holders, and the ends of their leases.
    readers: Vec<(usize, u8)>,
    /// The number of grants and of keys that were set. Grants have their numbers as tokens.
    grants: u8,
    /// The number of each claim's grant.
    granted: [u8; CLAIMS],
    /// The end in a `SET` of the first claim that is still on its way.
    late: Option<u8>,
    has_lost_connection: bool,
    has_lost_holder: bool,
    clients: [Client; CLAIMS],
    /// Whether another claim was granted a conflicting lock after each claim's grant.
    is_stale: [bool; CLAIMS],
    is_unfair: bool,
    is_not_handed_on: bool,
    is_falsely_confirmed: bool,
    is_falsely_refused: bool,
}

/// The holder's key.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct HolderKey {
    claim: usize,
    /// `None` if a plain command has written it.
    token: Option<u8>,
    ends: u8,
    /// The mark: claims wait.
    is_marked: bool,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
enum Client {
    #[default]
    Idle,
    /// Its plain commands are on their way.
    Takes(Take),
    /// It sends the script until it has an answer.
    Asks,
    Waits,
    Holds {
        token: u8,
        until: u8,
        is_taken: bool,
    },
    Over,
}

/// The three commands, as far as the server has executed them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
struct Take {
    sent: u8,
    /// The end of the key, by the server's clock.
    ends: u8,
    executed: u8,
    /// Whether the key was free, and the number of the grant then.
    is_set: bool,
    number: u8,
    /// Whether the key belonged to this claim.
    is_own: bool,
    /// Whether there are waiters or readers.
    exists: bool,
    /// The server's clock and the token.
    shown: (u8, u8),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Action {
    /// The client sends the three commands, and misjudges the server's clock by this amount.
    Take(usize, u8),
    /// The server executes the next of the three commands.
    Execute(usize),
    Answer(usize),
    LoseConnection,
    /// The late `SET` arrives.
    LateSet,
    /// The script that acquires, and whether its answer arrives.
    Ask(usize, bool),
    Poll(usize),
    Renew(usize),
    Leave(usize),
    LoseHolder,
    Tick,
}

impl RedisTake {
    fn has(&self, rule: Rule) -> bool {
        self.without != Some(rule)
    }

    fn execute(&self, state: &mut State, claim: usize) {
        let Client::Takes(mut take) = state.clients[claim] else { return };
        let exists_first = !self.has(Rule::ExistsAfterSet);
        match (take.executed, exists_first) {
            (0, false) | (1, true) => {
                take.is_own = state.holder().is_some_and(|holder| holder.claim == claim);
                take.is_set = state.set(claim, take.ends);
                take.number = state.grants;
            }
            (0, true) | (1, false) => {
                take.exists = !state.queue.is_empty() || !state.readers.is_empty();
            }
            _ => {
                state.grants += 1;
                take.shown = (state.now, state.grants);
            }
        }
        take.executed += 1;
        state.clients[claim] = Client::Takes(take);
    }

    fn answer(&self, state: &mut State, claim: usize, take: Take) {
        let exists = take.exists && self.has(Rule::Exists);
        // Without the rule a client also sends the three commands again, and finds its own key.
        let is_taken = take.is_set || take.is_own && !self.has(Rule::ResendByScript);
        let (clock, token) = take.shown;
        let until = match self.has(Rule::Belief) {
            true => take.sent + take.ends.saturating_sub(clock).min(LEASE),
            false => take.sent + LEASE,
        };
        state.clients[claim] = Client::Asks;
        if is_taken && !exists && until > state.now {
            state.clients[claim] = Client::Holds { token, until, is_taken: true };
            state.granted(claim, take.number);
        }
    }

    /// ACQUIRE.
    fn ask(&self, state: &mut State, claim: usize, is_answered: bool) {
        state.expire();
        let own = state.holder.filter(|holder| holder.claim == claim);
        let mut token = own.and_then(|holder| holder.token);
        if own.is_some_and(|holder| holder.token.is_none()) {
            token = self.of_set(state, claim, Rule::TakenBack);
        }
        if token.is_none() && !state.holds(claim) && !state.queue.contains(&claim) {
            if let Some(holder) = &mut state.holder {
                holder.is_marked |= self.has(Rule::Mark);
            }
            state.queue.push(claim);
        }
        state.promote(Some(claim));
        // It extends the lease of a claim that holds the lock.
        state.extend(claim);
        if is_answered {
            state.learn(claim);
        }
    }

    /// A waiter asks for the state of its claim.
    fn poll(&self, state: &mut State, claim: usize) {
        state.expire();
        let own = state.holder.filter(|holder| holder.claim == claim);
        if own.is_some_and(|holder| holder.token.is_none()) {
            self.of_set(state, claim, Rule::PollTakesBack);
        }
        state.promote(Some(claim));
        state.learn(claim);
    }

    /// Handles a key that a plain command of the claim has written. Without the rule, the script
    /// grants the lock to the claim. Returns the token.
    fn of_set(&self, state: &mut State, claim: usize, rule: Rule) -> Option<u8> {
        if self.has(rule) {
            state.holder = None;
            return None;
        }
        state.is_unfair |= state.queue.first().is_some_and(|first| *first != claim);
        state.queue.retain(|waiter| *waiter != claim);
        state.grants += 1;
        let (token, ends) = (state.grants, state.now + LEASE);
        state.holder = Some(HolderKey { claim, token: Some(token), ends, is_marked: false });
        state.granted(claim, token);
        Some(token)
    }

    fn renew(&self, state: &mut State, claim: usize) {
        let Client::Holds { token: own, is_taken, .. } = state.clients[claim] else { return };
        state.expire();
        let until = state.now + LEASE;
        let is_reader = state.readers.iter().any(|(reader, _)| *reader == claim);
        let is_hidden = state.holder.is_some() && !self.has(Rule::Readers);
        state.is_falsely_refused |= is_reader && is_hidden;
        let is_reader = is_reader && !is_hidden;
        let is_kept = state.holder.is_some_and(|holder| {
            let accepts = is_taken || !self.has(Rule::OnlyOfTake);
            holder.claim == claim && holder.token.map_or(accepts, |token| token == own)
        });
        if !is_kept && !is_reader {
            self.leave(state, claim);
            return;
        }
        if let Some(holder) = state.holder.as_mut().filter(|_| is_kept) {
            holder.token = Some(own);
        }
        state.extend(claim);
        state.is_falsely_confirmed |= state.is_stale[claim];
        state.clients[claim] = Client::Holds { token: own, until, is_taken };
    }

    /// Releases or cancels a claim, which is over then.
    fn leave(&self, state: &mut State, claim: usize) {
        let is_alone = matches!(state.clients[claim], Client::Holds { is_taken: true, .. });
        state.clients[claim] = Client::Over;
        let holder = state.holder();
        if let Some(holder) = holder.filter(|holder| holder.claim == claim)
            && is_alone
            && !holder.is_marked
        {
            // The short release.
            state.holder = None;
            state.is_not_handed_on |= !state.queue.is_empty();
            return;
        }
        state.expire();
        state.holder = state.holder.filter(|holder| holder.claim != claim);
        state.queue.retain(|waiter| *waiter != claim);
        state.readers.retain(|(reader, _)| *reader != claim);
        state.promote(None);
    }
}

impl State {
    fn holder(&self) -> Option<HolderKey> {
        self.holder.filter(|holder| self.now <= holder.ends)
    }

    fn expire(&mut self) {
        self.holder = self.holder();
        self.readers.retain(|(_, ends)| self.now <= *ends);
    }

    /// `SET NX PXAT`.
    fn set(&mut self, claim: usize, ends: u8) -> bool {
        self.holder = self.holder();
        let is_free = self.holder.is_none();
        if is_free && self.now <= ends {
            self.holder = Some(HolderKey { claim, token: None, ends, is_marked: false });
            self.grants += 1;
        }
        is_free
    }

    fn holds(&self, claim: usize) -> bool {
        self.holder.is_some_and(|holder| holder.claim == claim)
            || self.readers.iter().any(|(reader, _)| *reader == claim)
    }

    fn extend(&mut self, claim: usize) {
        let later = self.now + LEASE;
        if let Some(holder) = self.holder.as_mut().filter(|holder| holder.claim == claim) {
            holder.ends = holder.ends.max(later);
        }
        for (reader, ends) in &mut self.readers {
            if *reader == claim {
                *ends = later;
            }
        }
    }

    /// Grants the lock to the first claims of the queue that fit, and notifies all clients but this.
    fn promote(&mut self, me: Option<usize>) {
        while let Some(claim) = self.queue.first().copied()
            && self.holder.is_none()
            && (claim == READER || self.readers.is_empty())
        {
            self.queue.remove(0);
            self.grants += 1;
            let ends = self.now + LEASE;
            match claim {
                READER => self.readers.push((claim, ends)),
                _ => {
                    let is_marked = !self.queue.is_empty();
                    let token = Some(self.grants);
                    self.holder = Some(HolderKey { claim, token, ends, is_marked });
                }
            }
            self.granted(claim, self.grants);
            if Some(claim) != me && self.clients[claim] == Client::Waits {
                self.learn(claim);
            }
        }
    }

    /// The client learns the state of its claim.
    fn learn(&mut self, claim: usize) {
        let until = self.now + LEASE;
        let token = self.holder.filter(|holder| holder.claim == claim).and_then(|it| it.token);
        let is_reader = self.readers.iter().any(|(reader, _)| *reader == claim);
        self.clients[claim] = match token {
            Some(token) => Client::Holds { token, until, is_taken: false },
            None if is_reader => Client::Holds { token: 0, until, is_taken: false },
            None if self.queue.contains(&claim) => Client::Waits,
            None => Client::Over,
        };
    }

    /// Records the grant with this number.
    fn granted(&mut self, claim: usize, number: u8) {
        (self.granted[claim], self.is_stale[claim]) = (number, false);
        for other in (0..CLAIMS).filter(|other| *other != claim) {
            match self.granted[other] {
                0 => {}
                before if before < number => self.is_stale[other] = true,
                _ => self.is_stale[claim] = true,
            }
        }
    }

    fn relies(&self, claim: usize) -> bool {
        matches!(self.clients[claim], Client::Holds { until, .. } if self.now < until)
    }
}

impl Model for RedisTake {
    type State = State;
    type Action = Action;

    fn init_states(&self) -> Vec<State> {
        vec![State::default()]
    }

    fn actions(&self, state: &State, actions: &mut Vec<Action>) {
        for (claim, client) in state.clients.iter().enumerate() {
            match client {
                Client::Idle if claim == READER => actions.push(Action::Ask(claim, true)),
                Client::Idle => {
                    // One that misjudges the clock is enough.
                    let behind = &BEHIND[..2 - claim];
                    actions.extend(behind.iter().map(|behind| Action::Take(claim, *behind)));
                }
                Client::Takes(take) if take.executed < 3 => actions.push(Action::Execute(claim)),
                Client::Takes(_) => actions.push(Action::Answer(claim)),
                Client::Asks => {
                    actions.extend([true, false].map(|heard| Action::Ask(claim, heard)));
                    if claim == 0 && !self.has(Rule::ResendByScript) {
                        actions.push(Action::Take(claim, 0));
                    }
                }
                Client::Waits => actions.push(Action::Poll(claim)),
                Client::Holds { .. } => {
                    actions.extend([Action::Renew(claim), Action::Leave(claim)]);
                }
                Client::Over => {}
            }
        }
        if matches!(state.clients[0], Client::Takes(_)) && !state.has_lost_connection {
            actions.push(Action::LoseConnection);
        }
        if state.late.is_some() {
            actions.push(Action::LateSet);
        }
        if state.holder.is_some() && !state.has_lost_holder {
            actions.push(Action::LoseHolder);
        }
        if state.now < END {
            actions.push(Action::Tick);
        }
    }

    fn next_state(&self, before: &State, action: Action) -> Option<State> {
        let mut state = before.clone();
        match action {
            Action::Take(claim, behind) => {
                let ends = (state.now + LEASE).saturating_sub(behind);
                let take = Take { sent: state.now, ends, ..Take::default() };
                state.clients[claim] = Client::Takes(take);
            }
            Action::Execute(claim) => self.execute(&mut state, claim),
            Action::Answer(claim) => {
                let Client::Takes(take) = state.clients[claim] else { return None };
                self.answer(&mut state, claim, take);
            }
            Action::LoseConnection => {
                let Client::Takes(take) = state.clients[0] else { return None };
                state.late = (take.executed == 0).then_some(take.ends);
                state.has_lost_connection = true;
                state.clients[0] = Client::Asks;
            }
            Action::LateSet => {
                let ends = state.late.take()?;
                state.set(0, ends);
            }
            Action::Ask(claim, is_answered) => self.ask(&mut state, claim, is_answered),
            Action::Poll(claim) => self.poll(&mut state, claim),
            Action::Renew(claim) => self.renew(&mut state, claim),
            Action::Leave(claim) => self.leave(&mut state, claim),
            Action::LoseHolder => (state.holder, state.has_lost_holder) = (None, true),
            Action::Tick => state.now += 1,
        }
        (state != *before).then_some(state)
    }

    fn properties(&self) -> Vec<Property<Self>> {
        vec![
            Property::always(EXCLUSION, |_, state: &State| {
                let count = (0..CLAIMS).filter(|claim| state.relies(*claim)).count();
                count < 2 || state.has_lost_holder
            }),
            Property::always(FAIR, |_, state: &State| !state.is_unfair),
            Property::always(HANDS_ON, |_, state: &State| !state.is_not_handed_on),
            Property::always(CONFIRMS, |_, state: &State| !state.is_falsely_confirmed),
            Property::always(RENEWS, |_, state: &State| !state.is_falsely_refused),
            Property::sometimes("a late SET holds the key of a waiter", |_, state: &State| {
                let own = state.holder.is_some_and(|holder| holder.claim == 0);
                own && state.clients[0] == Client::Waits
            }),
            Property::sometimes("a writer waits behind a reader", |_, state: &State| {
                state.relies(READER) && !state.queue.is_empty()
            }),
            Property::sometimes("the key ends before the answer", |_, state: &State| {
                let answered = matches!(state.clients[0], Client::Takes(take)
                    if take.executed == 3 && take.is_set && take.ends < state.now);
                answered && state.holder().is_none()
            }),
        ]
    }
}

/// Returns how the property is violated without the rule.
pub fn without(rule: Rule, property: &'static str) -> String {
    breaks("redis_take", rule, RedisTake { without: Some(rule) }, property)
}

/// Visits every state of the protocol with all its rules. No property is violated.
///
/// # Panics
/// If a property is violated. The message contains the steps to the violation.
pub fn visit() {
    holds("redis_take", RedisTake { without: None }, 20_000);
}

//! The queue in Redis, and the hand-off by one message.
//!
//! Models `dlock-redis/src/scripts/lock.lua` (the functions `acquire` and `promote`),
//! `release.lua`, `renew.lua`, and on the client's side `waiters.rs` and `wait.rs`.
//!
//! Clients send acquires and releases, which may be repeated, overtake each other, or lose their
//! answers. The script that frees the lock grants it to the next waiter in the queue and publishes
//! a message. The message may arrive late, twice, or never. A client may lose its connection, pause
//! for longer than its lease, cancel, or die. A waiter polls.
//!
//! Left out: shared modes and permits; acquires that arrive late, which are the model `redis_late`;
//! and how times are compared. A holder knows before the store that its lease has expired, which is
//! the model `lease`; so a lease expires here whenever no client relies on it.

use stateright::{Model, Property};

use crate::check::{EXCLUSION, ORDER, Tokens, WAKES, breaks, holds, send};

const CLIENTS: usize = 3;
/// The number of faults of messages, answers, connections and clients.
const FAULTS: u8 = 2;

const ONCE: &str = "a claim stands in the queue once";

/// The rules of the protocol. Each can be switched off.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Rule {
    /// A waiter polls.
    Poll,
    /// A release ends only the hold of its own claim.
    ReleaseByOwner,
    /// A repeated acquire finds its claim.
    AcquireById,
    /// A message applies only to the claim that it names.
    MessageById,
    /// A message is valid only as long as the lease that it reports.
    MessageAge,
}

/// The rules, and the property that is violated without each of them.
pub const RULES: [(Rule, &str); 5] = [
    (Rule::Poll, WAKES),
    (Rule::ReleaseByOwner, EXCLUSION),
    (Rule::AcquireById, ONCE),
    (Rule::MessageById, EXCLUSION),
    (Rule::MessageAge, EXCLUSION),
];

struct RedisHandOff {
    /// The number of claims that each client makes.
    claims: [u8; CLIENTS],
    without: Option<Rule>,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct State {
    held: Option<(Claim, u8)>,
    last: u8,
    queue: Vec<Claim>,
    /// The pending messages, sorted.
    wire: Vec<Letter>,
    clients: [Client; CLIENTS],
    faults: u8,
    tokens: Tokens<u8>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
struct Claim {
    client: usize,
    number: u8,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
struct Client {
    claims: u8,
    phase: Phase,
    unreachable: bool,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
enum Phase {
    #[default]
    Idle,
    Asking,
    Waiting,
    Held,
    Dead,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
enum Letter {
    Acquire(Claim),
    Release(Claim),
    /// The message of a grant.
    Grant(Claim, u8),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Action {
    Ask(usize),
    Arrives(Letter),
    /// The message is served, and its answer is lost.
    ArrivesUnanswered(Letter),
    /// A copy of the message is served.
    Repeats(Letter),
    Lost(Letter),
    Poll(usize),
    GiveUp(usize),
    Leave(usize),
    /// The client pauses until its lease has expired.
    Stop(usize),
    Die(usize),
    Cut(usize),
    Reconnect(usize),
    LeaseEnds,
    PlaceEnds(usize),
}

impl RedisHandOff {
    fn has(&self, rule: Rule) -> bool {
        self.without != Some(rule)
    }

    fn acquire(&self, state: &mut State, claim: Claim) {
        let known = self.has(Rule::AcquireById);
        if known && state.held.is_some_and(|(holder, _)| holder == claim) {
            return;
        }
        let queued = known && state.queue.contains(&claim);
        state.promote(Some(claim));
        let has_it = state.held.is_some_and(|(holder, _)| holder == claim);
        if queued || known && has_it {
            return;
        }
        match state.held {
            None => state.grant(claim),
            Some(_) => state.queue.push(claim),
        }
    }

    fn serve(&self, state: &mut State, letter: Letter, answered: bool) {
        match letter {
            Letter::Acquire(claim) => {
                self.acquire(state, claim);
                if answered && state.is_current(claim) && state.phase(claim) == Phase::Asking {
                    state.clients[claim.client].phase = Phase::Waiting;
                    state.learn(claim.client);
                }
            }
            Letter::Release(claim) => {
                let owns = state.held.is_some_and(|(holder, _)| holder == claim);
                if owns || !self.has(Rule::ReleaseByOwner) {
                    state.held = None;
                } else {
                    state.queue.retain(|other| *other != claim);
                }
                state.promote(None);
            }
            Letter::Grant(claim, token) => {
                let waits = state.phase(claim) == Phase::Waiting;
                if !waits || !state.is_current(claim) && self.has(Rule::MessageById) {
                    return;
                }
                let still = state.held == Some((claim, token));
                if still || !self.has(Rule::MessageAge) {
                    state.hold(claim.client, token);
                } else {
                    state.give_up(claim.client);
                }
            }
        }
    }

    fn poll(&self, state: &mut State, at: usize) {
        let claim = state.claim(at);
        if state.held.is_none_or(|(holder, _)| holder != claim) {
            let queued = state.queue.contains(&claim);
            state.promote(Some(claim));
            let granted = state.held.is_some_and(|(holder, _)| holder == claim);
            if !queued && !granted {
                // The position of the claim has ended: the client continues with another claim.
                return state.give_up(at);
            }
        }
        state.learn(at);
    }

    /// Runs all pending steps without faults. Returns whether a client then holds the lock, or no
    /// client waits.
    fn comes_to_rest(&self, state: &State) -> bool {
        let mut state = state.clone();
        loop {
            while let Some(letter) = state.wire.first().copied() {
                state.wire.remove(0);
                self.serve(&mut state, letter, true);
            }
            let waiting = |at: &usize| state.clients[*at].phase == Phase::Waiting;
            let waiting: Vec<usize> = (0..CLIENTS).filter(waiting).collect();
            let held = state.clients.iter().any(|client| client.phase == Phase::Held);
            if held || waiting.is_empty() {
                return true;
            }
            let before = state.clone();
            if self.has(Rule::Poll) {
                waiting.into_iter().for_each(|at| self.poll(&mut state, at));
            }
            if state == before {
                // Only leases can still expire.
                state.held = None;
                state.queue.retain(|claim| before.is_wanted(*claim));
            }
            if state == before {
                return false;
            }
        }
    }
}

impl State {
    fn claim(&self, client: usize) -> Claim {
        Claim { client, number: self.clients[client].claims }
    }

    fn phase(&self, claim: Claim) -> Phase {
        self.clients[claim.client].phase
    }

    fn is_current(&self, claim: Claim) -> bool {
        self.claim(claim.client) == claim
    }

    /// Whether a live client requests this claim or waits for it.
    fn is_wanted(&self, claim: Claim) -> bool {
        self.is_current(claim) && matches!(self.phase(claim), Phase::Asking | Phase::Waiting)
    }

    fn grant(&mut self, claim: Claim) {
        self.last += 1;
        self.held = Some((claim, self.last));
    }

    /// Grants a free lock to the first claim in the queue that can be notified, or that sent this
    /// request.
    fn promote(&mut self, me: Option<Claim>) {
        if self.held.is_some() {
            return;
        }
        let heard = |claim: &Claim| Some(*claim) == me || !self.clients[claim.client].unreachable;
        if let Some(at) = self.queue.iter().position(heard) {
            let claim = self.queue.remove(at);
            self.grant(claim);
            if Some(claim) != me {
                send(&mut self.wire, Letter::Grant(claim, self.last));
            }
        }
    }

    /// The answer tells the client whether its claim holds the lock.
    fn learn(&mut self, at: usize) {
        if let Some((holder, token)) = self.held
            && holder == self.claim(at)
        {
            self.hold(at, token);
        }
    }

    fn hold(&mut self, at: usize, token: u8) {
        self.clients[at].phase = Phase::Held;
        self.tokens.add(token);
    }

    fn give_up(&mut self, at: usize) {
        let claim = self.claim(at);
        send(&mut self.wire, Letter::Release(claim));
        self.clients[at].phase = Phase::Idle;
        self.clients[at].claims += 1;
    }
}

impl Model for RedisHandOff {
    type State = State;
    type Action = Action;

    fn init_states(&self) -> Vec<State> {
        vec![State {
            held: None,
            last: 0,
            queue: Vec::new(),
            wire: Vec::new(),
            clients: [Client::default(); CLIENTS],
            faults: FAULTS,
            tokens: Tokens::default(),
        }]
    }

    fn actions(&self, state: &State, actions: &mut Vec<Action>) {
        let faults = state.faults > 0;
        for (at, client) in state.clients.iter().enumerate() {
            match client.phase {
                Phase::Idle if client.claims < self.claims[at] => actions.push(Action::Ask(at)),
                Phase::Idle | Phase::Dead => continue,
                Phase::Asking if !state.wire.contains(&Letter::Acquire(state.claim(at))) => {
                    // The answer was lost: the same claim is sent again.
                    actions.push(Action::Ask(at));
                }
                Phase::Asking => {}
                Phase::Waiting if self.has(Rule::Poll) => {
                    actions.extend([Action::Poll(at), Action::GiveUp(at)]);
                }
                Phase::Waiting => actions.push(Action::GiveUp(at)),
                Phase::Held => actions.extend([Action::Leave(at), Action::Stop(at)]),
            }
            if faults && client.phase != Phase::Idle {
                actions.push(Action::Die(at));
            }
            match client.unreachable {
                true => actions.push(Action::Reconnect(at)),
                false if faults => actions.push(Action::Cut(at)),
                false => {}
            }
        }
        for letter in &state.wire {
            actions.push(Action::Arrives(*letter));
            if faults {
                actions.push(Action::Repeats(*letter));
                actions.push(match letter {
                    Letter::Grant(..) => Action::Lost(*letter),
                    _ => Action::ArrivesUnanswered(*letter),
                });
            }
        }
        let is_relied_on =
            |(claim, _)| state.is_current(claim) && state.phase(claim) == Phase::Held;
        if state.held.is_some_and(|held| !is_relied_on(held)) {
            actions.push(Action::LeaseEnds);
        }
        for (at, claim) in state.queue.iter().enumerate() {
            // Also the position of a client that pauses for longer than a lease.
            if faults || !state.is_wanted(*claim) {
                actions.push(Action::PlaceEnds(at));
            }
        }
    }

    fn next_state(&self, before: &State, action: Action) -> Option<State> {
        let mut state = before.clone();
        match action {
            Action::Ask(at) => {
                state.clients[at].phase = Phase::Asking;
                let claim = state.claim(at);
                send(&mut state.wire, Letter::Acquire(claim));
            }
            Action::Arrives(letter) => {
                state.wire.retain(|other| *other != letter);
                self.serve(&mut state, letter, true);
            }
            Action::ArrivesUnanswered(letter) => {
                state.faults -= 1;
                state.wire.retain(|other| *other != letter);
                self.serve(&mut state, letter, false);
            }
            Action::Repeats(letter) => {
                state.faults -= 1;
                self.serve(&mut state, letter, false);
            }
            Action::Lost(letter) => {
                state.faults -= 1;
                state.wire.retain(|other| *other != letter);
            }
            Action::Poll(at) => self.poll(&mut state, at),
            Action::GiveUp(at) | Action::Leave(at) => state.give_up(at),
            Action::Stop(at) => {
                state.clients[at].phase = Phase::Idle;
                state.clients[at].claims += 1;
            }
            Action::Die(at) => {
                state.faults -= 1;
                (state.clients[at].phase, state.clients[at].unreachable) = (Phase::Dead, true);
            }
            Action::Cut(at) => {
                state.faults -= 1;
                state.clients[at].unreachable = true;
                let mine = |l: &Letter| matches!(l, Letter::Grant(claim, _) if claim.client == at);
                state.wire.retain(|letter| !mine(letter));
            }
            Action::Reconnect(at) => state.clients[at].unreachable = false,
            Action::LeaseEnds => state.held = None,
            Action::PlaceEnds(at) => {
                if state.is_wanted(state.queue[at]) {
                    state.faults -= 1;
                }
                state.queue.remove(at);
            }
        }
        Some(state)
    }

    fn properties(&self) -> Vec<Property<Self>> {
        vec![
            Property::always(EXCLUSION, |_, state: &State| {
                state.clients.iter().filter(|client| client.phase == Phase::Held).count() < 2
            }),
            Property::always(ORDER, |_, state: &State| !state.tokens.disorder),
            Property::always(ONCE, |_, state: &State| {
                let holder = state.held.map(|(claim, _)| claim);
                let mut all: Vec<Claim> = state.queue.iter().copied().chain(holder).collect();
                all.sort_unstable();
                all.windows(2).all(|pair| pair[0] != pair[1])
            }),
            Property::always(WAKES, |model: &Self, state: &State| model.comes_to_rest(state)),
            Property::sometimes("one waits", |_, state: &State| state.queue.len() == 1),
        ]
    }
}

/// Returns how the property is violated without the rule.
pub fn without(rule: Rule, property: &'static str) -> String {
    let model = RedisHandOff { claims: [2, 1, 1], without: Some(rule) };
    breaks("redis_hand_off", rule, model, property)
}

/// Visits every state of the protocol with all its rules. No property is violated.
///
/// # Panics
/// If a property is violated. The message contains the steps to the violation.
pub fn visit() {
    for (claims, least) in [([1, 1, 1], 160_000), ([2, 1, 0], 50_000)] {
        holds("redis_hand_off", RedisHandOff { claims, without: None }, least);
    }
}

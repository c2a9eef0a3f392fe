//! The tokens of Redis: the ids of a stream that many names share, and the blocks of a holder that are
//! not reserved in it.
//!
//! Models `dlock-redis/src/take.rs` and `reply.rs` (the token of an id), and in
//! `dlock-redis/src/scripts/` the functions `load`, `grant` and `save` of `lock.lua`, `release.lua` and
//! `renew_exclusive.lua`.
//!
//! One lock is granted again and again: by plain commands, by a script with one token, or by a script
//! with a block of tokens, which its holder uses one after another. Other names take tokens of the
//! same stream. A holder releases its claim, stops without a release until its key has expired,
//! becomes a reader, or shortens its lease for the last time. Time is counted in tokens: a millisecond
//! has `LIMIT` of them. No step of the clock is modelled: then tokens keep their order only as far as
//! the stream goes.
//!
//! Left out: everything about who holds the lock, which is the model `redis_take`.

use stateright::{Model, Property};

use crate::check::{ORDER, Tokens, breaks, holds};

/// The number of tokens of a millisecond.
const LIMIT: u8 = 3;
/// The number of tokens in a block: more than a millisecond has.
const BLOCK: u8 = 5;
/// The leases, in milliseconds.
const LEASES: [u8; 2] = [1, 3];
/// The time at which the model ends.
const END: u8 = 5 * LIMIT;
/// The largest sequence, and the largest milliseconds, after which nothing more is granted.
const LARGEST: u8 = LIMIT + 1;
const FARTHEST: u8 = END / LIMIT + 2;

/// The rules of the protocol. Each can be switched off.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Rule {
    /// An id whose sequence is as large as a millisecond is no token.
    SmallSequence,
    /// After such an id, a script takes the next millisecond.
    NextMillisecond,
    /// A block that its holder's key does not outlive is reserved in the stream.
    Outlives,
    /// A release raises the stream to the last used token, unless the clock has passed it.
    Used,
    /// If it is not known how many tokens were used, a release raises the stream to the block's end.
    UnknownUse,
    /// A last renewal, which may shorten the lease, raises the stream to the block's end.
    LastRenewal,
    /// A holder that becomes a reader raises the stream to the block's end.
    Downgrade,
}

/// The rules, and the property that is violated without each of them.
pub const RULES: [(Rule, &str); 7] = [
    (Rule::SmallSequence, ORDER),
    (Rule::NextMillisecond, ORDER),
    (Rule::Outlives, ORDER),
    (Rule::Used, ORDER),
    (Rule::UnknownUse, ORDER),
    (Rule::LastRenewal, ORDER),
    (Rule::Downgrade, ORDER),
];

struct RedisTokens {
    without: Option<Rule>,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
struct State {
    /// The server's clock, in tokens.
    clock: u8,
    /// The last id of the stream: milliseconds and sequence.
    last: (u8, u8),
    held: Option<Held>,
    tokens: Tokens<u8>,
    /// Whether a block was granted that is not in the stream.
    has_lent: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct Held {
    first: u8,
    tokens: u8,
    used: u8,
    /// The last millisecond of the lease.
    ends: u8,
}

impl Held {
    const fn block_end(self) -> u8 {
        self.first + self.tokens - 1
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Action {
    Take,
    Grant {
        tokens: u8,
        lease: u8,
    },
    /// The holder uses the next token of its block.
    Use,
    Release {
        /// Whether the client knows how many tokens were used.
        knows: bool,
    },
    LastRenewal,
    Downgrade,
    /// Another name takes a token.
    Other,
    Tick,
}

impl RedisTokens {
    fn has(&self, rule: Rule) -> bool {
        self.without != Some(rule)
    }

    /// Returns the last token of the stream, as a script reads it.
    fn last_token(&self, state: &State) -> u8 {
        let (millis, sequence) = state.last;
        match self.has(Rule::NextMillisecond) {
            true => millis * LIMIT + sequence.min(LIMIT - 1),
            // Then the id that it writes has the next sequence, whatever that is.
            false => millis * LIMIT + sequence % LIMIT,
        }
    }

    fn grant(&self, state: &mut State, tokens: u8, lease: u8) {
        let first = (self.last_token(state) + 1).max(state.clock);
        let end = first + tokens - 1;
        let (now, ends) = (state.clock / LIMIT, state.clock / LIMIT + lease);
        let outlives = !self.has(Rule::Outlives) || end / LIMIT < ends;
        state.has_lent |= tokens > 1 && outlives && end / LIMIT > now;
        state.raise(if outlives { first } else { end });
        state.tokens.add(first);
        state.held = Some(Held { first, tokens, used: 1, ends });
    }

    /// The last token of a claim that ends in this way, as far as the server knows.
    fn end(&self, state: &mut State, rule: Rule, last: u8) {
        if self.has(rule) && last / LIMIT >= state.clock / LIMIT {
            state.raise(last);
        }
    }
}

impl State {
    /// Adds the id of a token, unless the stream is there already.
    fn raise(&mut self, token: u8) {
        self.last = self.last.max((token / LIMIT, token % LIMIT));
    }

    /// `XADD` with an id that the server chooses.
    fn add(&mut self) -> (u8, u8) {
        let millis = self.clock / LIMIT;
        let (last, sequence) = self.last;
        self.last = if millis > last { (millis, 0) } else { (last, sequence + 1) };
        self.last
    }
}

impl Model for RedisTokens {
    type State = State;
    type Action = Action;

    fn init_states(&self) -> Vec<State> {
        vec![State::default()]
    }

    fn actions(&self, state: &State, actions: &mut Vec<Action>) {
        match state.held {
            None if state.last.0 > FARTHEST => {}
            None => {
                if state.last.1 < LARGEST {
                    actions.push(Action::Take);
                }
                for lease in LEASES {
                    actions.extend([1, BLOCK].map(|tokens| Action::Grant { tokens, lease }));
                }
            }
            Some(held) => {
                if held.used < held.tokens {
                    actions.push(Action::Use);
                }
                actions.extend([true, false].map(|knows| Action::Release { knows }));
                actions.extend([Action::LastRenewal, Action::Downgrade]);
            }
        }
        if state.last.1 < LARGEST {
            actions.push(Action::Other);
        }
        if state.clock < END {
            actions.push(Action::Tick);
        }
    }

    fn next_state(&self, before: &State, action: Action) -> Option<State> {
        let mut state = *before;
        match (action, state.held) {
            (Action::Take, _) => {
                let (millis, sequence) = state.add();
                // Otherwise the client sends the script.
                if sequence < LIMIT || !self.has(Rule::SmallSequence) {
                    let first = millis * LIMIT + sequence;
                    state.tokens.add(first);
                    let ends = state.clock / LIMIT + LEASES[0];
                    state.held = Some(Held { first, tokens: 1, used: 1, ends });
                }
            }
            (Action::Grant { tokens, lease }, _) => self.grant(&mut state, tokens, lease),
            (Action::Use, Some(held)) => {
                state.tokens.add(held.first + held.used);
                state.held = Some(Held { used: held.used + 1, ..held });
            }
            (Action::Release { knows }, Some(held)) => {
                state.held = None;
                match knows {
                    true => self.end(&mut state, Rule::Used, held.first + held.used - 1),
                    false => self.end(&mut state, Rule::UnknownUse, held.block_end()),
                }
            }
            (Action::LastRenewal, Some(held)) => {
                self.end(&mut state, Rule::LastRenewal, held.block_end());
                // No client holds it any more.
                let over = Held { used: held.tokens, ends: state.clock / LIMIT, ..held };
                state.held = Some(over);
            }
            (Action::Downgrade, Some(held)) => {
                state.held = None;
                self.end(&mut state, Rule::Downgrade, held.block_end());
            }
            (Action::Other, _) => {
                state.add();
            }
            (Action::Tick, held) => {
                state.clock += 1;
                state.held = held.filter(|held| state.clock / LIMIT <= held.ends);
            }
            _ => return None,
        }
        Some(state)
    }

    fn properties(&self) -> Vec<Property<Self>> {
        vec![
            Property::always(ORDER, |_, state: &State| !state.tokens.disorder),
            Property::sometimes("the stream is ahead of the clock", |_, state: &State| {
                state.last.0 > state.clock / LIMIT
            }),
            Property::sometimes("a sequence is too large", |_, state: &State| {
                state.last.1 >= LIMIT
            }),
            Property::sometimes("a block is not in the stream", |_, state: &State| state.has_lent),
        ]
    }
}

/// Returns how the property is violated without the rule.
pub fn without(rule: Rule, property: &'static str) -> String {
    breaks("redis_tokens", rule, RedisTokens { without: Some(rule) }, property)
}

/// Visits every state of the protocol with all its rules. No property is violated.
///
/// # Panics
/// If a property is violated. The message contains the steps to the violation.
pub fn visit() {
    holds("redis_tokens", RedisTokens { without: None }, 5_000);
}

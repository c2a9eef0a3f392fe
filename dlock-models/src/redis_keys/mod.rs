//! How long the keys of a queue live in Redis.
//!
//! Stands for `dlock-redis/src/scripts/lock.lua` (the functions `open` and `close`), `renew.lua` and
//! `quick.lua`.
//!
//! A holder renews a long lease; two waiters with shorter leases of different length join, ask and
//! leave. Time goes by in ticks, never past the moment by which a waiter has to ask, so every waiter
//! shows life. The last token (F) tells by its flag that somebody waits; the queue (Q and W) has a
//! lifetime of its own.
//!
//! Left out: messages, tokens and faults, which are the model `redis_hand_over`; shared holders, whose
//! key has the lifetime of the queue's.

mod space;

use crate::check::{breaks, holds};

const WAITERS: usize = 2;
/// How long the leases of the waiters are, and how long that of the holder is.
const LEASES: [u8; WAITERS] = [2, 6];
const HOLDS: u8 = 8;
/// How long F stays when it is used no more.
const RETENTION: u8 = 1;

const KEEPS: &str = "a waiter that shows life keeps its place";

/// The rules of the protocol, each of which can be taken out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Rule {
    /// A waiter that asks looks at how long the queue lives, and not only at how long F does.
    QueueLifetime,
    /// A waiter with a short lease does not shorten the lifetime that another needs.
    Longest,
    /// F lives as long as the queue does.
    WithF,
}

/// The rules, and what is violated without them.
pub const RULES: [(Rule, &str); 3] =
    [(Rule::QueueLifetime, KEEPS), (Rule::Longest, KEEPS), (Rule::WithF, KEEPS)];

struct Keys {
    without: Option<Rule>,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
struct State {
    /// What is left of the holder's lease.
    held: u8,
    last: LastToken,
    /// For how long Q and W live; nothing when nobody waits.
    queue: u8,
    waiters: [Waiter; WAITERS],
}

/// F.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
struct LastToken {
    lives: u8,
    flag: bool,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
enum Waiter {
    #[default]
    Idle,
    /// It waits, and its place has so much time left; nothing when the place has gone.
    Waits(u8),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Action {
    Take,
    Renew,
    Join(usize),
    Ask(usize),
    Leave(usize),
    Tick,
}

impl Keys {
    fn has(&self, rule: Rule) -> bool {
        self.without != Some(rule)
    }

    /// The end of each script, where somebody with this lease has come or has shown life.
    fn close(&self, state: &mut State, lease: u8, was_empty: bool) {
        let need = lease + RETENTION;
        let looked_at = match self.has(Rule::QueueLifetime) {
            true => state.queue.min(state.last.lives),
            // A queue that is made has no lifetime yet, and is always given one.
            false => state.last.lives,
        };
        let short = match self.has(Rule::Longest) {
            true => looked_at < need,
            false => looked_at != need + RETENTION,
        };
        if short || was_empty {
            let lives = if short { need + RETENTION } else { looked_at };
            state.queue = lives;
            if self.has(Rule::WithF) {
                state.last.lives = lives;
            }
        }
        state.last.flag = state.last.lives > 0;
    }
}

impl State {
    fn is_empty(&self) -> bool {
        self.waiters.iter().all(|waiter| *waiter == Waiter::Idle)
    }
}

/// How the property is violated without the rule.
pub fn without(rule: Rule, property: &'static str) -> String {
    breaks("redis_keys", rule, Keys { without: Some(rule) }, property)
}

/// Visits every state of the protocol with all its rules. No property is violated.
///
/// # Panics
/// Where one is, with the steps that lead there.
pub fn visit() {
    holds("redis_keys", Keys { without: None }, 500);
}

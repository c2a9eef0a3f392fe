//! Taking a lock that is probably free, with three plain commands instead of a script.
//!
//! ```text
//! SET holder claim:~number NX GET PXAT end     takes the key, or returns its value
//! EXISTS queue readers                         does any claim wait or share the lock?
//! XADD tokens * c number                       the token, and the server's clock
//! ```
//!
//! They are one pipeline, so they cost one round trip, and the server much less than a script. The server
//! may execute commands of others between them.
//!
//! - `EXISTS` comes after `SET`. A reader or waiter that came before it is seen, and one that comes later
//!   sees the holder. If it finds any, the client does not hold the lock, and sends the script ACQUIRE.
//!   The script deletes the holder's key, and decides by the queue.
//! - `end` is the most that the server's clock can show at the sending, plus the lease. So a `SET` that
//!   arrives late holds nothing beyond about the lease that its client asked for, and nothing at all
//!   after it. The client cancels a claim without an answer until then: see
//!   [`unanswered`](crate::unanswered).
//! - **The holder relies on the lock until `end`, by the clock in the answer of `XADD`.** That clock is
//!   never behind the server's. So whatever the client knew about the server's clock, it does not rely on
//!   the lock for longer than the key lives. If too little of the lease is left, it sends the script.
//! - After an outcome that is not known, a claim is only sent as a script. So of one client's claim, a
//!   holder without a token is that of its answered grant, or of nobody. The first renewal adds the token.
//! - The number is a random one for each sending. If another client sends the same claim, the script
//!   finds the token of the sending that holds the key by it.
//!
//! `proof/dlock-models/src/redis_take.rs` finds a violation without each of these rules. Anything that is
//! neither a clear grant nor a clear refusal is left to the script.

use std::time::Duration;

use dlock_core::{AcquireRequest, ClaimId, FencingToken, Instant};
use redis::{Pipeline, Value};

use crate::{
    keys::{Bucket, Keys},
    reply::bytes,
};

/// How often a pipeline trims the stream of tokens, which keeps about this number of entries.
pub(crate) const TRIM: u32 = 32;
const ENTRIES: u32 = 100;
/// The number of tokens of a millisecond: see `stream_of` in `lock.lua`.
const PER_MILLISECOND: u64 = 1000;
/// The largest token that scripts count exactly.
const LARGEST_TOKEN: u64 = (1 << 53) - 1;
/// The share of the lease by which the server's clock has to be known, and that has to be left when the
/// answer arrives.
const PRECISION: u32 = 8;
const LEFT: u32 = 2;

/// The pipeline of one claim.
pub(crate) struct Take<'a> {
    request: &'a AcquireRequest,
    keys: Keys,
    sending: u64,
    trims: bool,
}

/// A pipeline that was answered.
#[derive(Debug)]
pub(crate) struct Taken {
    pub(crate) sent: Instant,
    /// The last millisecond of the server's clock in which the key exists.
    pub(crate) ends: u64,
    pub(crate) answers: Vec<Value>,
}

/// What the answers mean.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Outcome {
    Granted {
        token: FencingToken,
        since: Instant,
    },
    /// Another claim of dlock holds the lock, and this one has changed nothing.
    Held,
    /// The script has to decide.
    Open {
        /// Whether the token or the lease was of no use, as it will be for the next claim.
        repeats: bool,
    },
}

impl<'a> Take<'a> {
    /// The commands for this claim. `trims`: they also remove old entries of the stream.
    pub(crate) fn new(request: &'a AcquireRequest, trims: bool) -> Self {
        Self { request, keys: Keys::of(&request.name), sending: rand::random(), trims }
    }

    /// Returns the bucket of its keys.
    pub(crate) fn bucket(&self) -> Bucket {
        Bucket::of(&self.request.name)
    }

    /// Returns the lease of the key.
    pub(crate) const fn lease(&self) -> Duration {
        self.request.lease
    }

    /// Returns whether the server's clock is known well enough, with this uncertainty.
    pub(crate) fn can_use(&self, uncertainty: Duration) -> bool {
        uncertainty.saturating_mul(PRECISION) <= self.request.lease
    }

    /// Returns the commands. `shows_clock` adds `TIME`.
    pub(crate) fn commands(&self, ends: u64, shows_clock: bool) -> Pipeline {
        let AcquireRequest { claim, note, .. } = self.request;
        let sending = format!("{:016x}", self.sending);
        let value = match note {
            Some(note) => format!("{claim}:~{sending} {}", note.as_str()),
            None => format!("{claim}:~{sending}"),
        };
        let mut commands = Pipeline::with_capacity(4);
        let holder = self.keys.holder();
        commands.cmd("SET").arg(holder).arg(value).arg("NX").arg("GET").arg("PXAT").arg(ends);
        commands.cmd("EXISTS").arg(&self.keys.queue_and_readers()[..]);
        commands.cmd("XADD").arg(self.keys.tokens());
        if self.trims {
            commands.arg("MAXLEN").arg("~").arg(ENTRIES);
        }
        commands.arg("*").arg("c").arg(sending);
        if shows_clock {
            commands.cmd("TIME");
        }
        commands.ignore_errors();
        commands
    }
}

impl Taken {
    /// Interprets the answers for this claim, which arrived now.
    pub(crate) fn outcome(&self, claim: ClaimId, lease: Duration, now: Instant) -> Outcome {
        let open = |repeats| Outcome::Open { repeats };
        let [set, exists, added, ..] = &*self.answers else { return open(false) };
        match set {
            Value::Nil => {}
            other => match bytes(other).is_some_and(|record| is_of_another(record, claim)) {
                true => return Outcome::Held,
                false => return open(false),
            },
        }
        let (Value::Int(0), Some((millis, sequence))) = (exists, id(added)) else {
            return open(false);
        };
        let token = (sequence < PER_MILLISECOND)
            .then(|| millis.checked_mul(PER_MILLISECOND)?.checked_add(sequence))
            .flatten()
            .filter(|token| *token <= LARGEST_TOKEN)
            .and_then(|token| FencingToken::new(token).ok());
        // Both are whole milliseconds, and the key exists until the end of its last one.
        let left = self.ends.saturating_sub(millis);
        let left = Duration::from_millis(left).min(lease);
        let is_left = self.sent.saturating_add(left) > now.saturating_add(lease / LEFT);
        match token.filter(|_| is_left) {
            Some(token) => {
                Outcome::Granted { token, since: self.sent.saturating_sub(lease - left) }
            }
            None => open(true),
        }
    }
}

/// Returns whether this is the record of another exclusive holder, of a known format.
fn is_of_another(record: &[u8], claim: ClaimId) -> bool {
    let Some((id, rest)) = record.split_at_checked(32) else { return false };
    let is_dlocks =
        matches!(rest, [b':' | b'!' | b'+', b'0'..=b'9' | b'~', ..]) && !record.contains(&1);
    let id = std::str::from_utf8(id).ok().and_then(|id| id.parse::<ClaimId>().ok());
    is_dlocks && id.is_some_and(|id| id != claim)
}

/// Reads an id of a stream: milliseconds and a sequence.
fn id(value: &Value) -> Option<(u64, u64)> {
    let (millis, sequence) = std::str::from_utf8(bytes(value)?).ok()?.split_once('-')?;
    Some((millis.parse().ok()?, sequence.parse().ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    const LEASE: Duration = Duration::from_secs(10);
    const CLOCK: u64 = 1_700_000_000_000;
    const SENT: Instant = Instant::from_nanos(100_000_000_000);

    fn text(text: &str) -> Value {
        Value::BulkString(text.into())
    }

    fn outcome(answers: [Value; 3], claim: ClaimId, after: Duration) -> Outcome {
        let taken = Taken { sent: SENT, ends: CLOCK + 10_000, answers: answers.to_vec() };
        taken.outcome(claim, LEASE, SENT.saturating_add(after))
    }

    fn added(millis: u64, sequence: u64) -> Value {
        text(&format!("{millis}-{sequence}"))
    }

    #[test]
    fn a_grant_is_relied_on_until_its_end_by_the_answer() {
        let (claim, soon) = (ClaimId::random(), Duration::from_millis(1));
        let granted = |at| outcome([Value::Nil, Value::Int(0), added(at, 7)], claim, soon);
        for late in [0, 5, 1000, 4000] {
            let Outcome::Granted { token, since } = granted(CLOCK + late) else {
                panic!("not after {late} ms")
            };
            assert_eq!(token.get(), (CLOCK + late) * 1000 + 7);
            assert_eq!(since, SENT.saturating_sub(Duration::from_millis(late)));
        }
        // The clock was behind what the client took for it. The lease is not longer for that.
        assert!(matches!(granted(CLOCK - 9), Outcome::Granted { since, .. } if since == SENT));
    }

    #[test]
    fn a_grant_without_a_token_or_enough_time_is_left_to_the_script() {
        let (claim, soon) = (ClaimId::random(), Duration::from_millis(1));
        let free = |added| [Value::Nil, Value::Int(0), added];
        for (answers, after) in [
            (free(added(CLOCK, 0)), LEASE / 2),
            (free(added(CLOCK + 5001, 0)), soon),
            (free(added(u64::MAX, 0)), soon),
            (free(added(CLOCK, 1000)), soon),
            (free(added(LARGEST_TOKEN / 1000 + 1, 0)), soon),
        ] {
            let outcome = outcome(answers.clone(), claim, after);
            assert_eq!(outcome, Outcome::Open { repeats: true }, "{answers:?}");
        }
    }

    #[test]
    fn only_a_record_of_another_claim_is_a_refusal() {
        let (claim, other) = (ClaimId::random(), ClaimId::random());
        let rest = |set| [set, Value::Int(0), added(CLOCK, 0)];
        let soon = Duration::from_millis(1);
        for (record, held) in [
            (format!("{other}:~0a"), true),
            (format!("{other}!17"), true),
            (format!("{other}+17/9*"), true),
            (format!("{other}:17 a note"), true),
            (format!("{other}:17 \u{1}2"), false),
            (format!("{claim}:~0a"), false),
            (format!("{claim}:17"), false),
            (other.to_string(), false),
            (format!("{other}:"), false),
            ("of another program".into(), false),
        ] {
            let outcome = outcome(rest(text(&record)), claim, soon);
            assert_eq!(outcome == Outcome::Held, held, "{record}");
        }
        for answers in [
            [Value::Nil, Value::Int(1), added(CLOCK, 0)],
            [Value::Nil, Value::Nil, added(CLOCK, 0)],
            [Value::Nil, Value::Int(0), Value::Nil],
            [Value::Int(1), Value::Int(0), added(CLOCK, 0)],
        ] {
            assert_eq!(outcome(answers, claim, soon), Outcome::Open { repeats: false });
        }
    }
}

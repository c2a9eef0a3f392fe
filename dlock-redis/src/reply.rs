//! Parsers of the answers to scripts and commands.
//!
//! An answer that can't be read is an error, and never counts as a grant. Another program, a proxy
//! or a later version may have written it.

use dlock_core::{Error, FencingToken, Queue};
use redis::{RedisResult, Value};
use std::{collections::HashMap, time::Duration};

use crate::error::unreadable;

/// The state of a claim on the server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ClaimStatus {
    /// It holds the lock with this token.
    Held(FencingToken),
    /// It waits.
    Waits(QueuePosition),
    /// The lock is busy, and the claim does not wait.
    Busy,
    /// Other claims use the lock with this capacity.
    Conflict(u32),
    /// No token is left that the server counts exactly.
    NoToken,
    /// A record of its name has this format, which this version does not read. 0: the record of a
    /// waiter is damaged.
    Unreadable(u16),
    /// The server does not know it.
    NotFound,
}

impl ClaimStatus {
    /// Returns whether it holds the lock. A claim that waits again, because a failover lost its
    /// grant, does not.
    pub(crate) const fn is_held(self) -> bool {
        matches!(self, Self::Held(_))
    }
}

/// The position of a waiting claim.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct QueuePosition {
    /// Whether no claim waits before it.
    pub(crate) first: bool,
    /// The time from the answer to the end of the first holder's lease.
    pub(crate) next_end: Duration,
    /// The server's clock, in microseconds.
    pub(crate) at: u64,
}

/// Returns the first of these answers, or its error.
pub(crate) fn first(answers: Vec<Value>) -> RedisResult<Value> {
    answers.into_iter().next().unwrap_or_default().extract_error()
}

/// Reads the answer to ACQUIRE, or one of the answers to ACQUIRE_ALL and RENEW.
pub(crate) fn status(value: &Value) -> Result<ClaimStatus, Error> {
    let bad = || unreadable("a script", value);
    let token = |value: i64| {
        u64::try_from(value).ok().and_then(|token| FencingToken::new(token).ok()).ok_or_else(bad)
    };
    let numbers = integers(value).ok_or_else(bad)?;
    match numbers.as_slice() {
        [0] => Ok(ClaimStatus::NotFound),
        [1, value, _] => token(*value).map(ClaimStatus::Held),
        [2, position, next_end, at] => Ok(ClaimStatus::Waits(QueuePosition {
            first: *position == 1,
            next_end: match u64::try_from(*next_end) {
                Ok(left) if left > 0 => Duration::from_millis(left),
                // A key without a lifetime: its end is not known.
                _ => Duration::MAX,
            },
            at: u64::try_from(*at).map_err(|_| bad())?,
        })),
        [3, _] => Ok(ClaimStatus::Busy),
        [5] => Ok(ClaimStatus::NoToken),
        [7, format] => Ok(ClaimStatus::Unreadable(u16::try_from(*format).map_err(|_| bad())?)),
        [4, capacity] => Ok(ClaimStatus::Conflict(u32::try_from(*capacity).map_err(|_| bad())?)),
        _ => Err(bad()),
    }
}

/// Reads a list of answers.
pub(crate) fn statuses(value: &Value) -> Result<Vec<ClaimStatus>, Error> {
    match value {
        Value::Array(values) => values.iter().map(status).collect(),
        _ => Err(unreadable("a script", value)),
    }
}

/// Reads the answers to RENEW. If one of them can't be read, only its claim counts as lost, and the
/// others are not affected.
pub(crate) fn renewed(value: &Value, claims: usize) -> Result<Vec<ClaimStatus>, Error> {
    match value {
        Value::Array(values) if values.len() == claims => {
            Ok(values.iter().map(|value| status(value).unwrap_or(ClaimStatus::NotFound)).collect())
        }
        _ => Err(unreadable("a script", value)),
    }
}

/// Returns the server's clock, in microseconds, as a list of answers shows it.
pub(crate) fn time_of(value: &Value) -> Option<u64> {
    let Value::Array(values) = value else { return None };
    // Any of the answers shows the same time, since a script reads the clock once.
    let at = values.iter().find_map(|value| match integers(value)?.as_slice() {
        [1, _, at] | [2, _, _, at] | [3, at] => Some(*at),
        _ => None,
    });
    u64::try_from(at?).ok()
}

/// Returns the server's clock, in microseconds, if the answer to a script shows it.
pub(crate) fn clock(value: &Value) -> Option<u64> {
    // No other number in an answer is as large, since as a time it would be in January 1970.
    let is_time = |number: &i64| *number > 1_000_000_000_000;
    let shown = match (value, integers(value).as_deref()) {
        // PLAIN answers with one integer if it is the clock.
        (Value::Int(at), _) => Some(*at),
        (_, Some([1, _, at] | [2, _, _, at] | [3 | 6, at])) => Some(*at),
        // That of RENEW_EXCLUSIVE.
        (_, Some([at, ..])) => Some(*at),
        _ => return time_of(value),
    };
    u64::try_from(shown.filter(is_time)?).ok()
}

/// Returns whether a script ran after its deadline, and so has done nothing.
pub(crate) fn is_late(value: &Value) -> bool {
    matches!(value, Value::Array(parts) if matches!(parts.as_slice(), [Value::Int(6), Value::Int(_)]))
}

/// Reads the answer to RENEW_EXCLUSIVE: the server's clock, in microseconds, and the indices, from 0,
/// of the claims that hold nothing.
pub(crate) fn renewed_exclusive(value: &Value) -> Option<(u64, Vec<usize>)> {
    let numbers = integers(value)?;
    let (at, gone) = numbers.split_first()?;
    let position = |at: &i64| usize::try_from(at.checked_sub(1)?).ok();
    Some((u64::try_from(*at).ok()?, gone.iter().map(position).collect::<Option<_>>()?))
}

/// Reads a list of integers.
pub(crate) fn integers(value: &Value) -> Option<Vec<i64>> {
    let Value::Array(values) = value else { return None };
    values.iter().map(|value| if let Value::Int(i) = value { Some(*i) } else { None }).collect()
}

/// Reads the answer to `TIME`, in microseconds.
pub(crate) fn micros(time: &Value) -> Option<u64> {
    let Value::Array(parts) = time else { return None };
    let part = |at: usize| match parts.get(at) {
        Some(Value::BulkString(text)) => std::str::from_utf8(text).ok()?.parse::<u64>().ok(),
        _ => None,
    };
    part(0)?.checked_mul(1_000_000)?.checked_add(part(1)?)
}

/// Reads a text.
pub(crate) fn text(value: &Value) -> Option<String> {
    match value {
        Value::BulkString(bytes) => Some(String::from_utf8_lossy(bytes).into_owned()),
        Value::VerbatimString { text, .. } | Value::SimpleString(text) => Some(text.clone()),
        _ => None,
    }
}

/// Reads a list of names and values, such as the answer to `CONFIG GET`.
pub(crate) fn pairs(value: &Value) -> Option<HashMap<String, String>> {
    let pair = |(name, value): (&Value, &Value)| Some((text(name)?, text(value)?));
    Some(match value {
        Value::Map(pairs) => pairs.iter().filter_map(|(name, value)| pair((name, value))).collect(),
        Value::Array(parts) => {
            parts.chunks_exact(2).filter_map(|both| pair((&both[0], &both[1]))).collect()
        }
        _ => return None,
    })
}

/// Returns the fields of `INFO` and its like.
pub(crate) fn fields(info: &str) -> HashMap<String, String> {
    let fields = info.lines().filter_map(|line| line.trim().split_once(':'));
    fields.map(|(name, value)| (name.to_owned(), value.to_owned())).collect()
}

/// Reads the answer to `SCAN`: the next cursor, and keys.
pub(crate) fn scanned(value: &Value) -> Option<(String, Vec<&[u8]>)> {
    let Value::Array(parts) = value else { return None };
    let [Value::BulkString(cursor), Value::Array(keys)] = parts.as_slice() else { return None };
    let keys = keys.iter().map(bytes).collect::<Option<_>>()?;
    Some((String::from_utf8(cursor.clone()).ok()?, keys))
}

pub(crate) fn bytes(value: &Value) -> Option<&[u8]> {
    match value {
        Value::BulkString(bytes) => Some(bytes),
        _ => None,
    }
}

pub(crate) fn number(value: &Value) -> Option<u64> {
    match value {
        Value::Int(value) => u64::try_from(*value).ok(),
        _ => None,
    }
}

/// Added to each lease, so that none ends early. Versions of the server differ in the time that
/// they take for a command.
pub(crate) const TICK: Duration = Duration::from_millis(1);

/// Returns a lease as the server takes it, in milliseconds: rounded up, and a tick longer.
pub(crate) fn millis(lease: Duration) -> u64 {
    u64::try_from((lease + TICK).as_micros().div_ceil(1000)).unwrap_or(u64::MAX)
}

/// Returns the lease of a renewal in milliseconds, as scripts take it: negative for the last renewal
/// of a claim.
pub(crate) fn lease_argument(lease: Duration, is_last: bool) -> i64 {
    let lease = i64::try_from(millis(lease)).unwrap_or(i64::MAX);
    if is_last { -lease } else { lease }
}

/// 1 for a claim that does not wait.
pub(crate) const fn fails_if_busy(queue: Queue) -> u8 {
    match queue {
        Queue::FailIfBusy => 1,
        _ => 0,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn list(numbers: &[i64]) -> Value {
        Value::Array(numbers.iter().copied().map(Value::Int).collect())
    }

    #[test]
    fn an_answer_about_leases_shows_the_clock_of_the_server() {
        assert_eq!(renewed_exclusive(&list(&[99, 1, 3])), Some((99, vec![0, 2])));
        for bad in [&[][..], &[-1], &[99, 0], &[99, -1]] {
            assert_eq!(renewed_exclusive(&list(bad)), None, "{bad:?}");
        }
        let held = Value::Array(vec![list(&[0]), list(&[1, 7, 99])]);
        assert_eq!(time_of(&held), Some(99));
        assert!(statuses(&held).is_ok_and(|all| all[1].is_held()));
        assert_eq!(time_of(&Value::Array(vec![list(&[2, 1, 0, 98])])), Some(98));
        assert_eq!(time_of(&Value::Array(vec![list(&[0]), list(&[1, 7])])), None);
    }

    #[test]
    fn answers_that_show_the_clock_are_recognized() {
        const AT: i64 = 1_700_000_000_000_000;
        let all = |answers: &[&[i64]]| Value::Array(answers.iter().map(|one| list(one)).collect());
        for shows in [
            Value::Int(AT),
            list(&[1, 7, AT]),
            list(&[2, 1, 9, AT]),
            list(&[3, AT]),
            list(&[6, AT]),
            list(&[AT]),
            list(&[AT, 1, 3]),
            all(&[&[0], &[3, AT]]),
        ] {
            assert_eq!(clock(&shows), u64::try_from(AT).ok(), "{shows:?}");
            assert_eq!(is_late(&shows), shows == list(&[6, AT]));
        }
        let [release, gone, spent] = [Value::Int(1), list(&[0]), list(&[5])];
        let inspect = Value::Array(vec![Value::Int(AT), Value::Array(Vec::new())]);
        for shows_none in [release, gone, spent, inspect, list(&[4, 3]), Value::Nil] {
            assert_eq!(clock(&shows_none), None, "{shows_none:?}");
        }
    }

    #[test]
    fn an_unreadable_answer_affects_one_claim() {
        for bad in [list(&[1, 0, 9]), list(&[1, i64::MIN, 9]), list(&[2, 1, 0, -1]), Value::Nil] {
            let answers = Value::Array(vec![list(&[1, 7, 9]), bad, list(&[2, 2, 0, 9])]);
            let all = renewed(&answers, 3).unwrap();
            assert!(all[0].is_held() && all[1] == ClaimStatus::NotFound, "{all:?}");
            assert!(matches!(all[2], ClaimStatus::Waits(_)), "{all:?}");
            assert!(renewed(&answers, 2).is_err() && renewed(&answers, 4).is_err());
            assert!(statuses(&answers).is_err());
        }
    }

    #[test]
    fn a_holder_without_expiry_is_not_polled_all_the_time() {
        for left in [0, -1, i64::MIN] {
            let answer = Value::Array([2, 1, left, 9].map(Value::Int).to_vec());
            let Ok(ClaimStatus::Waits(position)) = status(&answer) else { panic!("{answer:?}") };
            assert_eq!(position.next_end, Duration::MAX);
        }
    }
}

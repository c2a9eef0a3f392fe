//! The holders and waiters of a lock, as the server shows them.

use std::{collections::HashMap, time::Duration};

use dlock_core::{ClaimId, ClaimState, Error, FencingToken, LockName, LockState, Mode, Note};
use redis::Value;

use crate::{
    error::unreadable,
    reply::{TICK, bytes, number},
    session::Session,
};

impl Session {
    /// Returns the holders and waiters of a lock.
    pub(crate) async fn inspect(&self, name: &LockName) -> Result<LockState, Error> {
        state(&self.run(&self.scripts.inspect(name)).await?)
    }
}

/// Reads the answer to INSPECT.
pub(crate) fn state(value: &Value) -> Result<LockState, Error> {
    read_state(value).ok_or_else(|| unreadable("inspect", value))
}

fn read_state(value: &Value) -> Option<LockState> {
    let Value::Array(parts) = value else { return None };
    let (last, claims, notes) = match parts.as_slice() {
        [last, Value::Array(claims)] => (last, claims, &[][..]),
        [last, Value::Array(claims), Value::Array(notes)] => (last, claims, &**notes),
        _ => return None,
    };
    let notes: HashMap<&[u8], &[u8]> = notes
        .chunks_exact(2)
        .filter_map(|pair| Some((bytes(&pair[0])?, bytes(&pair[1])?)))
        .collect();
    let (mut holders, mut waiters) = (Vec::new(), Vec::new());
    for claim in claims.chunks(6) {
        let [Value::BulkString(id), weight, capacity, token, left, age] = claim else {
            return None;
        };
        let claim: ClaimId = std::str::from_utf8(id).ok()?.parse().ok()?;
        let is_waiter = *token == Value::Int(-1);
        let token = match is_waiter {
            true => None,
            false => FencingToken::new(number(token)?).ok(),
        };
        let weight = u32::try_from(number(weight)?).ok()?;
        let capacity = u32::try_from(number(capacity)?).ok()?;
        if weight == 0 || weight > capacity {
            return None;
        }
        let mode = Mode::from_weight(weight, capacity);
        let remaining = match left {
            // Somebody has removed the lifetime of the key.
            Value::Int(..0) => Duration::MAX,
            // Without the millisecond that `millis` has added.
            left => Duration::from_micros(number(left)?).saturating_sub(TICK),
        };
        let age = number(age).map(Duration::from_micros);
        let note = notes.get(&**id).and_then(|note| std::str::from_utf8(note).ok());
        // A text that is no valid note is left out, since nothing depends on it.
        let note = note.and_then(|note| Note::new(note).ok());
        let state = ClaimState::new(claim, mode, token, remaining).with_age(age).with_note(note);
        if is_waiter { waiters.push(state) } else { holders.push(state) }
    }
    // In the order of their grants. The script lists shared holders by the ends of their leases.
    holders.sort_by_key(|holder| holder.token);
    let last = match last {
        // More than a script counts exactly, and possibly more than a token can be.
        Value::BulkString(digits) => {
            let digits = std::str::from_utf8(digits).ok()?;
            let last = digits.parse().ok().and_then(|last| FencingToken::new(last).ok());
            Some(last.unwrap_or(FencingToken::MAX))
        }
        last => FencingToken::new(number(last)?).ok(),
    };
    Some(LockState::new(holders, waiters, last))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_note_belongs_to_its_claim_and_an_invalid_one_is_none() {
        let text = |text: &str| Value::BulkString(text.into());
        let [one, two] = [1, 2].map(ClaimId::from_bits);
        let claim = |id: ClaimId, token| {
            [vec![text(&id.to_string())], [1, 3, token, 1000, -1].map(Value::Int).to_vec()].concat()
        };
        let claims = Value::Array([claim(one, 7), claim(two, -1)].concat());
        for (note, seen) in [("web-3 é", Some("web-3 é")), ("a\n", None), ("", None)] {
            let notes = Value::Array(vec![text(&two.to_string()), text(note)]);
            let state = state(&Value::Array(vec![Value::Int(9), claims.clone(), notes])).unwrap();
            assert_eq!(state.holders[0].note, None);
            assert_eq!(state.waiters[0].note.as_ref().map(Note::as_str), seen);
        }
    }

    #[test]
    fn a_weight_that_no_claim_has_is_not_read() {
        let answer = |weight, capacity| {
            let id = Value::BulkString(ClaimId::from_bits(1).to_string().into());
            let claim = [weight, capacity, 7, 1000, -1].map(Value::Int);
            let claim = std::iter::once(id).chain(claim).collect();
            Value::Array(vec![Value::Int(9), Value::Array(claim)])
        };
        assert!(state(&answer(2, 3)).is_ok());
        for (weight, capacity) in [(0, 3), (4, 3), (0, 0), (-1, 3), (1, 1 << 32)] {
            assert!(state(&answer(weight, capacity)).is_err(), "{weight} of {capacity}");
        }
    }
}

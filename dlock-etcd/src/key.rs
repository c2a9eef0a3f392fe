//! The keys of locks, claims and sessions.
//!
//! ```text
//! <root>/<name>/<slot>        a mutex or a writer: 32 hexadecimal digits
//! <root>/<name>/<lease>       Go's mutex: the lease of its session, up to 16 digits
//! <root>/<name>/n<format>-*   a claim of a later format
//! <root>/<name>/p<slot>       permits
//! <root>/<name>/r<slot>       a reader
//! <root>/%session/<session>   the marker of a session
//! <root>/%vote                never exists
//! ```
//!
//! A session is known by its first lease, up to 16 digits. A slot is a session and a number, 16
//! digits each. Claims of one session that follow each other on a name have the same slot, and their
//! ids are in the values: etcd keeps each key that was ever used until the next compaction, and a
//! read of a queue passes all of them.
//!
//! The letters matter: whatever blocks a reader sorts before `r`. In a name only `%` and `/` are
//! encoded, so that the keys of one lock never begin with those of another.

use std::collections::{BTreeSet, HashMap};

use dlock_core::{ClaimId, FencingToken, LockName, Mode};
use parking_lot::Mutex;
use percent_encoding::percent_decode_str;

use crate::client::Bytes;

/// The number of tokens of one create revision: `revision * 32768 + k`. Revisions below 2^48 have
/// tokens, which is enough for 89 years at 100,000 writes a second.
pub(crate) const TOKENS: u32 = 1 << 15;

/// The number of names in one transaction, which may have 128 conditions and 128 operations: two
/// of each for every name, and one of each for the epoch.
pub(crate) const MOST_NAMES: usize = 63;

/// Returns the first token of a claim that was created at this revision.
pub(crate) fn token(created: i64) -> Option<FencingToken> {
    let first = u64::try_from(created).ok()?.checked_mul(u64::from(TOKENS))?;
    FencingToken::new(first).ok()
}

/// The slot of a claim among all claims of a name that exist at the same time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Slot(u128);

/// The kind of a claim's key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    Writer,
    Reader,
    Permits,
}

/// The meaning of a key below a lock's prefix.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Entry {
    /// A claim of dlock, with its slot.
    Ours(Kind, Slot),
    /// Go's mutex. Its claim has the number of the lease.
    Go(ClaimId),
    /// A claim of a format that this version does not read.
    Newer(u64),
    /// A key below another root, which lies within this one. It has nothing to do with the lock.
    Nested,
    /// Another program's key.
    Foreign,
}

/// The keys below one root.
#[derive(Clone, Debug)]
pub(crate) struct Keys {
    /// Ends with a slash.
    root: String,
}

impl Keys {
    /// Creates the keys below a root, which does not end with a slash.
    pub(crate) fn below(root: &str) -> Self {
        Self { root: format!("{root}/") }
    }

    /// Returns the prefix of all keys.
    pub(crate) fn root(&self) -> &str {
        &self.root
    }

    /// Returns the prefix of a lock's keys.
    pub(crate) fn prefix(&self, name: &LockName) -> String {
        format!("{}{}/", self.root, encoded(name.as_str()))
    }

    /// Returns the key of a session's marker.
    pub(crate) fn marker(&self, session: i64) -> String {
        format!("{}%session/{session:x}", self.root)
    }

    /// Returns the key that never exists. Its deletion changes nothing, and is voted on.
    pub(crate) fn vote(&self) -> String {
        format!("{}%vote", self.root)
    }

    /// Returns the range of the keys of all locks whose names begin with this text.
    pub(crate) fn starting_with(&self, name: &str) -> (Bytes, Bytes) {
        let first = format!("{}{}", self.root, encoded(name));
        let mut end = first.clone().into_bytes();
        // No byte of UTF-8 is 0xFF.
        if let Some(last) = end.last_mut() {
            *last = last.saturating_add(1);
        }
        (first.into(), end.into())
    }

    /// Returns the name of the lock whose key this is. `None` for markers and other programs' keys.
    pub(crate) fn name_of(&self, key: &str) -> Option<LockName> {
        let (segment, rest) = key.strip_prefix(&self.root)?.split_once('/')?;
        if Entry::parse(rest) == Entry::Nested {
            return None;
        }
        let name = LockName::new(&percent_decode_str(segment).decode_utf8().ok()?).ok()?;
        (encoded(name.as_str()) == segment).then_some(name)
    }
}

impl Slot {
    /// Returns a slot of the session whose first lease this was.
    pub(crate) fn of(session: i64, number: u32) -> Self {
        Self(u128::from(session.unsigned_abs()) << 64 | u128::from(number))
    }

    /// Returns whether it belongs to the session whose first lease this was.
    pub(crate) fn is_of(self, session: i64) -> bool {
        self.0 >> 64 == u128::from(session.unsigned_abs())
    }

    /// Returns the id of a claim whose value can't be read.
    pub(crate) const fn as_claim(self) -> ClaimId {
        ClaimId::from_bits(self.0)
    }
}

impl Kind {
    pub(crate) const fn of(mode: Mode) -> Self {
        match mode {
            Mode::Shared => Self::Reader,
            Mode::Permits { .. } => Self::Permits,
            _ => Self::Writer,
        }
    }

    /// Returns the key of a claim of this kind.
    pub(crate) fn key(self, prefix: &str, slot: Slot) -> String {
        let letter = match self {
            Self::Writer => "",
            Self::Reader => "r",
            Self::Permits => "p",
        };
        format!("{prefix}{letter}{}", slot.as_claim())
    }
}

impl Entry {
    /// Parses the bytes of a key behind the prefix of its lock.
    pub(crate) fn of(rest: &[u8]) -> Self {
        str::from_utf8(rest).map_or(Self::Foreign, Self::parse)
    }

    /// Parses the part of a key behind the prefix of its lock.
    pub(crate) fn parse(rest: &str) -> Self {
        if rest.contains('/') {
            return Self::Nested;
        }
        if let Some(format) = rest.strip_prefix('n').and_then(|rest| rest.split_once('-')) {
            let digits = format.0.bytes().all(|byte| byte.is_ascii_digit());
            return match format.0.parse() {
                Ok(format) if digits => Self::Newer(format),
                _ => Self::Foreign,
            };
        }
        let (kind, slot) = match rest.split_at_checked(1) {
            Some(("r", slot)) => (Kind::Reader, slot),
            Some(("p", slot)) => (Kind::Permits, slot),
            _ => (Kind::Writer, rest),
        };
        // A claim id is written the same way.
        if let Ok(slot) = slot.parse() {
            return Self::Ours(kind, Slot(ClaimId::to_bits(slot)));
        }
        match u64::from_str_radix(rest, 16) {
            // As Go writes it: lower case, and no zeros in front.
            Ok(lease) if format!("{lease:x}") == rest => Self::Go(ClaimId::from_bits(lease.into())),
            _ => Self::Foreign,
        }
    }
}

fn encoded(name: &str) -> String {
    name.replace('%', "%25").replace('/', "%2F")
}

/// Returns the end of the range of all keys with this prefix, which ends with a slash.
pub(crate) fn end(prefix: &str) -> String {
    let mut end = prefix.to_owned();
    end.pop();
    end.push('0'); // The character behind the slash.
    end
}

/// Returns the first key behind this one.
pub(crate) fn past(key: &[u8]) -> Bytes {
    [key, &[0]].concat().into()
}

/// The slots of a session's claims: the numbers in use, by the prefix of the lock's keys.
///
/// The claims of one name that exist at the same time have different slots. A slot is free again
/// when the last user of its claim is gone, so after its key is deleted: the task that deletes a
/// key has the claim until the outcome is certain. A slot whose key may be deleted later is
/// retired: it is never used again.
#[derive(Debug, Default)]
pub(crate) struct KeySlots(Mutex<HashMap<String, BTreeSet<u32>>>);

impl KeySlots {
    /// Takes the smallest free number of this lock.
    pub(crate) fn take(&self, prefix: &str) -> u32 {
        let mut all = self.0.lock();
        let used = all.entry(prefix.to_owned()).or_default();
        let free = (0..).zip(&*used).find(|(number, used)| number != *used);
        let number = free.map_or(used.last().map_or(0, |last| last + 1), |(number, _)| number);
        used.insert(number);
        number
    }

    /// Frees a number.
    pub(crate) fn free(&self, prefix: &str, number: u32) {
        let mut all = self.0.lock();
        if let Some(used) = all.get_mut(prefix) {
            used.remove(&number);
            if used.is_empty() {
                all.remove(prefix);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_do_not_nest_and_round_trip() {
        let keys = Keys::below("/dlock");
        for (name, prefix) in [
            ("orders", "/dlock/orders/"),
            ("a/b", "/dlock/a%2Fb/"),
            ("100%", "/dlock/100%25/"),
            ("%session", "/dlock/%25session/"),
            ("é 🔒", "/dlock/é 🔒/"),
        ] {
            let name = LockName::new(name).unwrap();
            assert_eq!(keys.prefix(&name), prefix);
            let key = Kind::Reader.key(prefix, Slot::of(7, 1));
            assert_eq!(keys.name_of(&key), Some(name));
        }
        for key in
            [keys.marker(77), keys.vote(), "/dlock".into(), "/x/a/b".into(), "/dlock/%41/x".into()]
        {
            assert_eq!(keys.name_of(&key), None, "{key}");
        }
        assert_eq!(end("/dlock/a/"), "/dlock/a0");
    }

    #[test]
    fn keys_show_their_kind_and_slot() {
        let slot = Slot::of(0x694d_7d2a_5c1f_0d06, 10);
        assert!(slot.is_of(0x694d_7d2a_5c1f_0d06) && !slot.is_of(10));
        for (kind, letter) in [(Kind::Writer, ""), (Kind::Reader, "r"), (Kind::Permits, "p")] {
            let key = kind.key("", slot);
            assert_eq!(key, format!("{letter}694d7d2a5c1f0d06000000000000000a"));
            assert_eq!(Entry::parse(&key), Entry::Ours(kind, slot));
        }
        let go = ClaimId::from_bits(0x694d_7d2a_5c1f_0d06);
        assert_eq!(Entry::parse("694d7d2a5c1f0d06"), Entry::Go(go));
        assert_eq!(Entry::parse("n9-anything"), Entry::Newer(9));
    }

    #[test]
    fn a_foreign_key_is_not_a_claim() {
        let claim = ClaimId::random().to_string();
        for rest in ["", "lock", "0a", "ABC", "+1", "n-", "nx-", "n+1-", "r1", "rr"] {
            assert_eq!(Entry::parse(rest), Entry::Foreign, "{rest}");
        }
        for rest in [format!("q{claim}"), format!("{claim}0")] {
            assert_eq!(Entry::parse(&rest), Entry::Foreign, "{rest}");
        }
        for rest in [format!("sub/{claim}"), format!("r{claim}/x"), "%session/7".to_owned()] {
            assert_eq!(Entry::parse(&rest), Entry::Nested, "{rest}");
        }
    }

    #[test]
    fn the_largest_revision_with_tokens_has_room_for_each() {
        let last = (1_i64 << 48) - 1;
        assert_eq!(token(last).unwrap().plus(u64::from(TOKENS) - 1), FencingToken::MAX);
        assert_eq!((token(last + 1), token(-1), token(0)), (None, None, None));
    }

    #[test]
    fn the_smallest_free_number_is_taken() {
        let slots = KeySlots::default();
        assert_eq!([(); 3].map(|()| slots.take("a/")), [0, 1, 2]);
        assert_eq!(slots.take("b/"), 0);
        slots.free("a/", 1);
        assert_eq!([(); 2].map(|()| slots.take("a/")), [1, 3]);
        for number in 0..4 {
            slots.free("a/", number);
        }
        slots.free("b/", 0);
        assert!(slots.0.lock().is_empty());
    }
}

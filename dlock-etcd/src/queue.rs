//! The rule of a lock, read from its keys.
//!
//! The queue is the order of create revisions. Its longest prefix whose weights together fit holds
//! the lock. That is the rule of `dlock_core::machine`, but here the result is not stored: each
//! client computes it. A claim depends only on the keys before it, and these only ever go or become
//! weaker. So any state of the store since the creation of a claim is recent enough to grant it.
//!
//! A claim reads, and a waiting claim watches, only what may block it:
//!
//! | claim | waits for | reads | watches |
//! |---|---|---|---|
//! | mutex or writer | all before it | the newest two keys before it | the deletion of the newest |
//! | reader | writers | the newest writer before it | changes of that |
//! | permits, next in line | any holder | all keys | changes of all permits |
//! | permits, further back | the waiter before it | all keys | changes of that waiter, which writes its key again when it is granted |

use dlock_core::{ClaimId, Error, Mode, unknown_format};

use crate::{
    client::{Bytes, KeyValue, RangeRequest, SortOrder, SortTarget},
    error::{foreign, unreadable},
    key::{Entry, Kind, end},
    record::Record,
};

/// A claim in the queue of a lock.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Node {
    pub(crate) key: Bytes,
    /// Made from the slot if only the key was read.
    pub(crate) claim: ClaimId,
    pub(crate) kind: Kind,
    /// Go's mutex has written it.
    pub(crate) is_go: bool,
    pub(crate) created: i64,
    pub(crate) modified: i64,
    pub(crate) lease: i64,
    /// `None` for Go's keys, and if only the key was read.
    pub(crate) record: Option<Record>,
}

/// The state of a claim.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Standing {
    /// It holds the lock.
    Held {
        /// There are claims behind it, as far as was read.
        followed: bool,
    },
    /// It waits.
    Behind(Behind),
    /// The lock is in use as something else: as a semaphore with this capacity, if known.
    Conflict(Kind, Option<u32>),
    /// Its key does not exist.
    Gone,
}

/// The keys to watch.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Behind {
    /// The deletion of this key, the only one before the claim.
    Last(Bytes),
    /// The deletion of this key.
    End(Bytes),
    /// Any change of this key.
    Change(Bytes),
    /// Any change of the lock's permits.
    Permits,
}

impl Node {
    /// Reads a key of the lock with this prefix.
    ///
    /// # Errors
    /// `Protocol` for another program's key, and for a format that this version does not read.
    pub(crate) fn read(prefix: &str, kv: KeyValue) -> Result<Self, Error> {
        let rest = kv.key.strip_prefix(prefix.as_bytes());
        let (kind, id, is_go) = match rest.map_or(Entry::Foreign, Entry::of) {
            Entry::Ours(kind, slot) => (kind, slot.as_claim(), false),
            Entry::Go(claim) => (Kind::Writer, claim, true),
            Entry::Newer(format) => return Err(unknown_format(format)),
            Entry::Nested | Entry::Foreign => return Err(foreign(&kv.key)),
        };
        let record = if is_go { None } else { Record::parse(&kv.value) };
        if let Some(format) = record.as_ref().and_then(|record| record.newer) {
            return Err(unknown_format(format));
        }
        let claim = record.as_ref().map_or(id, |record| record.claim);
        let (created, modified, lease) = (kv.create_revision, kv.mod_revision, kv.lease);
        Ok(Self { key: kv.key, claim, kind, is_go, created, modified, lease, record })
    }

    /// Returns the mode.
    ///
    /// # Errors
    /// `Protocol` for permits without a readable number.
    pub(crate) fn mode(&self) -> Result<Mode, Error> {
        match (self.kind, self.record.as_ref().map(|record| record.mode)) {
            (Kind::Writer, Some(Mode::Shared)) | (Kind::Reader, _) => Ok(Mode::Shared),
            (Kind::Writer, _) => Ok(Mode::Exclusive),
            (Kind::Permits, Some(mode @ Mode::Permits { .. })) => Ok(mode),
            (Kind::Permits, _) => Err(unreadable(&self.key)),
        }
    }

    fn as_conflict(&self) -> Standing {
        let capacity = self.mode().ok().map(Mode::capacity);
        Standing::Conflict(self.kind, capacity.filter(|_| self.kind == Kind::Permits))
    }
}

/// Returns the range of the keys that may block a claim.
pub(crate) fn range(prefix: &str, mode: Mode) -> (Bytes, Bytes) {
    let end = match mode {
        // Readers, whose letter is `r`, do not block each other.
        Mode::Shared => format!("{prefix}r"),
        _ => end(prefix),
    };
    (prefix.to_owned().into(), end.into())
}

/// Returns the read of what may block a claim, and of its own key unless it is a reader. With
/// `created`, it is a claim of this revision; without, it is a new claim.
pub(crate) fn blockers(prefix: &str, mode: Mode, created: Option<i64>) -> RangeRequest {
    let (key, range_end) = range(prefix, mode);
    let mut read = RangeRequest { key, range_end, ..Default::default() };
    if matches!(mode, Mode::Permits { .. }) {
        return read;
    }
    read.keys_only = mode == Mode::Exclusive;
    read.limit = if read.keys_only { 3 } else { 1 };
    read.sort_order = SortOrder::Descend.into();
    read.sort_target = SortTarget::Create.into();
    let before = if mode == Mode::Shared { 1 } else { 0 };
    read.max_create_revision = created.map_or(0, |created| created - before);
    read
}

/// Returns the read of all keys below the prefix of a lock.
pub(crate) fn whole(prefix: &str) -> RangeRequest {
    let (key, range_end) = (prefix.to_owned().into(), end(prefix).into());
    RangeRequest { key, range_end, ..Default::default() }
}

/// Returns whether a key has nothing to do with the lock with this prefix: see [`Entry::Nested`].
pub(crate) fn is_nested(prefix: &str, key: &[u8]) -> bool {
    let rest = key.strip_prefix(prefix.as_bytes());
    rest.is_some_and(|rest| Entry::of(rest) == Entry::Nested)
}

/// Returns the state of a claim of this mode, from what was read. `None` if the read may lack keys,
/// because it is limited and has keys that have nothing to do with the lock.
///
/// # Errors
/// As [`Node::read`] and [`Node::mode`].
pub(crate) fn standing(
    prefix: &str,
    mode: Mode,
    created: i64,
    kvs: Vec<KeyValue>,
) -> Result<Option<Standing>, Error> {
    if kvs.iter().any(|kv| is_nested(prefix, &kv.key)) {
        return Ok(None);
    }
    standing_among(prefix, mode, created, kvs).map(Some)
}

/// Like [`standing`], from a read that lacks no keys.
pub(crate) fn standing_among(
    prefix: &str,
    mode: Mode,
    created: i64,
    mut kvs: Vec<KeyValue>,
) -> Result<Standing, Error> {
    kvs.retain(|kv| !is_nested(prefix, &kv.key));
    let followed = kvs.iter().any(|kv| kv.create_revision > created);
    let ahead = kvs.into_iter().filter(|kv| kv.create_revision < created);
    let mut ahead = ahead.map(|kv| Node::read(prefix, kv)).collect::<Result<Vec<_>, _>>()?;
    ahead.sort_by_key(|node| node.created);
    let held = Standing::Held { followed };
    let Some(last) = ahead.last() else { return Ok(held) };
    let Mode::Permits { of, .. } = mode else {
        return Ok(match (mode, last.kind) {
            (_, Kind::Permits) => last.as_conflict(),
            // A writer that has become a reader was the first.
            (Mode::Shared, _) if last.mode()? == Mode::Shared => held,
            (Mode::Shared, _) => Standing::Behind(Behind::Change(last.key.clone())),
            _ if ahead.len() == 1 => Standing::Behind(Behind::Last(last.key.clone())),
            _ => Standing::Behind(Behind::End(last.key.clone())),
        });
    };
    let mut modes = Vec::with_capacity(ahead.len() + 1);
    for node in &ahead {
        match node.mode()? {
            permits @ Mode::Permits { of: theirs, .. } if theirs == of => modes.push(permits),
            _ => return Ok(node.as_conflict()),
        }
    }
    modes.push(mode);
    Ok(match holding(modes) {
        first if first > ahead.len() => held,
        first if first == ahead.len() => Standing::Behind(Behind::Permits),
        _ => Standing::Behind(Behind::Change(last.key.clone())),
    })
}

/// Returns the length of the longest prefix of these modes that fits.
pub(crate) fn holding(modes: impl IntoIterator<Item = Mode>) -> usize {
    let mut taken = 0;
    modes
        .into_iter()
        .take_while(|mode| {
            taken += u64::from(mode.weight());
            taken <= u64::from(mode.capacity())
        })
        .count()
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::key::Slot;

    const PREFIX: &str = "/dlock/x/";

    /// A key of this mode that was created at this revision.
    fn kv(kind: Kind, mode: Mode, created: i64) -> KeyValue {
        let claim = ClaimId::from_bits(created.unsigned_abs().into());
        let record = Record { mode, lease: Duration::from_secs(1), claim, note: None, newer: None };
        KeyValue {
            key: kind.key(PREFIX, Slot::of(created, 0)).into(),
            value: record.text().into(),
            create_revision: created,
            mod_revision: created,
            ..Default::default()
        }
    }

    fn of(mode: Mode, created: i64) -> KeyValue {
        kv(Kind::of(mode), mode, created)
    }

    #[test]
    fn a_claim_waits_for_what_blocks_it() {
        let (x, s) = (Mode::Exclusive, Mode::Shared);
        let p = |n| Mode::permits(n, 3).unwrap();
        let held = |followed| Standing::Held { followed };
        let last = |created| Standing::Behind(Behind::Last(of(x, created).key));
        let end = |created| Standing::Behind(Behind::End(of(x, created).key));
        let change = |mode, created| Standing::Behind(Behind::Change(of(mode, created).key));
        for (mode, others, expected) in [
            (x, vec![], held(false)),
            (x, vec![of(x, 9)], held(true)),
            (x, vec![of(x, 3)], last(3)),
            (x, vec![of(x, 3), of(x, 2)], end(3)),
            (x, vec![of(p(1), 3)], Standing::Conflict(Kind::Permits, Some(3))),
            (s, vec![], held(false)),
            (s, vec![of(x, 3)], change(x, 3)),
            (s, vec![kv(Kind::Writer, s, 3)], held(false)),
            (s, vec![of(p(1), 3)], Standing::Conflict(Kind::Permits, Some(3))),
            (p(2), vec![of(p(1), 3), of(p(3), 9)], held(true)),
            (p(2), vec![of(p(2), 3)], Standing::Behind(Behind::Permits)),
            (p(1), vec![of(p(2), 4), of(p(2), 3)], change(p(2), 4)),
            (p(1), vec![of(x, 3)], Standing::Conflict(Kind::Writer, None)),
            (
                p(1),
                vec![of(Mode::permits(1, 4).unwrap(), 3)],
                Standing::Conflict(Kind::Permits, Some(4)),
            ),
        ] {
            let seen = format!("{mode:?} behind {others:?}");
            let own = others.into_iter().chain([of(mode, 5)]).collect();
            assert_eq!(standing(PREFIX, mode, 5, own).unwrap(), Some(expected), "{seen}");
        }
    }

    #[test]
    fn go_is_a_writer_and_other_keys_are_refused() {
        let go = |rest: &str| KeyValue {
            key: format!("{PREFIX}{rest}").into(),
            create_revision: 3,
            ..Default::default()
        };
        let behind = Standing::Behind(Behind::Last(go("7b").key));
        let read = |kvs| standing(PREFIX, Mode::Exclusive, 5, kvs).unwrap();
        assert_eq!(read(vec![go("7b")]), Some(behind.clone()));
        assert_eq!(read(vec![go("sub/7b"), go("7b")]), None);
        let all = vec![go("sub/7b"), go("7b"), go("%session/7b")];
        assert_eq!(standing_among(PREFIX, Mode::Exclusive, 5, all).unwrap(), behind);
        for (rest, says) in [("n9-x", "format 9"), ("lock", "lock")] {
            let error = standing(PREFIX, Mode::Shared, 5, vec![go(rest)]).unwrap_err();
            assert!(error.to_string().contains(says), "{error}");
        }
        let permits = KeyValue { value: Bytes::new(), ..of(Mode::permits(1, 2).unwrap(), 3) };
        assert!(standing(PREFIX, Mode::permits(1, 2).unwrap(), 5, vec![permits]).is_err());
    }
}

//! The keys of a lock on the server.
//!
//! Each name has four keys, and shares a fifth with the other names of its bucket. They are always in
//! one hash slot, since the first braces of a key are dlock's own:
//!
//! | key | type | holds | lives |
//! |---|---|---|---|
//! | `dlock:{B}:NAME` (holder) | string | the exclusive holder: claim, mark, first token, maybe `/` and the number of tokens, maybe `*`, and maybe a space and a note. Instead of the token, `~` and the number of a sending | the lease |
//! | `dlock:{B}t` (tokens) | stream | the tokens of the bucket, as ids; the last about hundred entries, each with the number of a sending or nothing | for ever |
//! | `dlock:{B}q:NAME` (queue) | sorted set | waiting claims by ticket | as long as there are any |
//! | `dlock:{B}w:NAME` (waiters) | hash | waiting and shared claims: claim to `weight:capacity:tokens:lease:N:channel`, maybe with a space and a note behind it, where N is a waiter's deadline or a holder's token; `#` to `capacity:used`; `?` and a claim to the time when this damaged waiter leaves | as long as there are any |
//! | `dlock:{B}r:NAME` (readers) | sorted set | shared holders by the end of their lease | as long as there are any |
//!
//! The mark of the holder states what a release has to do: `:` only delete the holder's key, `!` read
//! the queue, `+` also raise the tokens above the used ones of its block. A holder that took the lock by
//! plain commands has the number of their sending instead of a token. The entry of the stream with that
//! number is the token, and the first renewal writes it to the holder.
//!
//! A `*` behind the token of the holder, or instead of the channel of a shared holder, means that the
//! last renewal has set the lease: no later request extends it.
//!
//! The id of a token in the stream is its milliseconds and a sequence: the token is the milliseconds
//! times 1,000 and the sequence, which is below 1,000. An id with a larger sequence is no token.
//!
//! `B` is one of [`BUCKETS`] numbers, by the hash of the name. Compared with a slot for each name,
//! buckets let a client of a cluster renew many locks with one command, and subscribe to a bounded
//! number of channels.
//!
//! The queue, the waiters and the readers have one common lifetime, longer than the longest lease in
//! them. Each poll and renewal of a claim in them checks it.

use dlock_core::LockName;

/// The number of hash tags for the names. It must be the same in every client of a cluster.
pub(crate) const BUCKETS: u64 = 64;

/// The hash tag that a name belongs to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct Bucket(u8);

impl Bucket {
    /// Returns the bucket of a name: 64-bit FNV-1a, folded
    /// (<http://www.isthe.com/chongo/tech/comp/fnv/>).
    pub(crate) fn of(name: &LockName) -> Self {
        let hash = name.as_str().bytes().fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| {
            (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
        });
        Self(u8::try_from((hash ^ (hash >> 32)) % BUCKETS).unwrap_or_default())
    }

    /// Returns all buckets.
    pub(crate) fn all() -> impl Iterator<Item = Self> {
        (0..BUCKETS).filter_map(|number| u8::try_from(number).ok()).map(Self)
    }

    /// Any bucket, for commands without a name.
    pub(crate) const ANY: Self = Self(0);

    /// Returns the number in the braces.
    pub(crate) const fn number(self) -> u8 {
        self.0
    }
}

/// The letters that distinguish the keys of a name: holder, queue, waiters and readers.
const KINDS: [&str; 4] = ["", "q", "w", "r"];
/// The end of the key of a bucket's tokens.
const TOKENS: char = 't';

/// The keys of a name: holder, tokens, queue, waiters and readers.
#[derive(Clone, Debug)]
pub(crate) struct Keys {
    /// All five, one behind the other.
    text: String,
    /// The length of the holder's key. Those of the queue, waiters and readers are a byte longer.
    base: usize,
    /// The length of the tokens' key.
    tokens: usize,
}

impl Keys {
    /// How many keys a name has.
    pub(crate) const COUNT: usize = 5;

    pub(crate) fn of(name: &LockName) -> Self {
        let tag = format!("dlock:{{{}}}", Bucket::of(name).number());
        let (base, tokens) = (tag.len() + 1 + name.as_str().len(), tag.len() + 1);
        let mut text = String::with_capacity(4 * base + 3 + tokens);
        // The letter comes before the name. Behind the name, it could produce the key of another
        // name.
        for (at, kind) in KINDS.into_iter().enumerate() {
            text.push_str(&tag);
            text.push_str(kind);
            text.push(':');
            text.push_str(name.as_str());
            if at == 0 {
                text.push_str(&tag);
                text.push(TOKENS);
            }
        }
        Self { text, base, tokens }
    }

    /// The key of the exclusive holder.
    pub(crate) fn holder(&self) -> &str {
        &self.text[..self.base]
    }

    /// The key of the bucket's tokens.
    pub(crate) fn tokens(&self) -> &str {
        &self.text[self.base..self.base + self.tokens]
    }

    /// The key of the queue and that of the readers.
    pub(crate) fn queue_and_readers(&self) -> [&str; 2] {
        let (_, rest) = self.text.split_at(self.base + self.tokens);
        let long = self.base + 1;
        [&rest[..long], &rest[2 * long..]]
    }

    /// All five, in the order in which scripts take them.
    pub(crate) fn all(&self) -> impl Iterator<Item = &str> {
        let rest = &self.text[self.base + self.tokens..];
        let long = self.base + 1;
        let others = (0..3).map(move |i| &rest[i * long..(i + 1) * long]);
        [self.holder(), self.tokens()].into_iter().chain(others)
    }
}

/// Returns the name that a key belongs to, if it is one of dlock's.
pub(crate) fn name_of(key: &[u8]) -> Option<LockName> {
    let key = std::str::from_utf8(key).ok()?.strip_prefix("dlock:{")?;
    let (number, rest) = key.split_once('}')?;
    let name = LockName::new(rest.strip_prefix(['q', 'w', 'r']).unwrap_or(rest).strip_prefix(':')?);
    name.ok().filter(|name| Bucket::of(name).number().to_string() == number)
}

/// Returns a key for other purposes, which belongs to no name. The key has the prefix `about`, so
/// that a user with rights to names with this prefix can use it.
pub(crate) fn auxiliary(purpose: &str, about: &str) -> String {
    format!("dlock:{{{}}}?{purpose}:{about}", Bucket::ANY.number())
}

/// Returns five keys like those of an unused name, which has the prefix of the user's names. That of the
/// tokens is not the bucket's, and matches the same patterns.
pub(crate) fn unused(bucket: Bucket, prefix: &str, number: u64) -> [String; Keys::COUNT] {
    let (bucket, name) = (bucket.number(), unused_plain(prefix, number));
    let [holder, queue, waiters, readers] =
        KINDS.map(|kind| format!("dlock:{{{bucket}}}{kind}:{name}"));
    [holder, format!("dlock:{{{bucket}}}?probe:{number:016x}}}{TOKENS}"), queue, waiters, readers]
}

/// Returns a key of [`unused`] as people know it: with `NAME` for the name.
pub(crate) fn without_probe(key: &str) -> String {
    let (begins, ends) = key.rsplit_once("?probe:").unwrap_or((key, ""));
    let end = if ends.ends_with(TOKENS) { TOKENS.to_string() } else { "NAME".to_owned() };
    format!("{begins}{end}")
}

/// The pattern of the tokens' keys in an ACL.
pub(crate) const TOKENS_PATTERN: &str = "dlock:{*}t";

/// Returns the key of an unused name in the plain form.
pub(crate) fn unused_plain(prefix: &str, number: u64) -> String {
    format!("{prefix}?probe:{number:016x}")
}

/// Returns the `SCAN` pattern for the keys of all names with this prefix.
pub(crate) fn pattern(prefix: &str) -> String {
    format!("dlock:{{*:{}*", literal(prefix))
}

/// Escapes a text, so that the pattern matches only this text.
pub(crate) fn literal(text: &str) -> String {
    let mut pattern = String::with_capacity(text.len() + 8);
    for c in text.chars() {
        if matches!(c, '*' | '?' | '[' | ']' | '\\' | '^' | '-') {
            pattern.push('\\');
        }
        pattern.push(c);
    }
    pattern
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    fn keys(name: &str) -> Vec<String> {
        let keys = Keys::of(&LockName::new(name).unwrap());
        keys.all().map(str::to_owned).collect()
    }

    #[test]
    fn all_keys_have_one_hash_tag_whatever_the_name() {
        for name in ["a", "{}", "}{", "{a}b}", "}", "{", "a{b}c", "stock/42"] {
            let tags: BTreeSet<String> = keys(name)
                .iter()
                .map(|key| {
                    let (_, rest) = key.split_once('{').unwrap();
                    rest.split_once('}').unwrap().0.to_owned()
                })
                .collect();
            assert_eq!(tags.len(), 1, "{name}");
            assert!(tags.iter().all(|tag| tag.parse::<u64>().unwrap() < BUCKETS), "{name}");
        }
    }

    #[test]
    fn keys_are_those_of_the_table() {
        let name = "a:f";
        let tag = format!("dlock:{{{}}}", Bucket::of(&LockName::new(name).unwrap()).number());
        let kinds = ["", "q", "w", "r"].map(|kind| format!("{tag}{kind}:{name}"));
        let [holder, queue, waiters, readers] = kinds;
        let tokens = format!("{tag}t");
        let of = Keys::of(&LockName::new(name).unwrap());
        assert_eq!((of.holder(), of.tokens()), (&*holder, &*tokens));
        assert_eq!(of.queue_and_readers(), [&*queue, &*readers]);
        assert_eq!(keys(name), [holder, tokens, queue, waiters, readers]);
    }

    #[test]
    fn a_foreign_key_belongs_to_no_name() {
        let keys = keys("a");
        let named = |key: &String| name_of(key.as_bytes()).is_some_and(|name| name.as_str() == "a");
        assert_eq!(keys.iter().map(named).collect::<Vec<_>>(), [true, false, true, true, true]);
        for key in [
            "dlock:{1}:a",
            "dlock:{00}:a",
            "dlock:{0}x:a",
            "dlock:{0}a",
            "dlock:{0}:",
            "dlock:i:a",
            "dlock:{0}?guard:a",
            "dlock:{0}f:a",
            "a",
        ] {
            assert_eq!(name_of(key.as_bytes()), None, "{key}");
        }
        assert_eq!(name_of(b"dlock:{0}:\xff"), None);
    }

    /// Other versions have to find the same keys.
    #[test]
    fn buckets_do_not_change() {
        let of = |name: &str| Bucket::of(&LockName::new(name).unwrap()).number();
        assert_eq!([of("a"), of("stock/42"), of("{}")], [0, 27, 34]);
    }
}

//! Names of znodes: a lock's directory, and a claim's node in it; and the tokens of a node.
//!
//! ```text
//! <chroot><root>/<name>/                                            container
//!     _c_<claim>-lock-0000000007                                    mutex or writer
//!     _c_<claim>-read-lock-0000000008                               reader
//!     _c_<claim>-permits-2-of-5-lock-0000000009                     2 of 5 permits
//!     _c_<claim>-permits-1-of-5-since-<czxid>-lock-0000000009       1, after more had been held
//! ```
//!
//! A later format may have nodes `_c_<claim>-v<format>-<anything>-lock-<number>`. A client that
//! does not read the format can't tell what such a node holds, so it takes no lock behind one.
//!
//! The claim is written as a UUID. Every node ends in `lock-` and ZooKeeper's sequence number, by
//! which Curator's `InterProcessMutex` sorts all children of a directory. A mutex has exactly the
//! name that Curator gives its own nodes. So the two respect each other, without a separate mode.

use std::fmt::Write as _;

use dlock_core::{ClaimId, FencingToken, LockName, Mode};
use percent_encoding::percent_decode_str;

/// One claim's node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Node {
    /// Its name in the directory.
    pub(crate) child: String,
    pub(crate) claim: ClaimId,
    /// The mode of its claim when it got this name.
    pub(crate) mode: Mode,
    /// ZooKeeper's number.
    pub(crate) number: i64,
    /// The zxid of its claim, if the node itself is younger.
    pub(crate) since: Option<i64>,
}

impl Node {
    /// Parses a child's name. Returns `None` if it belongs neither to dlock nor to Curator's mutex.
    pub(crate) fn parse(child: impl AsRef<str> + Into<String>) -> Option<Self> {
        let rest = child.as_ref().strip_prefix("_c_")?;
        let (uuid, rest) = rest.split_at_checked(36)?;
        let (mode, since, number) = match rest.strip_prefix("-lock-") {
            Some(number) => (Mode::Exclusive, None, number),
            None => {
                let (kind, number) = rest.strip_prefix('-')?.rsplit_once("-lock-")?;
                let (mode, since) = match kind {
                    "read" => (Mode::Shared, None),
                    permits => permits_of(permits)?,
                };
                (mode, since, number)
            }
        };
        let (claim, number) = (claim_of(uuid)?, number_of(number)?);
        Some(Self { child: child.into(), claim, mode, number, since })
    }
}

/// Returns the number and the format of a claim's node, if its name has an unknown format.
pub(crate) fn newer(child: &str) -> Option<(i64, u64)> {
    let (uuid, rest) = child.strip_prefix("_c_")?.split_at_checked(36)?;
    claim_of(uuid)?;
    let (kind, number) = rest.strip_prefix("-v")?.rsplit_once("-lock-")?;
    let format = kind.split('-').next().filter(|format| !format.is_empty())?;
    let format = u64::try_from(digits(format)?).ok()?;
    Some((number_of(number)?, format))
}

/// Returns the name of a claim's node, to which ZooKeeper appends the number.
pub(crate) fn child(claim: ClaimId, mode: Mode) -> String {
    child_since(claim, mode, None)
}

/// Returns the name of the node of a claim that is older than the node.
pub(crate) fn child_since(claim: ClaimId, mode: Mode, since: Option<i64>) -> String {
    let id = claim.to_string();
    let mut text = String::with_capacity(64);
    text.push_str("_c_");
    for (at, digit) in id.char_indices() {
        if matches!(at, 8 | 12 | 16 | 20) {
            text.push('-');
        }
        text.push(digit);
    }
    let _ = match mode {
        Mode::Shared => write!(text, "-read"),
        Mode::Permits { n, of } => write!(text, "-permits-{n}-of-{of}"),
        _ => Ok(()),
    };
    if let Some(since) = since {
        let _ = write!(text, "-since-{since}");
    }
    text.push_str("-lock-");
    text
}

/// Converts a lock's name to one segment of a path.
///
/// Letters, digits and `-_.~:@+,=` are unchanged, and all other bytes are percent-encoded. Names
/// that ZooKeeper reserves are percent-encoded, too. No two names have the same segment.
pub(crate) fn segment(name: &LockName) -> String {
    let name = name.as_str();
    let reserved = matches!(name, "." | ".." | "zookeeper");
    let mut text = String::with_capacity(name.len());
    for (at, byte) in name.bytes().enumerate() {
        let plain = byte.is_ascii_alphanumeric() || b"-_.~:@+,=".contains(&byte);
        if plain && !(reserved && at == 0) {
            text.push(char::from(byte));
        } else {
            let _ = write!(text, "%{byte:02X}");
        }
    }
    text
}

/// Returns the name whose directory this is, if it is one.
pub(crate) fn name_of(dir: &str) -> Option<LockName> {
    // A directory whose name is encoded in another way belongs to another program.
    let name = LockName::new(&percent_decode_str(dir).decode_utf8().ok()?).ok();
    name.filter(|name| segment(name) == dir)
}

fn permits_of(text: &str) -> Option<(Mode, Option<i64>)> {
    let (permits, since) = match text.split_once("-since-") {
        Some((permits, since)) => (permits, Some(digits(since)?)),
        None => (text, None),
    };
    let (n, of) = permits.strip_prefix("permits-")?.split_once("-of-")?;
    let (n, of) = (u32::try_from(digits(n)?).ok()?, u32::try_from(digits(of)?).ok()?);
    Some((Mode::permits(n, of).ok()?, since))
}

fn digits(text: &str) -> Option<i64> {
    text.bytes().all(|byte| byte.is_ascii_digit()).then(|| text.parse().ok())?
}

/// Parses a claim as a UUID: 32 digits with a dash after the 8th, 12th, 16th and 20th.
fn claim_of(uuid: &str) -> Option<ClaimId> {
    let mut digits = [0; 32];
    let mut rest = uuid.as_bytes();
    for (from, to) in [(0, 8), (8, 12), (12, 16), (16, 20), (20, 32)] {
        if from > 0 {
            rest = rest.strip_prefix(b"-")?;
        }
        let group;
        (group, rest) = rest.split_at_checked(to - from)?;
        digits.get_mut(from..to)?.copy_from_slice(group);
    }
    // An extra dash is not a digit.
    rest.is_empty().then(|| std::str::from_utf8(&digits).ok()?.parse().ok())?
}

/// Parses `%010d` of 32 bits; later servers may use 64.
fn number_of(text: &str) -> Option<i64> {
    let bare = text.strip_prefix('-').unwrap_or(text);
    if !(9..=19).contains(&bare.len()) {
        return None;
    }
    let number = digits(bare)?;
    Some(if bare.len() < text.len() { -number } else { number })
}

/// The number of tokens of one node: `czxid * 16384 + k`.
///
/// A zxid has the number of the election in its upper 32 bits and a counter in the lower ones, and
/// tokens are below 2^63. So this number is a compromise: long blocks make a contended lock cheap
/// within a process, but reduce the number of [`ELECTIONS`].
pub(crate) const TOKENS: u32 = 1 << 14;

/// The number of elections for which there are tokens: one each hour for 15 years.
pub(crate) const ELECTIONS: u64 = 1 << (63 - 32 - TOKENS.trailing_zeros());

/// Returns the first token of a node, or `None` after too many [`ELECTIONS`].
pub(crate) fn token(czxid: i64) -> Option<FencingToken> {
    let first = u64::try_from(czxid).ok()?.checked_mul(u64::from(TOKENS))?;
    FencingToken::new(first).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_nodes_round_trip() {
        let permits = Mode::permits(2, 5).unwrap();
        for (mode, since) in
            [(Mode::Exclusive, None), (Mode::Shared, None), (permits, None), (permits, Some(77))]
        {
            let claim = ClaimId::random();
            for (text, number) in
                [("0000000007", 7), ("2147483647", 2_147_483_647), ("-2147483648", -2_147_483_648)]
            {
                let child = child_since(claim, mode, since) + text;
                let node = Node { child: child.clone(), claim, mode, number, since };
                assert_eq!(Node::parse(&child), Some(node));
            }
        }
    }

    #[test]
    fn a_mutex_has_the_name_that_curator_gives() {
        let node = Node::parse("_c_cfa6e75c-1ef2-4d4e-8db4-4c1f0a4d3e11-lock-0000000042").unwrap();
        assert_eq!((node.mode, node.number), (Mode::Exclusive, 42));
        let again = child(node.claim, Mode::Exclusive);
        assert_eq!(again, "_c_cfa6e75c-1ef2-4d4e-8db4-4c1f0a4d3e11-lock-");
    }

    #[test]
    fn a_node_of_another_format_is_no_foreign_one() {
        let uuid = "cfa6e75c-1ef2-4d4e-8db4-4c1f0a4d3e11";
        for kind in ["v9", "v9-read", "v9-permits-2-of-5"] {
            let child = format!("_c_{uuid}-{kind}-lock-0000000007");
            assert_eq!((newer(&child), Node::parse(&child)), (Some((7, 9)), None), "{child}");
        }
        for kind in ["", "-read", "-v", "-v-9", "-vx", "-9", "-v9x"] {
            assert_eq!(newer(&format!("_c_{uuid}{kind}-lock-0000000007")), None, "{kind}");
        }
        for child in [format!("_c_{uuid}-v9"), "_c_x-v9-lock-0000000007".to_owned()] {
            assert_eq!(newer(&child), None, "{child}");
        }
    }

    #[test]
    fn a_foreign_node_is_not_a_claim() {
        let uuid = "cfa6e75c-1ef2-4d4e-8db4-4c1f0a4d3e11";
        for child in [
            String::new(),
            "lock-0000000001".into(),
            "ünïcödé-ünïcödé-ünïcödé-ünïcödé-ünïcödé".into(),
            format!("_c_{uuid}"),
            format!("_c_{uuid}-lock-"),
            format!("_c_{uuid}-lock-12"),
            format!("_c_{uuid}-lock-00000000x1"),
            format!("_c_{uuid}-lock-+000000001"),
            format!("_c_{uuid}lock-0000000001"),
            format!("_c_{uuid}-readlock-0000000001"),
            format!("_c_{uuid}-__READ__0000000001"),
            format!("_c_{uuid}-permits-0-of-3-lock-0000000001"),
            format!("_c_{uuid}-permits-4-of-3-lock-0000000001"),
            format!("_c_{}-lock-0000000001", uuid.replace('-', "x")),
            format!("_c_{}-lock-0000000001", uuid.to_uppercase()),
        ] {
            assert_eq!(Node::parse(&child), None, "{child}");
        }
    }

    #[test]
    fn segments_are_plain_or_encoded() {
        for (name, expected) in [
            ("inventory-42", "inventory-42"),
            ("inventory/42", "inventory%2F42"),
            (".", "%2E"),
            ("..", "%2E."),
            ("...", "..."),
            ("zookeeper", "%7Aookeeper"),
            ("100%", "100%25"),
            ("é 🔒", "%C3%A9%20%F0%9F%94%92"),
        ] {
            let name = LockName::new(name).unwrap();
            assert_eq!(segment(&name), expected);
            assert_eq!(name_of(expected), Some(name));
        }
    }

    #[test]
    fn a_directory_of_another_program_has_no_name() {
        for dir in [
            "",
            "zookeeper",
            ".",
            "%",
            "%2",
            "%2f",
            "%41",
            "%+1",
            "%GG",
            "a b",
            "é",
            "%FF",
            "%0A",
            "%session-0000000001",
            "%session-cfa6e75c1ef24d4e8db44c1f0a4d3e11",
        ] {
            assert_eq!(name_of(dir), None, "{dir}");
        }
    }

    #[test]
    fn the_last_election_with_tokens_has_room_for_each() {
        let last = i64::try_from((ELECTIONS << 32) - 1).unwrap();
        assert!(token(last).unwrap() <= FencingToken::MAX);
        assert_eq!(token(last).unwrap().plus(u64::from(TOKENS) - 1), FencingToken::MAX);
        assert_eq!(token(last + 1), None);
        assert_eq!(token(i64::MAX), None);
    }
}

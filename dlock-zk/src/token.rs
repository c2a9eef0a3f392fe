//! Fencing tokens from the numbers of transactions.

use dlock_core::FencingToken;

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
    fn the_last_election_with_tokens_has_room_for_each() {
        let last = i64::try_from((ELECTIONS << 32) - 1).unwrap();
        assert!(token(last).unwrap() <= FencingToken::MAX);
        assert_eq!(token(last).unwrap().plus(u64::from(TOKENS) - 1), FencingToken::MAX);
        assert_eq!(token(last + 1), None);
        assert_eq!(token(i64::MAX), None);
    }
}

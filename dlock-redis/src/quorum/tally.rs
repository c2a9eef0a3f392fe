//! Counting the answers of masters.
//!
//! A master that does not answer counts neither as a yes nor as a no. So `No` needs enough refusals
//! that all other masters, including those that did not answer, are no majority: a verdict of a
//! loss must not depend on masters that may have said yes.

use dlock_core::FencingToken;

/// Returns the smallest majority of `of` masters. Any two majorities have a master in common.
pub(super) const fn majority(of: usize) -> usize {
    of / 2 + 1
}

/// Returns whether all other masters than these are no majority.
pub(super) const fn blocks(masters: usize, of: usize) -> bool {
    masters > of - majority(of)
}

/// Returns the token that a majority of `of` masters took.
pub(super) fn agreed(won: &[(usize, FencingToken)], of: usize) -> Option<FencingToken> {
    let took = |token| won.iter().filter(|(_, other)| *other == token).count();
    won.iter().map(|(_, token)| *token).find(|token| took(*token) >= majority(of))
}

/// The answers so far to a request that is answered with yes or no.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Tally {
    pub(super) yes: usize,
    pub(super) no: usize,
    pub(super) unknown: usize,
}

/// The verdict of a tally.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Verdict {
    /// A majority says yes.
    Yes,
    /// Too many masters say no for a majority of yes.
    No,
    /// Undecided, because of masters that did not answer.
    Unknown,
    /// Answers are still to come.
    Open,
}

impl Tally {
    pub(super) const fn count(&mut self, answer: Option<bool>) {
        match answer {
            Some(true) => self.yes += 1,
            Some(false) => self.no += 1,
            None => self.unknown += 1,
        }
    }

    /// Returns the verdict among `of` masters.
    pub(super) const fn verdict(self, of: usize) -> Verdict {
        if self.yes >= majority(of) {
            Verdict::Yes
        } else if blocks(self.no, of) {
            Verdict::No
        } else if self.yes + self.no + self.unknown >= of {
            Verdict::Unknown
        } else {
            Verdict::Open
        }
    }

    /// Returns whether yes is still possible.
    pub(super) const fn can_win(self, of: usize) -> bool {
        !blocks(self.no + self.unknown, of)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn two_majorities_always_meet() {
        for of in [3, 5, 7, 9] {
            assert!(2 * majority(of) > of);
        }
    }

    #[test]
    fn silence_is_neither_yes_nor_no() {
        let tally = |yes, no, unknown| Tally { yes, no, unknown }.verdict(5);
        assert_eq!(tally(3, 0, 0), Verdict::Yes);
        assert_eq!(tally(2, 3, 0), Verdict::No);
        assert_eq!(tally(2, 2, 1), Verdict::Unknown);
        assert_eq!(tally(2, 1, 2), Verdict::Unknown);
        assert_eq!(tally(2, 2, 0), Verdict::Open);
    }
}

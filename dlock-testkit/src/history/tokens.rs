//! **Token order**: if a grant was known before another acquisition was requested, it has the
//! smaller token. No two acquisitions have the same token, unless an owner entered its own hold
//! again.

use super::{History, Hold, Violation};

/// Checks the order of the tokens.
///
/// # Errors
/// The first two acquisitions whose tokens are out of order or equal.
pub fn check(history: &History) -> Result<(), Violation> {
    let wrong = |a: &Hold, b: &Hold, what| {
        let text = format!("{what}: {a:?} and {b:?}");
        Violation::new(text).seen_at(a.granted.max(b.granted))
    };
    let by_token = history.holds();
    // The loop runs from the largest token down. `first` is the hold with a larger token whose
    // grant was known first.
    let mut first: Option<&Hold> = None;
    for same in by_token.chunk_by(|a, b| a.token == b.token).rev() {
        if let Some((a, b)) = twice(same) {
            return Err(wrong(a, b, "one token twice"));
        }
        if let Some(known) = first
            && let Some(hold) = same.iter().find(|hold| known.granted < hold.asked)
        {
            return Err(wrong(known, hold, "the later has the smaller token"));
        }
        let earliest = same.iter().chain(first).min_by_key(|hold| hold.granted);
        first = earliest;
    }
    Ok(())
}

/// Returns two acquisitions with the same token that are not entries of one owner into its hold.
fn twice(same: &[Hold]) -> Option<(&Hold, &Hold)> {
    let mut inside = same.first()?;
    for hold in &same[1..] {
        let left = inside.freed.is_some_and(|end| end <= hold.granted);
        if left || hold.actor != inside.actor {
            return Some((inside, hold));
        }
        if inside.freed.is_some_and(|end| hold.freed.is_none_or(|other| end < other)) {
            inside = hold;
        }
    }
    None
}

/// Checks that consecutive exclusive holders have growing tokens.
///
/// # Errors
/// The first pair whose tokens do not grow.
pub fn check_holders(history: &History) -> Result<(), Violation> {
    let mut holds = history.holds();
    holds.sort_by_key(|hold| hold.granted);
    match holds.windows(2).find(|pair| pair[0].token >= pair[1].token) {
        Some(pair) => {
            Err(Violation::new(format!("not above the one before: {pair:?}"))
                .seen_at(pair[1].granted))
        }
        None => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use dlock_core::Mode;

    use super::{super::build::*, *};

    const X: Mode = Mode::Exclusive;

    #[test]
    fn growing_tokens_are_right() {
        let right = history([hold(1, X, 5, [0, 1, 2]), hold(2, X, 9, [3, 4, 5])]);
        assert_eq!(check(&right).and(check_holders(&right)), Ok(()));
    }

    #[test]
    fn concurrent_readers_may_learn_of_their_grants_in_any_order() {
        let s = Mode::Shared;
        let right = history([hold(1, s, 9, [0, 5, 7]), hold(2, s, 8, [0, 6, 7])]);
        assert_eq!(check(&right), Ok(()));
    }

    #[test]
    fn a_smaller_token_later_is_wrong() {
        let wrong = history([hold(1, X, 9, [0, 1, 2]), hold(2, X, 5, [3, 4, 5])]);
        assert!(check(&wrong).is_err() && check_holders(&wrong).is_err());
    }

    #[test]
    fn one_token_twice_is_wrong_unless_entered_again() {
        let (outer, mut inner) = (hold(1, X, 5, [0, 1, 9]), hold(1, X, 5, [2, 3, 4]));
        inner.iter_mut().for_each(|event| event.hold += 77);
        assert_eq!(check(&history([outer.clone(), inner])), Ok(()));
        assert!(check(&history([outer, hold(2, X, 5, [20, 21, 22])])).is_err());
    }
}

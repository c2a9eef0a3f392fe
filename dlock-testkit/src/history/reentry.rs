//! **Reentry balance**: all entries of an owner into its own hold have one token. The owner leaves
//! as often as it entered. Nobody else holds the lock before it has left for the last time.

use std::collections::HashMap;

use dlock_core::{FencingToken, Instant};

use super::{History, Hold, Latest, Span, Violation};

/// Checks that the entries of each owner nest and that owners exclude each other.
///
/// # Errors
/// The first entry that violates this.
pub fn check(history: &History) -> Result<(), Violation> {
    let mut holds = history.holds();
    let mut owners: HashMap<FencingToken, usize> = HashMap::new();
    for hold in &holds {
        if *owners.entry(hold.token).or_insert(hold.actor) != hold.actor {
            return Err(Violation::new(format!("two owners under one token: {hold:?}")));
        }
    }
    holds.sort_by_key(|hold| hold.granted);
    let mut seen = Latest::default();
    for hold in &holds {
        let inside = span(hold);
        if let Some(other) = seen.met_by(&inside) {
            let what = match other.actor == hold.actor {
                true => "entered under another token",
                false => "two owners at once",
            };
            return Err(Violation::new(format!("{what}: {hold:?} and {other:?}")));
        }
        seen.see(inside);
    }
    match holds.iter().find(|hold| hold.freed.is_none()) {
        Some(hold) => Err(Violation::new(format!("entered and never left: {hold:?}"))),
        None => Ok(()),
    }
}

fn span(hold: &Hold) -> Span {
    let to = hold.ended.unwrap_or(Instant::from_nanos(u64::MAX));
    let Hold { actor, mode, token, granted: from, .. } = *hold;
    Span { actor, mode, token, from, to }
}

#[cfg(test)]
mod tests {
    use dlock_core::Mode;

    use super::{super::build::*, *};
    use crate::history::Event;

    fn entry(actor: usize, token: u64, nth: u64, times: [u64; 3]) -> Vec<Event> {
        let mut events = hold(actor, Mode::Exclusive, token, times);
        events.iter_mut().for_each(|event| event.hold += nth * 100_000);
        events
    }

    #[test]
    fn nested_and_crossed_entries_are_right() {
        let right = history([
            entry(1, 5, 0, [0, 1, 6]),
            entry(1, 5, 1, [2, 3, 8]),
            entry(2, 9, 0, [0, 9, 12]),
        ]);
        assert_eq!(check(&right), Ok(()));
    }

    #[test]
    fn another_owner_inside_is_wrong() {
        let wrong = history([
            entry(1, 5, 0, [0, 1, 6]),
            entry(1, 5, 1, [2, 3, 10]),
            entry(2, 9, 0, [0, 9, 12]),
        ]);
        assert!(check(&wrong).is_err());
    }

    #[test]
    fn another_token_inside_is_wrong() {
        let wrong = history([entry(1, 5, 0, [0, 1, 9]), entry(1, 6, 1, [2, 3, 8])]);
        assert!(check(&wrong).is_err());
    }

    #[test]
    fn an_entry_without_end_is_wrong() {
        let mut endless = entry(1, 5, 0, [0, 1, 9]);
        endless.pop();
        assert!(check(&history([endless])).is_err());
    }
}

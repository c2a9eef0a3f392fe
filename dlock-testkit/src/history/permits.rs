//! **Permits**: those in use never come to more than there are.

use dlock_core::Mode;

use super::{History, Violation};

/// Checks that never more than `all` permits were in use.
///
/// # Errors
/// Where more were.
pub fn check(history: &History, all: u32) -> Result<(), Violation> {
    let spans = history.spans();
    for span in &spans {
        // The sum can only grow where a span begins.
        let with = spans.iter().filter(|other| other.from <= span.from && span.from < other.to);
        let used: u64 = with.map(|other| u64::from(weight(other.mode))).sum();
        if used > u64::from(all) {
            return Err(Violation::new(format!("{used} of {all} permits in use at {span:?}")));
        }
    }
    Ok(())
}

fn weight(mode: Mode) -> u32 {
    match mode {
        Mode::Permits { n, .. } => n,
        _ => u32::MAX,
    }
}

#[cfg(test)]
mod tests {
    use super::{super::build::*, *};

    fn n(n: u32) -> Mode {
        Mode::Permits { n, of: 3 }
    }

    #[test]
    fn as_many_as_there_are_is_right() {
        let right = history([
            hold(1, n(1), 1, [0, 1, 9]),
            hold(2, n(2), 2, [0, 2, 5]),
            hold(3, n(2), 3, [0, 5, 9]),
        ]);
        assert_eq!(check(&right, 3), Ok(()));
    }

    #[test]
    fn weights_count() {
        let wrong = history([hold(1, n(2), 1, [0, 1, 9]), hold(2, n(2), 2, [0, 2, 5])]);
        assert!(check(&wrong, 3).is_err());
    }
}

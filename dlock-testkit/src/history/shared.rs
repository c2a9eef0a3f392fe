//! **Shared xor exclusive**: readers share the lock with each other and never with a writer.

use dlock_core::Mode;

use super::{History, Violation};

/// Checks that no reader held the lock together with a writer.
///
/// # Errors
/// The first reader and writer that did.
pub fn check(history: &History) -> Result<(), Violation> {
    let spans = history.spans();
    let of = |mode| spans.iter().filter(move |span| span.mode == mode);
    for writer in of(Mode::Exclusive) {
        if let Some(reader) = of(Mode::Shared).find(|reader| reader.meets(writer)) {
            return Err(Violation::new(format!("{reader:?} together with {writer:?}")));
        }
    }
    Ok(())
}

/// The largest number of readers that held the lock at one time.
pub fn most_readers(history: &History) -> usize {
    let mut spans = history.spans();
    spans.retain(|span| span.mode == Mode::Shared);
    let with = |at| spans.iter().filter(|span| span.from <= at && at < span.to).count();
    spans.iter().map(|span| with(span.from)).max().unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::{super::build::*, *};
    use crate::history::Op;

    #[test]
    fn readers_share() {
        let right = history([
            hold(1, Mode::Shared, 1, [0, 1, 6]),
            hold(2, Mode::Shared, 2, [0, 5, 9]),
            hold(3, Mode::Exclusive, 3, [0, 10, 12]),
        ]);
        assert_eq!(check(&right), Ok(()));
        assert_eq!(most_readers(&right), 2);
    }

    #[test]
    fn a_reader_beside_a_writer_is_wrong() {
        let wrong =
            history([hold(1, Mode::Shared, 1, [0, 1, 6]), hold(3, Mode::Exclusive, 3, [0, 5, 12])]);
        assert!(check(&wrong).is_err());
    }

    #[test]
    fn a_downgraded_writer_is_a_reader() {
        let mut writer = hold(1, Mode::Exclusive, 1, [0, 1, 20]);
        let mut turn = writer[1].clone();
        (turn.op, turn.invoked) = (Op::Downgrade, at(10));
        writer.push(turn);
        let reader = |granted| hold(2, Mode::Shared, 2, [0, granted, 30]);
        assert_eq!(check(&history([writer.clone(), reader(11)])), Ok(()));
        assert!(check(&history([writer, reader(9)])).is_err());
    }
}

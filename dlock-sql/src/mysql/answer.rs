//! Parsers of the server's answers.
//!
//! Texts arrive as bytes, whatever the character set of the connection, and must be UTF-8 here.

use dlock_core::{Error, ErrorKind};
use sqlx::{MySql, Row as _, mysql::MySqlRow};

use super::error::classify;
use crate::engine::{Fault, Micros, Row};

/// Returns the columns base, snap and log, from `at` on.
pub(super) fn row(found: &MySqlRow, at: usize) -> Result<Row, Error> {
    Ok(Row { base: get(found, at)?, snap: text(found, at + 1)?, log: text(found, at + 2)? })
}

pub(super) fn micros(found: &MySqlRow, at: usize) -> Result<Micros, Fault> {
    Ok(Micros::try_from(get::<i64>(found, at)?).unwrap_or(0))
}

/// Returns a column of bytes or characters as text.
pub(super) fn text(found: &MySqlRow, at: usize) -> Result<String, Fault> {
    as_str(found, at).map(str::to_owned)
}

/// Returns a column as text that is borrowed from the answer.
pub(super) fn as_str(found: &MySqlRow, at: usize) -> Result<&str, Fault> {
    std::str::from_utf8(get(found, at)?)
        .map_err(|error| unreadable("text that is not UTF-8").with_source(error).into())
}

pub(super) fn get<'r, T: sqlx::Decode<'r, MySql> + sqlx::Type<MySql>>(
    found: &'r MySqlRow,
    at: usize,
) -> Result<T, Fault> {
    found.try_get(at).map_err(classify)
}

pub(super) fn unreadable(what: &str) -> Error {
    Error::new(
        ErrorKind::Protocol,
        format!("the server returned {what}: check that no other program writes to dlock's tables"),
    )
}

/// Returns the index behind the last operations of this text, with their time, in a log. Without
/// `RETURNING` a second statement reads the row, and others may have appended in between. The log
/// is then cut here.
pub(crate) fn end_of(log: &str, op: &str) -> Option<usize> {
    let starts = log.rmatch_indices(';').map(|(at, _)| at + 1).chain([0]);
    starts.into_iter().find_map(|at| {
        let rest = log[at..].strip_prefix(op)?.strip_prefix(' ')?;
        let digits = rest.bytes().take_while(u8::is_ascii_digit).count();
        let is_time = digits > 0 && rest[digits..].starts_with(';');
        is_time.then(|| log.len() - rest.len() + digits + 1)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_log_is_cut_right_behind_our_operation() {
        let log = "R aa 1 5;K bb 1 9 6;K bb 1 9 7;R aa 11 8;";
        for (op, left) in [
            ("R aa 1", Some("R aa 1 5;")),
            ("K bb 1 9", Some("R aa 1 5;K bb 1 9 6;K bb 1 9 7;")),
            ("R aa 11", Some(log)),
            ("K bb 1", None),
            ("R aa", None),
            ("aa 1", None),
            ("R cc 1", None),
            ("R aa 1 5;K bb 1 9", Some("R aa 1 5;K bb 1 9 6;")),
            ("", None),
        ] {
            assert_eq!(end_of(log, op).map(|end| &log[..end]), left, "{op}");
        }
        assert_eq!(end_of("", "R aa 1"), None);
    }
}

//! What the server's answers hold.

use dlock_core::{Error, ErrorKind};
use sqlx::{MySql, Row as _, mysql::MySqlRow};

use super::error::classify;
use crate::engine::{Fault, Micros, Row};

/// The columns base, snap and log, from `at` on.
pub(super) fn row(found: &MySqlRow, at: usize) -> Result<Row, Fault> {
    Ok(Row { base: get(found, at)?, snap: text(found, at + 1)?, log: text(found, at + 2)? })
}

pub(super) fn micros(found: &MySqlRow, at: usize) -> Result<Micros, Fault> {
    Ok(Micros::try_from(get::<i64>(found, at)?).unwrap_or(0))
}

/// A column of bytes or characters.
pub(super) fn text(found: &MySqlRow, at: usize) -> Result<String, Fault> {
    String::from_utf8(get(found, at)?)
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
        format!("the server returned {what}: see that nobody else writes to dlock's tables"),
    )
}

/// Where the last operation of this text, with its time, ends in a log.
pub(crate) fn end_of(log: &str, op: &str) -> Option<usize> {
    let mut end = log.len();
    for line in log.split_inclusive(';').rev() {
        let time = line.strip_prefix(op).and_then(|rest| rest.strip_prefix(' '));
        let digits = time.and_then(|time| time.strip_suffix(';'));
        if digits.is_some_and(|digits| !digits.is_empty() && digits.bytes().all(is_digit)) {
            return Some(end);
        }
        end -= line.len();
    }
    None
}

const fn is_digit(byte: u8) -> bool {
    byte.is_ascii_digit()
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
        ] {
            assert_eq!(end_of(log, op).map(|end| &log[..end]), left, "{op}");
        }
        assert_eq!(end_of("", "R aa 1"), None);
    }
}

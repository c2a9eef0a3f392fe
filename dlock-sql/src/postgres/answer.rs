//! Parsers of the server's answers.

use dlock_core::{Error, ErrorKind};
use sqlx::{Postgres, Row as _, postgres::PgRow};

use super::error::classify;
use crate::engine::{Fault, Micros, Row};

/// Returns the columns base, snap and log, from `at` on.
pub(super) fn row(found: &PgRow, at: usize) -> Result<Row, Error> {
    Ok(Row { base: get(found, at)?, snap: get(found, at + 1)?, log: get(found, at + 2)? })
}

pub(super) fn micros(found: &PgRow, at: usize) -> Result<Micros, Fault> {
    Ok(Micros::try_from(get::<i64>(found, at)?).unwrap_or(0))
}

pub(super) fn get<'r, T: sqlx::Decode<'r, Postgres> + sqlx::Type<Postgres>>(
    found: &'r PgRow,
    at: usize,
) -> Result<T, Fault> {
    found.try_get(at).map_err(classify)
}

/// Returns the fault of an answer that should have a row, but has none.
pub(super) fn no_answer() -> Fault {
    Error::new(
        ErrorKind::Protocol,
        "the server answered without a row: check that it is PostgreSQL",
    )
    .into()
}

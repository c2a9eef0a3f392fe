//! Detects by a read whether a server accepts no writes.
//!
//! A connection may stay open across a switchover. Its server is then a replica, which may be
//! behind.

use sqlx::{ColumnIndex, Decode, Row, Type};

/// The error of a connection whose server accepts no writes. The driver itself never returns this
/// one here.
pub(crate) const NO_WRITES: sqlx::Error = sqlx::Error::RowNotFound;

/// Returns the rows of a statement whose second column is null if the server accepts no writes.
/// Fails in that case, since the rows may be out of date.
pub(crate) fn from_primary<R>(rows: Vec<R>) -> Result<Vec<R>, sqlx::Error>
where
    R: Row,
    usize: ColumnIndex<R>,
    i64: for<'r> Decode<'r, R::Database> + Type<R::Database>,
{
    match rows.first().map(|row| row.try_get::<Option<i64>, _>(1)).transpose()? {
        Some(None) => Err(NO_WRITES),
        _ => Ok(rows),
    }
}

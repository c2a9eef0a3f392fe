//! How a read tells that its server takes no writes.

use sqlx::{ColumnIndex, Decode, Row, Type};

/// The error of a connection whose server takes no writes. The driver's own meaning is never seen
/// here.
pub(crate) const NO_WRITES: sqlx::Error = sqlx::Error::RowNotFound;

/// The rows of a statement that tells, by a null as the second column, that the server takes no
/// writes: what is read there may be old.
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

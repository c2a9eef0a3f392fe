//! A statement with its arguments, and the two ways to send it.
//!
//! As text, the settings and the statement are one message. So they are one implicit transaction,
//! on one server connection, regardless of other work of a transaction pooler.

use std::time::Duration;

use dlock_core::{Error, ErrorKind};
use sqlx::{
    AssertSqlSafe, PgConnection, Postgres, Row as _, SqlStr,
    postgres::{PgArguments, PgRow},
    query::Query,
};

use super::{
    error::classify,
    literal::{self, Arg},
};
use crate::engine::{Fault, Micros, Row};

/// The role and the search path of a statement on a shared connection: those of a new session.
/// With a schema before each name, a statement needs no search path.
pub(super) const RESET_ROLE: &str = "SET LOCAL role = DEFAULT; ";
pub(super) const RESET_PATH: &str = "SET LOCAL search_path = DEFAULT; ";
pub(super) const LOCAL_PATH: &str = "SET LOCAL search_path = pg_catalog, pg_temp; ";
/// The same for all later statements of a dedicated session.
pub(super) const OWN_PATH: &str = "SET search_path = pg_catalog, pg_temp";

/// The way to send statements.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Transport {
    /// Prepared once per connection.
    Prepared,
    /// One text each, which a pooler may send to another server connection every time.
    Text,
}

impl Transport {
    /// Runs a statement to its end, since only the end shows whether the commit succeeded.
    pub(super) async fn fetch(
        self,
        conn: &mut PgConnection,
        sql: SqlStr,
        args: &[Arg<'_>],
        response_timeout: Duration,
        path: &str,
    ) -> Result<Vec<PgRow>, sqlx::Error> {
        match self {
            Self::Prepared => args.iter().fold(sqlx::query(sql), bind).fetch_all(conn).await,
            Self::Text => {
                // `SET LOCAL` holds for this transaction only. Other programs may have left other
                // settings on the connection.
                let text = format!(
                    "SET LOCAL lock_timeout = {}; SET LOCAL statement_timeout = {}; \
                     SET LOCAL synchronous_commit = DEFAULT; {RESET_ROLE}{path}{}",
                    millis(response_timeout / 10),
                    millis(response_timeout / 3),
                    literal::fill(sql.as_str(), args)
                );
                sqlx::raw_sql(AssertSqlSafe(text)).fetch_all(conn).await
            }
        }
    }
}

/// Converts a time for the server's settings. Zero would mean no limit.
pub(super) fn millis(time: Duration) -> String {
    time.as_millis().max(1).to_string()
}

fn bind<'q>(
    query: Query<'q, Postgres, PgArguments>,
    arg: &'q Arg<'_>,
) -> Query<'q, Postgres, PgArguments> {
    match arg {
        Arg::Text(text) => query.bind(*text),
        Arg::Number(number) => query.bind(*number),
        Arg::Texts(texts) => query.bind(&**texts),
        Arg::Numbers(numbers) => query.bind(&**numbers),
    }
}

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

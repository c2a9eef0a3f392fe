//! A statement with its arguments, in the two ways to send it.

use std::time::Duration;

use sqlx::{
    AssertSqlSafe, PgConnection, Postgres, SqlStr,
    postgres::{PgArguments, PgRow},
    query::Query,
};

use super::literal::{self, Arg};

/// As whom a statement acts, and where it looks for tables, on a connection that others share: as
/// on a new one.
pub(super) const RESET_ROLE: &str = "SET LOCAL role = DEFAULT; ";
pub(super) const RESET_PATH: &str = "SET LOCAL search_path = DEFAULT; ";

/// How statements travel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Travel {
    /// Prepared once per connection.
    Prepared,
    /// As one text each, which a pooler can hand to another connection every time.
    Text,
}

impl Travel {
    /// Runs a statement to its end: a commit that fails is only seen there.
    pub(super) async fn fetch(
        self,
        conn: &mut PgConnection,
        sql: SqlStr,
        args: &[Arg<'_>],
        patience: Duration,
        resets_path: bool,
    ) -> Result<Vec<PgRow>, sqlx::Error> {
        match self {
            Self::Prepared => args.iter().fold(sqlx::query(sql), bind).fetch_all(conn).await,
            Self::Text => {
                // What is sent together is one transaction, for which alone these are set. Others
                // may have left the connection otherwise.
                let path = if resets_path { RESET_PATH } else { "" };
                let text = format!(
                    "SET LOCAL lock_timeout = {}; SET LOCAL statement_timeout = {}; \
                     SET LOCAL synchronous_commit = DEFAULT; {RESET_ROLE}{path}{}",
                    millis(patience / 10),
                    millis(patience / 3),
                    literal::fill(sql.as_str(), args)
                );
                sqlx::raw_sql(AssertSqlSafe(text)).fetch_all(conn).await
            }
        }
    }
}

/// A time as the server's settings take it. Zero would be none.
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

//! A statement with its arguments, and the two ways to send it.
//!
//! It is prepared once per connection. The number of prepared statements on a server is limited for
//! all its clients together (`max_prepared_stmt_count`), so another program may leave no room. Then
//! the statement is sent as one text, in which each argument is a number or hexadecimal digits, so
//! that no setting and no argument can change its meaning.

use std::{borrow::Cow, fmt::Write as _};

use dlock_core::{Error, ErrorKind};
use sqlx::{
    AssertSqlSafe, MySql, MySqlConnection, Row as _, SqlStr,
    mysql::{MySqlArguments, MySqlQueryResult, MySqlRow},
    query::Query,
};

use super::error::{classify, has_no_room};
use crate::engine::{Fault, Micros, Row};

/// An argument of a statement.
#[derive(Clone, Debug)]
pub(super) enum Arg<'a> {
    Bytes(&'a [u8]),
    Text(Cow<'a, str>),
    Number(i64),
}

/// A statement with its arguments.
pub(super) struct Statement<'a> {
    sql: SqlStr,
    args: Vec<Arg<'a>>,
}

impl<'a> Statement<'a> {
    pub(super) const fn new(sql: SqlStr) -> Self {
        Self { sql, args: Vec::new() }
    }

    /// Adds the argument of the next `?`.
    pub(super) fn bind(mut self, arg: impl Into<Arg<'a>>) -> Self {
        self.args.push(arg.into());
        self
    }

    /// Runs it to its end, since only the end shows whether the commit succeeded.
    pub(super) async fn fetch(
        &self,
        conn: &mut MySqlConnection,
    ) -> Result<Vec<MySqlRow>, sqlx::Error> {
        match self.query().fetch_all(&mut *conn).await {
            Err(error) if has_no_room(&error) => sqlx::raw_sql(self.text()).fetch_all(conn).await,
            fetched => fetched,
        }
    }

    /// Runs it to its end, without rows.
    pub(super) async fn execute(
        &self,
        conn: &mut MySqlConnection,
    ) -> Result<MySqlQueryResult, sqlx::Error> {
        match self.query().execute(&mut *conn).await {
            Err(error) if has_no_room(&error) => sqlx::raw_sql(self.text()).execute(conn).await,
            executed => executed,
        }
    }

    fn query(&self) -> Query<'_, MySql, MySqlArguments> {
        self.args.iter().fold(sqlx::query(self.sql.clone()), |query, arg| match arg {
            Arg::Bytes(bytes) => query.bind(*bytes),
            Arg::Text(text) => query.bind(&**text),
            Arg::Number(number) => query.bind(*number),
        })
    }

    /// Returns the statement without its comments, and with its arguments.
    fn text(&self) -> AssertSqlSafe<String> {
        let sql = self.sql.as_str();
        let mut text = String::with_capacity(sql.len());
        let mut args = self.args.iter();
        for line in sql.lines().filter(|line| !line.trim_start().starts_with("--")) {
            let mut quote = None;
            for char in line.chars() {
                match char {
                    '?' if quote.is_none() => {
                        args.next().into_iter().for_each(|arg| push(&mut text, arg))
                    }
                    '\'' | '`' => {
                        match quote {
                            None => quote = Some(char),
                            Some(open) if open == char => quote = None,
                            Some(_) => {}
                        }
                        text.push(char);
                    }
                    _ => text.push(char),
                }
            }
            text.push('\n');
        }
        AssertSqlSafe(text)
    }
}

fn push(out: &mut String, arg: &Arg<'_>) {
    let (prefix, bytes) = match arg {
        Arg::Bytes(bytes) => ("X'", *bytes),
        Arg::Text(text) => ("_utf8mb4 X'", text.as_bytes()),
        Arg::Number(number) => {
            // Writing to a String does not fail.
            let _ = match number {
                // LIMIT takes no parentheses.
                0.. => write!(out, "{number}"),
                _ => write!(out, "({number})"),
            };
            return;
        }
    };
    out.push_str(prefix);
    for byte in bytes {
        let _ = write!(out, "{byte:02x}");
    }
    out.push('\'');
}

impl<'a> From<&'a [u8]> for Arg<'a> {
    fn from(bytes: &'a [u8]) -> Self {
        Self::Bytes(bytes)
    }
}

impl<'a> From<&'a str> for Arg<'a> {
    fn from(text: &'a str) -> Self {
        Self::Text(Cow::Borrowed(text))
    }
}

impl From<String> for Arg<'_> {
    fn from(text: String) -> Self {
        Self::Text(Cow::Owned(text))
    }
}

impl From<i64> for Arg<'_> {
    fn from(number: i64) -> Self {
        Self::Number(number)
    }
}

impl From<u32> for Arg<'_> {
    fn from(number: u32) -> Self {
        Self::Number(number.into())
    }
}

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
    use sqlx::SqlSafeStr as _;

    use super::*;

    fn text(statement: &Statement<'_>) -> String {
        statement.text().0
    }

    #[test]
    fn arguments_are_numbers_or_digits() {
        let sql = "-- ? 1 is\nSELECT '?', `a?`, ? - ?, 'it''s ?'\nFROM t WHERE a > ? LIMIT ?";
        let statement = Statement::new(SqlStr::from_static(sql))
            .bind(&b"a'?"[..])
            .bind(i64::MIN)
            .bind("\u{fc}\\")
            .bind(7_i64);
        assert_eq!(
            text(&statement),
            "SELECT '?', `a?`, X'61273f' - (-9223372036854775808), 'it''s ?'\n\
         FROM t WHERE a > _utf8mb4 X'c3bc5c' LIMIT 7\n"
        );
    }

    #[test]
    fn each_statement_can_be_sent_as_text() {
        for sql in super::super::queries::STATEMENTS {
            let mut statement = Statement::new(AssertSqlSafe(sql).into_sql_str());
            for _ in 0..9 {
                statement = statement.bind(7_i64);
            }
            let text = text(&statement);
            assert!(!text.contains('?') && !text.contains("--"), "{text}");
        }
    }

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

//! A connection with the bare driver: no pool, autocommit, and each statement prepared once.

use std::time::Duration;

use sqlx::{
    ConnectOptions, Row,
    mysql::{MySqlConnectOptions, MySqlConnection},
    postgres::{PgConnectOptions, PgConnection},
};

use crate::Failure;

/// The time after which an idle process of PostgreSQL reports its counts at the next opportunity. A
/// process reports them when it becomes idle, but at most once per second.
const UNTOLD: Duration = Duration::from_millis(1200);

/// The number of transactions, which are statements if each is a separate transaction.
const STATEMENTS: Statement = Statement {
    postgres: "SELECT (xact_commit + xact_rollback)::text FROM pg_stat_database \
               WHERE datname = current_database()",
    mysql: "SELECT CAST(variable_value AS CHAR) FROM information_schema.global_status \
            WHERE variable_name = 'QUESTIONS'",
};

/// A statement in both dialects.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Statement {
    pub(crate) postgres: &'static str,
    pub(crate) mysql: &'static str,
}

/// A connection.
#[derive(Debug)]
pub(crate) enum BareConnection {
    Postgres(PgConnection),
    Mysql(MySqlConnection),
}

impl BareConnection {
    /// Connects to PostgreSQL.
    pub(crate) async fn postgres(url: &str) -> Result<Self, Failure> {
        Ok(Self::Postgres(url.parse::<PgConnectOptions>()?.connect().await?))
    }

    /// Connects to a server with MySQL's protocol.
    pub(crate) async fn mysql(url: &str) -> Result<Self, Failure> {
        Ok(Self::Mysql(url.parse::<MySqlConnectOptions>()?.connect().await?))
    }

    /// Runs a statement. Returns the number of rows that it has changed.
    pub(crate) async fn run(&mut self, text: Statement, args: &[&str]) -> Result<u64, Failure> {
        Ok(match self {
            Self::Postgres(connection) => {
                let query =
                    args.iter().fold(sqlx::query(text.postgres), |query, arg| query.bind(*arg));
                query.execute(connection).await?.rows_affected()
            }
            Self::Mysql(connection) => {
                let query =
                    args.iter().fold(sqlx::query(text.mysql), |query, arg| query.bind(*arg));
                query.execute(connection).await?.rows_affected()
            }
        })
    }

    /// Runs a statement that returns one text.
    pub(crate) async fn text(&mut self, text: Statement, args: &[&str]) -> Result<String, Failure> {
        Ok(match self {
            Self::Postgres(connection) => {
                let query =
                    args.iter().fold(sqlx::query(text.postgres), |query, arg| query.bind(*arg));
                query.fetch_one(connection).await?.try_get(0)?
            }
            Self::Mysql(connection) => {
                let query =
                    args.iter().fold(sqlx::query(text.mysql), |query, arg| query.bind(*arg));
                let rows = query.fetch_all(connection).await?;
                rows.first().ok_or("a statement without an answer")?.try_get(0)?
            }
        })
    }

    /// Runs a statement that returns one number.
    pub(crate) async fn number(&mut self, text: Statement, args: &[&str]) -> Result<f64, Failure> {
        Ok(self.text(text, args).await?.parse()?)
    }

    /// Returns the number of statements that the server has run. The latest ones are missing until
    /// each counted connection has run at least one more statement after [`Self::settle`].
    pub(crate) async fn statements(&mut self) -> Result<f64, Failure> {
        self.number(STATEMENTS, &[]).await
    }

    /// Waits until the next action of a connection makes the server report its counts.
    pub(crate) async fn settle(&self) {
        if let Self::Postgres(_) = self {
            tokio::time::sleep(UNTOLD).await;
        }
    }
}

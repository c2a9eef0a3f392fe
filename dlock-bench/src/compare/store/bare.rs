//! A connection by the driver alone: no pool, autocommit, and each statement prepared once.

use std::time::Duration;

use sqlx::{
    ConnectOptions, Row,
    mysql::{MySqlConnectOptions, MySqlConnection},
    postgres::{PgConnectOptions, PgConnection},
};

use crate::Failure;

/// A PostgreSQL server's processes tell what they have counted when they come to rest, but not
/// again within a second.
const UNTOLD: Duration = Duration::from_millis(1200);

/// Transactions, which are statements where each is one of its own.
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
    /// To PostgreSQL.
    pub(crate) async fn postgres(url: &str) -> Result<Self, Failure> {
        Ok(Self::Postgres(url.parse::<PgConnectOptions>()?.connect().await?))
    }

    /// To a server that speaks MySQL.
    pub(crate) async fn mysql(url: &str) -> Result<Self, Failure> {
        Ok(Self::Mysql(url.parse::<MySqlConnectOptions>()?.connect().await?))
    }

    /// Does a statement; how many rows it has changed.
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

    /// Does a statement that answers with one text.
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

    /// The same for a number.
    pub(crate) async fn number(&mut self, text: Statement, args: &[&str]) -> Result<f64, Failure> {
        Ok(self.text(text, args).await?.parse()?)
    }

    /// How many statements the server has done, but for those that it will tell of when the
    /// connections that are counted have done one more, at least, after [`Self::settle`].
    pub(crate) async fn statements(&mut self) -> Result<f64, Failure> {
        self.number(STATEMENTS, &[]).await
    }

    /// Waits until whatever a connection does next makes it tell what it has counted.
    pub(crate) async fn settle(&self) {
        if let Self::Postgres(_) = self {
            tokio::time::sleep(UNTOLD).await;
        }
    }
}

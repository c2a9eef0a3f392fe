//! The way to the server, which every new connection goes: one of our own, or out of an
//! application's pool.

use std::{sync::Arc, time::Duration};

use dlock_core::{ConfigIssue, Error};
use sqlx::{
    AssertSqlSafe, ConnectOptions as _, MySql, MySqlPool,
    mysql::{MySqlConnectOptions, MySqlRow},
};
use tokio::time::timeout;

use super::{
    answer::get,
    error::{classify, is_in_transaction},
    queries,
};
use crate::{
    engine::Fault,
    server::{Taken, late, silent_at_first, tries},
};

/// Where connections come from.
#[derive(Clone)]
pub(super) enum Source {
    /// **They print the password.**
    Own(Box<MySqlConnectOptions>),
    /// Each statement takes a connection out and gives it back.
    Pool(MySqlPool),
    /// One's own, with the options that the pool has just then.
    Beside(MySqlPool),
}

impl Source {
    /// Where connections come from that are dlock's own.
    pub(super) fn own(&self) -> Self {
        match self {
            Self::Pool(pool) => Self::Beside(pool.clone()),
            own => own.clone(),
        }
    }
}

/// How to get to the server, and what to expect there.
#[derive(Clone)]
pub(super) struct Way {
    pub(super) source: Source,
    session: String,
    /// What an application's connection is asked before each use.
    pooled: Arc<str>,
    pub(super) timeout: Duration,
    /// The most that connecting or an answer may take.
    pub(super) limit: Duration,
    pub(super) returning: bool,
}

impl Way {
    /// A try may take half of the `patience`, so that there is time for another.
    pub(super) fn new(source: Source, patience: Duration) -> Self {
        // The server gives up before the client does, as far as it can, and so leaves no doubt about
        // the statement.
        let timeout = patience / 2;
        let seconds = (patience.as_secs() / 10).max(1).to_string();
        let limit = format!("{:.3}", (timeout.mul_f64(0.7)).as_secs_f64().max(0.005));
        let session = queries::SESSION.replace("{seconds}", &seconds).replace("{limit}", &limit);
        let pooled = queries::POOLED.lines().filter(|line| !line.starts_with("--"));
        let pooled = pooled.collect::<Vec<_>>().join("\n").into();
        Self { source, session, pooled, timeout, limit: timeout, returning: false }
    }

    /// Gives connecting and answers no more time than this from now on.
    pub(super) fn bound(&mut self, limit: Duration) {
        self.limit = limit.min(self.timeout);
    }

    /// Connects; how many bytes a statement may have there. Nothing has been applied when that fails.
    pub(super) async fn connect(&self) -> Result<(Taken<MySql>, usize), Fault> {
        let connected = match &self.source {
            Source::Own(options) => self.own(options).await,
            Source::Beside(pool) => self.own(&beside(pool)).await,
            Source::Pool(pool) => self.pooled(pool).await,
        };
        connected.map_err(Fault::before_anything_was_sent)
    }

    async fn own(&self, options: &MySqlConnectOptions) -> Result<(Taken<MySql>, usize), Fault> {
        let connect = async {
            let mut conn = options.connect().await.map_err(classify)?;
            let session = sqlx::raw_sql(AssertSqlSafe(self.session.clone()));
            let rows = session.fetch_all(&mut conn).await.map_err(classify)?;
            Ok((Taken::Own(conn), packet(&rows)?))
        };
        timeout(self.limit, connect)
            .await
            .unwrap_or_else(|_| Err(silent_at_first("MySQL or MariaDB is")))
    }

    /// Takes a connection out of the application's pool that is in no transaction, commits each
    /// statement, and reads statements as they are meant. One that somebody has left otherwise is
    /// closed, and the next one taken.
    ///
    /// A `begin()` that was dropped half-way leaves one open that the driver does not know of
    /// (<https://github.com/launchbadge/sqlx/issues/2054>). What is written in there is seen by
    /// nobody, and undone when somebody notices.
    async fn pooled(&self, pool: &MySqlPool) -> Result<(Taken<MySql>, usize), Fault> {
        // After all that are there, one is new. If that is no better, all of them are like it.
        let mut left = tries(pool.num_idle(), pool.size());
        loop {
            let acquired = timeout(self.limit, pool.acquire()).await;
            let mut conn = acquired.unwrap_or(Err(sqlx::Error::PoolTimedOut)).map_err(classify)?;
            let asked = sqlx::raw_sql(AssertSqlSafe(self.pooled.clone())).fetch_all(&mut *conn);
            match timeout(self.limit, asked).await {
                Ok(Ok(rows)) => {
                    let found = fitness(&rows)?;
                    if found == FIT {
                        return Ok((Taken::Pooled(conn), packet(&rows)?));
                    }
                    drop(conn.detach());
                    if left == 0 {
                        return Err(unfit(found).into());
                    }
                    left -= 1;
                    tracing::warn!(
                        target: "dlock",
                        error = %unfit(found),
                        "pooled connection unusable, closed"
                    );
                }
                Ok(Err(error)) if is_in_transaction(&error) => {
                    tracing::warn!(
                        target: "dlock",
                        "pooled connection was in a transaction, closed"
                    );
                    drop(conn.detach());
                }
                Ok(Err(error)) => {
                    drop(conn.detach());
                    return Err(classify(error));
                }
                Err(_) => {
                    drop(conn.detach());
                    return Err(late());
                }
            }
        }
    }
}

/// The options that the pool has now: the application may have changed them since it was made, as
/// passwords do not last for ever.
fn beside(pool: &MySqlPool) -> MySqlConnectOptions {
    MySqlConnectOptions::clone(&pool.connect_options()).disable_statement_logging()
}

/// How many bytes a statement may have, as the first row tells.
fn packet(rows: &[MySqlRow]) -> Result<usize, Fault> {
    let bytes = rows.first().map(|row| get::<i64>(row, 0)).transpose()?;
    Ok(bytes.and_then(|bytes| usize::try_from(bytes).ok()).unwrap_or(PACKET))
}

/// The packet of a server that does not tell: a quarter of what the oldest have unless told otherwise.
const PACKET: usize = 1 << 20;

/// What the answer to `pooled.sql` says of the connection.
fn fitness(rows: &[MySqlRow]) -> Result<i64, Fault> {
    let [before, after] = rows else { return Ok(HIDDEN) };
    let is_still = get::<Option<i64>>(before, 1)? == get::<Option<i64>>(after, 1)?;
    match get(after, 0)? {
        FIT if is_still => Ok(STILL),
        found => Ok(found),
    }
}

const FIT: i64 = 0;
/// The clock of the session is.
const STILL: i64 = 4;
/// Rows are.
const HIDDEN: i64 = 5;

/// The number is that of `pooled.sql`.
fn unfit(found: i64) -> Error {
    let text = match found {
        2 => {
            "the pool's connections treat empty texts as null: remove EMPTY_STRING_IS_NULL from \
             their sql_mode, or give dlock connections of its own"
        }
        3 => {
            "the pool's connections read statements in a character set that does not contain \
             ASCII: set their collation_connection to one of utf8mb4, or give dlock connections of \
             its own"
        }
        STILL => {
            "the clock of the pool's connections stands still: do not set `timestamp` on them (SET \
             timestamp = DEFAULT), or give dlock connections of its own"
        }
        HIDDEN => {
            "the pool's connections hide rows: do not set sql_select_limit on them, or give dlock \
             connections of its own"
        }
        _ => {
            "the pool's connections do not commit each statement by itself, or truncate values \
             that do not fit: set autocommit = 1 on them, and STRICT_ALL_TABLES or \
             STRICT_TRANS_TABLES in their sql_mode, or give dlock connections of its own"
        }
    };
    Error::config(ConfigIssue::Access, text)
}

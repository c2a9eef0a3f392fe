//! Where connections come from: made for dlock, or out of an application's pool.

use std::{sync::Arc, time::Duration};

use dlock_core::{ConfigIssue, Error};
use sqlx::{
    AssertSqlSafe, Connection as _, PgConnection, PgPool, Postgres, Row as _,
    pool::PoolConnection,
    postgres::{PgConnectOptions, PgRow},
};
use tokio::time::timeout;

use super::{driver::PostgresConfig, error::classify, queries};
use crate::{
    engine::{Fault, Kept},
    server::{NO_WRITES, Taken, late, tries},
};

/// Where connections come from.
#[derive(Clone)]
pub(super) enum Source {
    /// One's own, with the options that there are just then: a pool's may change.
    Own(Arc<PostgresConfig>),
    /// Each statement takes a connection out and gives it back.
    Pool(PgPool),
}

impl Source {
    /// Whether the options say where to look for tables.
    pub(super) fn names_path(&self) -> bool {
        let names = |options: &PgConnectOptions| {
            options.get_options().is_some_and(|options| options.contains("search_path"))
        };
        match self {
            Self::Own(config) => names(&config.session()),
            Self::Pool(pool) => names(&pool.connect_options()),
        }
    }
}

impl PostgresConfig {
    /// Where connections come from that are dlock's own.
    pub(super) fn own(&self) -> Source {
        Source::Own(Arc::new(self.clone()))
    }

    /// Where other connections come from.
    pub(super) fn shared(&self) -> Source {
        match &self.driver.pool {
            Some(pool) => Source::Pool(pool.clone()),
            None => self.own(),
        }
    }
}

/// Has the driver forget what it has prepared on an application's connection, which has told the server
/// to (`DISCARD ALL`); whether it has.
pub(super) async fn prepares_again(conn: &mut Taken<Postgres>, limit: Duration) -> bool {
    match conn {
        Taken::Own(_) => false,
        Taken::Pooled(conn) => {
            matches!(timeout(limit, conn.clear_cached_statements()).await, Ok(Ok(())))
        }
    }
}

/// Looks at a connection that was just made, and has the server keep it while it is idle. The address
/// may lead elsewhere by now.
pub(super) async fn greet(
    conn: &mut PgConnection,
    config: &PostgresConfig,
    writes: bool,
    kept: &Kept,
) -> Result<(), Fault> {
    let greeting = AssertSqlSafe(config.greeting());
    let row = sqlx::raw_sql(greeting).fetch_one(conn).await.map_err(classify)?;
    let is = |at: usize| row.try_get::<bool, _>(at).map_err(classify);
    if writes && !is(0)? {
        return Err(classify(NO_WRITES));
    }
    if !is(1)? {
        return Err(Fault::config(ConfigIssue::OptionValue, DROPPED));
    }
    kept.saw(is(2)?);
    Ok(())
}

const DROPPED: &str = "a pooler in front of the server drops the settings of dlock's sessions (the \
                       startup parameter options, which it is configured to ignore): add \
                       dlock.pooler=true, or give the address of the server itself";

/// Takes a connection out of the application's pool that is in no transaction, and set as it was when
/// the store was opened. One that somebody has left otherwise is closed, and the next one taken.
///
/// A `begin()` that was dropped half-way leaves one open that the driver does not know of
/// (<https://github.com/launchbadge/sqlx/issues/2054>). What is written in there is seen by nobody,
/// and undone when somebody notices.
pub(super) async fn clean(
    pool: &PgPool,
    patience: Duration,
    expected: &[String],
) -> Result<PoolConnection<Postgres>, Fault> {
    // After all that are there, one is new. If that is no better, all of them are like it.
    let mut left = tries(pool.num_idle(), pool.size());
    loop {
        let acquired = timeout(patience, pool.acquire()).await;
        let mut conn = acquired.unwrap_or(Err(sqlx::Error::PoolTimedOut)).map_err(classify)?;
        // As a text: prepared, a statement may begin later than the transaction that it is.
        let asked = sqlx::raw_sql(queries::POOLED).fetch_one(&mut *conn);
        let found = timeout(patience, asked).await.map_err(|_| late());
        let found = found.and_then(|row| row.map_err(classify));
        let read = |row: PgRow| Ok((row.try_get::<bool, _>(0)?, row.try_get::<String, _>(1)?));
        match found.and_then(|row| read(row).map_err(classify)) {
            Ok((true, session)) if expected.is_empty() || expected.contains(&session) => {
                return Ok(conn);
            }
            Ok((true, session)) => {
                drop(conn.detach());
                if left == 0 {
                    return Err(changed(&session, &expected.join(" or ")).into());
                }
                left -= 1;
                tracing::warn!(
                    target: "dlock",
                    found = %session,
                    "pooled connection has other settings, closed"
                );
            }
            Ok((false, _)) => {
                tracing::warn!(target: "dlock", "pooled connection was in a transaction, closed");
                drop(conn.detach());
            }
            Err(fault) => {
                drop(conn.detach());
                return Err(fault);
            }
        }
    }
}

fn changed(found: &str, expected: &str) -> Error {
    Error::config(
        ConfigIssue::Access,
        format!(
            "the pool's connections have another role, synchronous_commit or client_encoding \
             ({found:.80}) than at first ({expected:.80}): set them alike on all connections, or \
             give dlock connections of its own"
        ),
    )
}

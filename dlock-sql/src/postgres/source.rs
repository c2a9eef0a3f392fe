//! The source of connections: dlock's own, or an application's pool.
//!
//! Another part of the application may leave a pooled connection in a transaction, or with other
//! settings. A grant that is written into such a transaction may be rolled back later. So each
//! pooled connection is checked before each use. A dedicated connection is checked once, when it is
//! opened.

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
    engine::{DurabilityMonitor, Fault},
    server::{Borrowed, NO_WRITES, late, tries},
};

/// The source of connections.
#[derive(Clone)]
pub(super) enum Source {
    /// Dedicated connections, with the current options, since those of a pool may change.
    Own(Arc<PostgresConfig>),
    /// Each statement takes a connection out of the pool and returns it. Once the pool is closed,
    /// there are dedicated connections.
    Pool(PgPool, Arc<PostgresConfig>),
}

impl Source {
    /// Returns whether the options set the search path.
    pub(super) fn names_path(&self) -> bool {
        let names = |options: &PgConnectOptions| {
            options.get_options().is_some_and(|options| options.contains("search_path"))
        };
        match self {
            Self::Own(config) => names(&config.session()),
            Self::Pool(pool, _) => names(&pool.connect_options()),
        }
    }
}

impl PostgresConfig {
    /// Returns the source of dedicated connections.
    pub(super) fn own(&self) -> Source {
        Source::Own(Arc::new(self.clone()))
    }

    /// Returns the source of the other connections.
    pub(super) fn shared(&self) -> Source {
        match &self.driver.pool {
            Some(pool) => Source::Pool(pool.clone(), Arc::new(self.clone())),
            None => self.own(),
        }
    }
}

/// Makes the driver forget its prepared statements on a pooled connection, if the application has
/// made the server forget them (`DISCARD ALL`). Returns true if it did.
pub(super) async fn prepares_again(conn: &mut Borrowed<Postgres>, limit: Duration) -> bool {
    match conn {
        Borrowed::Own(_) => false,
        Borrowed::Pooled(conn) => {
            matches!(timeout(limit, conn.clear_cached_statements()).await, Ok(Ok(())))
        }
    }
}

/// Checks a new connection, since the address may lead to another server by now. Also makes the
/// server keep the connection while it is idle. Once the store is open, statements name the schemas
/// of the tables, and the server has to accept writes.
pub(super) async fn greet(
    conn: &mut PgConnection,
    config: &PostgresConfig,
    is_opened: bool,
    durability: &DurabilityMonitor,
) -> Result<(), Fault> {
    let greeting = AssertSqlSafe(config.greeting(is_opened));
    let row = sqlx::raw_sql(greeting).fetch_one(conn).await.map_err(classify)?;
    let is = |at: usize| row.try_get::<bool, _>(at).map_err(classify);
    if is_opened && !is(0)? {
        return Err(classify(NO_WRITES));
    }
    if !is(1)? {
        return Err(Fault::config(ConfigIssue::OptionValue, DROPPED));
    }
    durability.record(is(2)?);
    Ok(())
}

const DROPPED: &str = "a pooler in front of the server drops the settings of dlock's sessions (the \
                       startup parameter options, which it is configured to ignore): add \
                       dlock.pooler=true, or give the address of the server itself";

/// Takes a connection out of the application's pool. It must be in no transaction, and have the
/// settings of the time when the store was opened. Other connections are closed, and the next one
/// is taken.
///
/// A `begin()` that was dropped half-way leaves a transaction open that the driver does not know of
/// (<https://github.com/launchbadge/sqlx/issues/2054>). Writes in it are invisible to others, and
/// are rolled back later.
pub(super) async fn clean(
    pool: &PgPool,
    response_timeout: Duration,
    expected: &[String],
) -> Result<PoolConnection<Postgres>, Fault> {
    // After all idle connections, the next one is new. If a new one has the wrong settings, all
    // connections have them.
    let mut left = tries(pool.num_idle(), pool.size());
    let mut open = pool.options().get_max_connections();
    loop {
        let acquired = timeout(response_timeout, pool.acquire()).await;
        let mut conn = acquired.unwrap_or(Err(sqlx::Error::PoolTimedOut)).map_err(classify)?;
        // Sent as text: a prepared statement may begin later than its own transaction.
        let asked = sqlx::raw_sql(queries::POOLED).fetch_one(&mut *conn);
        let found = timeout(response_timeout, asked).await.map_err(|_| late());
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
                drop(conn.detach());
                if open == 0 {
                    return Err(Error::config(ConfigIssue::Access, IN_TRANSACTION).into());
                }
                open -= 1;
                tracing::warn!(target: "dlock", "pooled connection was in a transaction, closed");
            }
            Err(fault) => {
                drop(conn.detach());
                return Err(fault);
            }
        }
    }
}

const IN_TRANSACTION: &str = "the pool's connections are in a transaction: commit it before they \
                              return to the pool, or give dlock connections of its own";

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

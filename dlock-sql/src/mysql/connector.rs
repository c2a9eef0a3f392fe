//! How connections are opened: dedicated ones, or those of an application's pool.
//!
//! Another part of the application may leave a pooled connection in a transaction or with other
//! settings. A grant that is written into such a transaction may be rolled back later. So each
//! pooled connection is checked before each use. A dedicated connection gets its settings once,
//! when it is opened.

use std::{net::IpAddr, sync::Arc, time::Duration};

use dlock_core::{ConfigIssue, Error};
use sqlx::{
    AssertSqlSafe, ConnectOptions as _, MySql, MySqlConnection, MySqlPool, Row as _,
    mysql::{MySqlConnectOptions, MySqlRow, MySqlSslMode},
};
use tokio::time::timeout;

use super::{
    error::{classify, is_in_transaction, is_locked_out, lacks_right},
    queries,
    statement::get,
};
use crate::{
    engine::{Fault, ReconnectPauses},
    server::{Borrowed, Idle, Target, late, reach, silent_at_first, tries},
};

/// The source of connections.
#[derive(Clone)]
pub(super) enum Source {
    /// Dedicated connections. **The `Debug` of the options prints the password.**
    Own(Box<MySqlConnectOptions>),
    /// Each statement takes a connection out of the pool and returns it.
    Pool(MySqlPool),
    /// Dedicated connections, with the current options of the pool.
    Beside(MySqlPool),
}

impl Source {
    /// Returns the source of dedicated connections.
    pub(super) fn own(&self) -> Self {
        match self {
            Self::Pool(pool) => Self::Beside(pool.clone()),
            own => own.clone(),
        }
    }
}

/// How to connect to the server.
#[derive(Clone)]
pub(super) struct Connector {
    pub(super) source: Source,
    session: String,
    /// The check of a pooled connection before each use. It includes the table once its database is
    /// known.
    pooled: Arc<str>,
    knows_table: bool,
    pub(super) timeout: Duration,
    /// The longest time for a connect or an answer.
    pub(super) limit: Duration,
    pub(super) returning: bool,
}

impl Connector {
    /// Creates a connector. An attempt may take half of `response_timeout`, so that there is time
    /// for a retry.
    pub(super) fn new(source: Source, response_timeout: Duration) -> Self {
        // If possible, the server ends a statement before this client stops waiting. Then there is
        // an answer, and no doubt whether the statement was applied.
        let timeout = response_timeout / 2;
        let seconds = (response_timeout.as_secs() / 10).max(1).to_string();
        let limit = format!("{:.3}", (timeout.mul_f64(0.7)).as_secs_f64().max(0.005));
        let session = queries::SESSION.replace("{seconds}", &seconds).replace("{limit}", &limit);
        let (pooled, knows_table) = (pooled_check("", "", false), false);
        Self { source, session, pooled, knows_table, timeout, limit: timeout, returning: false }
    }

    /// Makes it refuse pooled connections on which this table is another one, or is locked, those
    /// with other roles, and with `galera` those that keep their writes from the other nodes of the
    /// cluster. The name of the table has its database, and is quoted. The roles are a list of
    /// literals, or empty.
    pub(super) fn watch(&mut self, table: &str, roles: &str, galera: bool) {
        self.pooled = pooled_check(table, roles, galera);
        self.knows_table = true;
    }

    /// Bounds the time of a connect and of an answer from now on.
    pub(super) fn bound(&mut self, limit: Duration) {
        self.limit = limit.min(self.timeout);
    }

    /// Returns whether it gives dedicated connections. If the application has closed its pool, it
    /// does, so that the locks can still be released.
    pub(super) fn is_dedicated(&self) -> bool {
        match &self.source {
            Source::Own(_) | Source::Beside(_) => true,
            Source::Pool(pool) => pool.is_closed(),
        }
    }

    /// Connects, and returns the largest size of a statement there. If the connect fails, nothing
    /// was applied.
    pub(super) async fn connect(&self) -> Result<(Borrowed<MySql>, usize), Fault> {
        let connected = match &self.source {
            Source::Own(options) => self.own(options).await,
            Source::Beside(pool) => self.own(&beside(pool)).await,
            Source::Pool(pool) if pool.is_closed() => self.own(&beside(pool)).await,
            Source::Pool(pool) => match self.pooled(pool).await {
                Err(_) if pool.is_closed() => self.own(&beside(pool)).await,
                connected => connected,
            },
        };
        // So the caller may retry without doubt about an earlier sending.
        connected.map_err(Fault::before_anything_was_sent)
    }

    /// Opens a dedicated connection. While none can be opened, takes one of the pool beside which it
    /// opens them, or without a pool waits for one of another task.
    pub(super) async fn connect_or_spare(
        &self,
        spared: &mut ReconnectPauses,
        idle: &Idle<(MySqlConnection, usize)>,
    ) -> Result<(Borrowed<MySql>, usize), Fault> {
        let pool = match &self.source {
            Source::Beside(pool) => Some(pool).filter(|pool| !pool.is_closed()),
            _ => None,
        };
        // With a pool, half of the time, so that there is time for the pool if the server does not
        // answer.
        let limit = if pool.is_some() { self.limit / 2 } else { self.limit };
        let own = async {
            let connected = timeout(limit, self.connect()).await;
            connected.unwrap_or_else(|_| Err(silent().before_anything_was_sent()))
        };
        let other = async {
            let taken = match pool {
                Some(pool) => self.pooled(pool).await,
                None => {
                    let idle = idle.next(self.limit / 2).await;
                    idle.map(|(conn, packet)| (Borrowed::Own(conn), packet))
                }
            };
            taken.map_err(Fault::before_anything_was_sent)
        };
        spared.own_or_other(own, other).await
    }

    async fn own(&self, options: &MySqlConnectOptions) -> Result<(Borrowed<MySql>, usize), Fault> {
        let connect = reach(options, self.limit, classify, |options| async move {
            let mut conn = options.connect().await.map_err(classify)?;
            let session = sqlx::raw_sql(AssertSqlSafe(self.session.clone()));
            let rows = session.fetch_all(&mut conn).await.map_err(classify)?;
            Ok((Borrowed::Own(conn), packet(&rows)?))
        });
        timeout(self.limit, connect).await.unwrap_or_else(|_| Err(silent()))
    }

    /// Takes a connection out of the application's pool. The connection must be in no transaction,
    /// must commit each statement on its own, and must have suitable settings. Other connections
    /// are closed, and the next one is taken.
    ///
    /// A `begin()` that was dropped half-way leaves a transaction open that the driver does not
    /// know of (<https://github.com/launchbadge/sqlx/issues/2054>). Writes in it are invisible to
    /// others, and are rolled back later.
    async fn pooled(&self, pool: &MySqlPool) -> Result<(Borrowed<MySql>, usize), Fault> {
        // After all idle connections, the next one is new. If a new one has the wrong settings, all
        // connections have them.
        let mut left = tries(pool.num_idle(), pool.size());
        let mut unusable =
            usize::try_from(pool.options().get_max_connections()).unwrap_or(usize::MAX);
        loop {
            let acquired = timeout(self.limit, pool.acquire()).await;
            let mut conn = acquired.unwrap_or(Err(sqlx::Error::PoolTimedOut)).map_err(classify)?;
            match timeout(self.limit, self.ask(&mut conn)).await {
                Ok(Ok(rows)) => {
                    let found = fitness(&rows, self.knows_table)?;
                    if found == FIT {
                        return Ok((Borrowed::Pooled(conn), packet(&rows)?));
                    }
                    drop(conn.detach());
                    // A temporary table is no setting, so that a new connection may lack it.
                    let left = if found == SHADOWED { &mut unusable } else { &mut left };
                    if *left == 0 {
                        return Err(unfit(found).into());
                    }
                    *left -= 1;
                    tracing::warn!(
                        target: "dlock",
                        error = %unfit(found),
                        "pooled connection unusable, closed"
                    );
                }
                Ok(Err(error)) if is_in_transaction(&error) || is_locked_out(&error) => {
                    drop(conn.detach());
                    let is_locked_out = is_locked_out(&error);
                    // A new connection is like this one only if its settings are so.
                    match (unusable, is_locked_out) {
                        (0, true) => return Err(classify(error)),
                        (0, false) => return Err(unfit(UNCOMMITTED).into()),
                        _ => unusable -= 1,
                    }
                    if is_locked_out {
                        tracing::warn!(
                            target: "dlock",
                            "pooled connection was under LOCK TABLES, closed"
                        );
                    } else {
                        tracing::warn!(
                            target: "dlock",
                            "pooled connection was in a transaction, closed"
                        );
                    }
                }
                // The session may have another role than the next one.
                Ok(Err(error)) if lacks_right(&error) && left > 0 => {
                    drop(conn.detach());
                    left -= 1;
                    tracing::warn!(target: "dlock", %error, "pooled connection unusable, closed");
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

    /// Returns the answer to `pooled.sql`. On a node of Galera the clock stands still for the
    /// statements of one text, so it is read again with the next one.
    async fn ask(&self, conn: &mut MySqlConnection) -> Result<Vec<MySqlRow>, sqlx::Error> {
        let check = || sqlx::raw_sql(AssertSqlSafe(self.pooled.clone()));
        let mut rows = check().fetch_all(&mut *conn).await?;
        if matches!(fitness(&rows, self.knows_table), Ok(STILL)) {
            let before = rows.swap_remove(0);
            rows = check().fetch_all(conn).await?;
            if let Some(first) = rows.first_mut() {
                *first = before;
            }
        }
        Ok(rows)
    }
}

fn silent() -> Fault {
    silent_at_first("MySQL or MariaDB is")
}

impl Target for MySqlConnectOptions {
    fn host_and_port(&self) -> Option<(&str, u16)> {
        self.get_socket().is_none().then(|| (self.get_host(), self.get_port()))
    }

    fn is_encrypted(&self) -> bool {
        !matches!(self.get_ssl_mode(), MySqlSslMode::Disabled)
    }

    fn at(self, address: IpAddr) -> Self {
        self.host(&address.to_string())
    }

    fn through(self, socket: &str) -> (Self, String) {
        (self.socket(socket), socket.to_owned())
    }
}

/// Returns the check of a pooled connection, without its comments, and without what is not known
/// yet.
fn pooled_check(table: &str, roles: &str, galera: bool) -> Arc<str> {
    let is_known = |line: &&str| {
        let lacks = |what, value: &str| value.is_empty() && line.contains(what);
        let is_elsewhere = !galera && line.contains("@@wsrep_on");
        !line.starts_with("--") && !lacks(TABLE, table) && !lacks(ROLES, roles) && !is_elsewhere
    };
    let lines: Vec<_> = queries::POOLED.lines().filter(is_known).collect();
    // The name of the table itself is not searched again.
    lines.join("\n").replace(ROLES, roles).replace(TABLE, table).into()
}

const TABLE: &str = "{table}";
const ROLES: &str = "{roles}";

/// Returns the current options of the pool. The application may have changed them since it created
/// the pool, for example the password.
fn beside(pool: &MySqlPool) -> MySqlConnectOptions {
    MySqlConnectOptions::clone(&pool.connect_options()).disable_statement_logging()
}

/// Returns the largest size of a statement, from the first row.
fn packet(rows: &[MySqlRow]) -> Result<usize, Fault> {
    let bytes = rows.first().map(|row| get::<i64>(row, 0)).transpose()?;
    Ok(bytes.and_then(|bytes| usize::try_from(bytes).ok()).unwrap_or(PACKET))
}

/// The largest size if the server does not state it: a quarter of the default of the oldest
/// servers.
const PACKET: usize = 1 << 20;

/// Returns the fitness of a pooled connection, from the answer to `pooled.sql`.
fn fitness(rows: &[MySqlRow], knows_table: bool) -> Result<i64, Fault> {
    let (before, after) = match rows {
        [before, after] if !knows_table => (before, after),
        [before, after, table] if knows_table => {
            // In any character set that contains ASCII. Two of them have zeros between the letters.
            let text: Vec<u8> = table.try_get_unchecked(1).map_err(classify)?;
            let begin = text.into_iter().filter(|byte| *byte != 0).take(TEMPORARY_TABLE.len());
            if begin.eq(TEMPORARY_TABLE.bytes()) {
                return Ok(SHADOWED);
            }
            (before, after)
        }
        _ => return Ok(HIDDEN),
    };
    let is_still = get::<Option<i64>>(before, 1)? == get::<Option<i64>>(after, 1)?;
    match get(after, 0)? {
        FIT if is_still => Ok(STILL),
        found => Ok(found),
    }
}

const TEMPORARY_TABLE: &str = "CREATE TEMPORARY TABLE";

const FIT: i64 = 0;
/// The session does not commit each statement, or truncates values.
const UNCOMMITTED: i64 = 1;
/// The clock of the session does not advance.
const STILL: i64 = 4;
/// The session hides rows, or refuses to search for them.
const HIDDEN: i64 = 5;
/// A temporary table of the session hides the table of the locks.
const SHADOWED: i64 = 6;

/// Returns the error for an unfit connection. The number is that of `pooled.sql`.
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
            "the pool's connections hide rows, or refuse to search for them: do not set \
             sql_select_limit or max_join_size on them, or give dlock connections of its own"
        }
        SHADOWED => {
            "the pool's connections have a temporary table dlock_lock, which hides the table of the \
             locks: give the temporary table another name, or give dlock connections of its own"
        }
        7 => {
            "the pool's connections keep what they write from replicas, so that no replica gets the \
             locks: set sql_log_bin = 1 on them, and skip_replication = 0, or give dlock connections \
             of its own"
        }
        8 => {
            "the pool's connections have another role than when dlock was opened: set the role \
             alike on all connections (SET DEFAULT ROLE), or give dlock connections of its own"
        }
        9 => {
            "the pool's connections keep what they write from the other nodes of the Galera cluster: \
             set wsrep_on = 1 on them, or give dlock connections of its own"
        }
        _ => {
            "the pool's connections do not commit each statement by itself, or truncate values \
             that do not fit: set autocommit = 1 on them, and STRICT_ALL_TABLES or \
             STRICT_TRANS_TABLES in their sql_mode, or give dlock connections of its own"
        }
    };
    Error::config(ConfigIssue::Access, text)
}

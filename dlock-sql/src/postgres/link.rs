//! A way to the server: a connection of one's own, made again when it was lost, or an application's
//! pool.

use std::{sync::Arc, time::Duration};

use dlock_core::{Certainty, Clock, ConfigIssue, Error, ErrorKind, Instant};
use sqlx::{
    AssertSqlSafe, ConnectOptions as _, Connection as _, PgConnection, PgPool, Postgres, Row as _,
    pool::PoolConnection,
    postgres::{PgConnectOptions, PgRow},
};
use tokio::time::timeout;

use super::{
    PostgresConfig,
    error::{breaks, classify},
    queries,
    statement::{Arg, RESET_PATH, RESET_ROLE, Travel},
};
use crate::{
    engine::{Backoff, Cure, Fault},
    server::{NO_WRITES, Texts, from_primary, tries},
};

/// Where connections come from.
#[derive(Clone)]
pub(super) enum Source {
    Own(Arc<PgConnectOptions>),
    /// Each statement takes a connection out and gives it back.
    Pool(PgPool),
    /// One's own, with the options that the pool has just then.
    Beside(Box<PostgresConfig>),
}

impl Source {
    /// Whether the options say where to look for tables.
    fn names_path(&self) -> bool {
        match self {
            Self::Own(options) => names_path(options),
            Self::Pool(pool) => names_path(&pool.connect_options()),
            Self::Beside(config) => names_path(&config.session()),
        }
    }
}

fn names_path(options: &PgConnectOptions) -> bool {
    options.get_options().is_some_and(|options| options.contains("search_path"))
}

/// Runs statements, each to its end or to its time-out.
pub(super) struct Link {
    source: Source,
    travel: Travel,
    patience: Duration,
    /// The most that connecting or an answer may take.
    limit: Duration,
    idle: Option<PgConnection>,
    backoff: Backoff,
    /// Since when a statement that was given up may still run on the server.
    left: Option<Instant>,
    texts: Texts,
    is_opened: bool,
    /// How the sessions of an application's pool may be set, once that is known.
    sessions: Arc<[String]>,
    /// Whether others leave their settings on its connections, the path among them.
    is_shared: bool,
    /// Whether tables are looked for where a new session does.
    resets_path: bool,
}

/// Where to look for tables.
#[derive(Clone, Copy, Debug)]
pub(super) struct Place {
    resets_path: bool,
    pub(super) create: bool,
}

enum Conn {
    Own(PgConnection),
    Pooled(PoolConnection<Postgres>),
}

impl Link {
    /// A link that connects when it is first used. Neither connecting nor an answer may take longer
    /// than half of `patience`, so that there is time for another try.
    pub(super) fn new(source: Source, travel: Travel, patience: Duration) -> Self {
        // A pooler may set a path that it is told of, and that stays.
        let is_shared = travel == Travel::Text && !source.names_path();
        Self {
            source,
            travel,
            patience,
            limit: patience / 2,
            idle: None,
            backoff: Backoff::new(),
            left: None,
            texts: Texts::default(),
            is_opened: false,
            sessions: Arc::default(),
            is_shared,
            resets_path: is_shared,
        }
    }

    /// Gives connecting and answers no more time than this from now on.
    pub(super) fn bound(&mut self, limit: Duration) {
        self.limit = limit.min(self.patience / 2);
    }

    /// Where to look for tables, one after the other, and whether to make them there: where a new
    /// session does, then where this one does, as a pooler may set the path of all (`connect_query`).
    pub(super) fn places(&self, create: bool) -> Vec<Place> {
        let place = |resets_path, create| Place { resets_path, create };
        match (self.is_shared, create) {
            (false, _) => vec![place(false, create)],
            (true, false) => vec![place(true, false), place(false, false)],
            (true, true) => vec![place(true, false), place(false, false), place(true, true)],
        }
    }

    /// Has it look for tables there.
    pub(super) const fn look_in(&mut self, place: Place) {
        self.resets_path = place.resets_path;
    }

    /// Has it find the tables where these statements do, whatever a session's settings.
    pub(super) fn name_tables(&mut self, texts: Texts) {
        self.texts = texts;
        self.is_opened = true;
    }

    /// Has it use connections of the application's pool only as long as they are set like one of
    /// these.
    pub(super) fn expect(&mut self, sessions: Arc<[String]>) {
        self.sessions = sessions;
    }

    /// Runs a statement, which commits by itself.
    pub(super) async fn fetch(
        &mut self,
        sql: &'static str,
        args: &[Arg<'_>],
    ) -> Result<Vec<PgRow>, Fault> {
        let (travel, patience) = (self.travel, self.patience);
        let resets_path = self.resets_path && self.texts.is_empty();
        let sql = self.texts.of(sql);
        self.run(async |conn| travel.fetch(conn, sql, args, patience, resets_path).await).await
    }

    /// The same for a statement that tells, by a null as the second column, that the server takes no
    /// writes: what is read there may be old.
    pub(super) async fn fetch_from_primary(
        &mut self,
        sql: &'static str,
        args: &[Arg<'_>],
    ) -> Result<Vec<PgRow>, Fault> {
        let (travel, patience) = (self.travel, self.patience);
        let sql = self.texts.of(sql);
        self.run(async |conn| from_primary(travel.fetch(conn, sql, args, patience, false).await?))
            .await
    }

    /// Runs several statements in one transaction.
    pub(super) async fn run_script(&mut self, sql: &'static str) -> Result<(), Fault> {
        let role = if self.travel == Travel::Text { RESET_ROLE } else { "" };
        let path = if self.resets_path { RESET_PATH } else { "" };
        let sql = AssertSqlSafe(format!("{role}{path}{sql}"));
        self.run(async |conn| sqlx::raw_sql(sql).execute(conn).await.map(drop)).await
    }

    async fn run<T>(
        &mut self,
        work: impl AsyncFnOnce(&mut PgConnection) -> Result<T, sqlx::Error>,
    ) -> Result<T, Fault> {
        let mut conn = self.take().await?;
        let sent = Clock::Boot.now();
        let result = match timeout(self.limit, work(conn.raw())).await {
            Ok(result) => result,
            Err(_) => {
                // Whoever reads from it next would get the answer to this.
                conn.discard();
                self.left.get_or_insert(sent);
                return Err(self.backoff.failed(late()));
            }
        };
        match result {
            Err(error) if breaks(&error) => {
                conn.discard();
                Err(self.backoff.failed(classify(error)))
            }
            result => {
                self.backoff.worked();
                self.give_back(conn);
                result.map_err(classify)
            }
        }
    }

    /// A connection to run a statement on.
    async fn take(&mut self) -> Result<Conn, Fault> {
        if self.idle.is_none() || self.left.is_some() {
            self.backoff.pause().await?;
        }
        let mut conn = self.connection().await.map_err(|fault| self.backoff.failed(fault))?;
        let Some(left) = self.left else { return Ok(conn) };
        // Each that is given up while its commit waits for a standby stays on the server as long as
        // the standby is away. So there is one at the most, and this connection to see when it ends.
        match self.waits_for_a_standby(&mut conn, left).await {
            Ok(false) => {
                self.left = None;
                Ok(conn)
            }
            Ok(true) => {
                self.give_back(conn);
                Err(self.backoff.failed(waits_for_a_standby()))
            }
            Err(fault) => {
                conn.discard();
                Err(self.backoff.failed(fault))
            }
        }
    }

    /// Whether a statement of this user that was sent then, or before, waits in its commit.
    async fn waits_for_a_standby(&mut self, conn: &mut Conn, sent: Instant) -> Result<bool, Fault> {
        let age = Clock::Boot.now().since(sent).as_micros();
        // It may have been a little longer on its way than this one.
        let args = [Arg::Number(i64::try_from(age).unwrap_or(i64::MAX) / 10 * 9)];
        let sql = self.texts.of(queries::STANDBY);
        let asked = self.travel.fetch(conn.raw(), sql, &args, self.patience, false);
        let found = timeout(self.limit, asked).await.map_err(|_| late())?.map_err(classify)?;
        found.first().map_or(Ok(false), |row| row.try_get(0).map_err(classify))
    }

    async fn connection(&mut self) -> Result<Conn, Fault> {
        if let Some(conn) = self.idle.take() {
            return Ok(Conn::Own(conn));
        }
        let nothing_sent = |fault: Fault| fault.before_anything_was_sent();
        if let Source::Pool(pool) = &self.source {
            let conn = clean(pool, self.limit, &self.sessions).await;
            return conn.map(Conn::Pooled).map_err(nothing_sent);
        }
        let connecting = async {
            let mut conn = match &self.source {
                Source::Own(options) => options.connect().await?,
                Source::Beside(config) => config.session().connect().await?,
                Source::Pool(_) => return Err(sqlx::Error::PoolTimedOut),
            };
            // The address may lead elsewhere by now.
            if self.is_opened {
                let row = sqlx::raw_sql(queries::TAKES_WRITES).fetch_one(&mut conn).await?;
                if !row.try_get::<bool, _>(0)? {
                    return Err(NO_WRITES);
                }
            }
            Ok(conn)
        };
        match timeout(self.limit, connecting).await {
            Ok(connected) => connected.map(Conn::Own).map_err(classify).map_err(nothing_sent),
            Err(_) => Err(nothing_sent(silent_at_first())),
        }
    }

    fn give_back(&mut self, conn: Conn) {
        match conn {
            Conn::Own(conn) => self.idle = Some(conn),
            Conn::Pooled(conn) => drop(conn),
        }
    }

    /// Whether there is a connection. The next statement makes another one.
    pub(super) const fn is_open(&self) -> bool {
        self.idle.is_some()
    }

    /// Drops the connection without a word to the server.
    pub(super) fn drop_connection(&mut self) {
        self.idle = None;
    }

    /// Closes the connection in an orderly way, unless that takes too long.
    pub(super) async fn close(self) {
        let Some(conn) = self.idle else { return };
        match timeout(self.patience, conn.close()).await {
            Ok(Ok(())) => {}
            Ok(Err(error)) => {
                tracing::debug!(target: "dlock", %error, "a connection did not close")
            }
            Err(_) => tracing::debug!(target: "dlock", "a connection did not close in time"),
        }
    }
}

/// Takes a connection out of the application's pool that is in no transaction, and set as it was when
/// the store was opened. One that somebody has left otherwise is closed, and the next one taken.
///
/// A `begin()` that was dropped half-way leaves one open that the driver does not know of
/// (<https://github.com/launchbadge/sqlx/issues/2054>). What is written in there is seen by nobody,
/// and undone when somebody notices.
async fn clean(
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
                    "a connection of the pool was left with other settings: it is closed"
                );
            }
            Ok((false, _)) => {
                tracing::warn!(target: "dlock", "a connection of the pool was left in a transaction: it is closed");
                drop(conn.detach());
            }
            Err(fault) => {
                drop(conn.detach());
                return Err(fault);
            }
        }
    }
}

impl Conn {
    fn raw(&mut self) -> &mut PgConnection {
        match self {
            Self::Own(conn) => conn,
            Self::Pooled(conn) => conn,
        }
    }

    /// Closes it, without a word to the server.
    fn discard(self) {
        match self {
            Self::Own(conn) => drop(conn),
            Self::Pooled(conn) => drop(conn.detach()),
        }
    }
}

fn changed(found: &str, expected: &str) -> Error {
    Error::config(
        ConfigIssue::Access,
        format!(
            "the pool's connections have another role, synchronous_commit or client_encoding \
             ({found:.80}) than at first ({expected:.80}): have all of them set alike, or give \
             dlock connections of its own"
        ),
    )
}

fn waits_for_a_standby() -> Fault {
    let fault = silent(
        "a commit on the server waits for a synchronous standby: see that it runs, or change \
         synchronous_standby_names",
    );
    Fault { error: fault.error.with_certainty(Certainty::NotApplied), ..fault }
}

/// It may be that somebody keeps a row locked, where the server does not tell.
fn late() -> Fault {
    let fault = silent(
        "no answer from the server in time: see whether it is overloaded or cut off, or raise \
         dlock.response_timeout",
    );
    Fault { cure: Cure::Apart, ..fault }
}

/// Of what was connected to.
fn silent_at_first() -> Fault {
    silent(
        "no answer from the server in time: see that PostgreSQL is at this address, and whether it \
         is overloaded or cut off, or raise dlock.response_timeout",
    )
}

fn silent(text: &'static str) -> Fault {
    let error = Error::new(ErrorKind::Unavailable, text).with_certainty(Certainty::Unknown);
    Fault { error, cure: Cure::Retry }
}

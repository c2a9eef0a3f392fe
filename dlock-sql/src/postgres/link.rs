//! The connections to the server: dlock's own, which are opened when they are needed, or one of an
//! application's pool for each statement. If the application closes its pool, dlock continues on
//! connections of its own, so that its locks can still be released.
//!
//! A connection is used again only after an answer was read to its end. After a timeout the answer
//! may still arrive, and would be taken for the answer to the next statement. So that connection is
//! dropped. Its statement may still run, up to the server's `statement_timeout` and, in its commit,
//! for longer.

use std::{sync::Arc, time::Duration};

use dlock_core::{Clock, Instant};
use sqlx::{
    AssertSqlSafe, ConnectOptions as _, Connection as _, PgConnection, Postgres, Row as _,
    SqlSafeStr as _, SqlStr,
    postgres::{PgConnectOptions, PgRow},
};
use tokio::time::timeout;

use super::{
    error::{breaks, classify, is_limit, is_unprepared},
    literal::Arg,
    queries,
    source::{Source, clean, greet, prepares_again},
    statement::{LOCAL_PATH, OWN_PATH, RESET_PATH, RESET_ROLE, Transport},
};
use crate::{
    engine::{DurabilityMonitor, Fault, ReconnectPauses},
    server::{Borrowed, Idle, Texts, from_primary, late, silent_at_first},
};

/// Runs statements, each to its end or to its timeout.
pub(super) struct Link {
    source: Source,
    transport: Transport,
    response_timeout: Duration,
    /// The longest time for a connect or an answer.
    limit: Duration,
    idle: Idle<PgConnection>,
    pauses: ReconnectPauses,
    /// The pauses between attempts to open a connection, if the application's pool or another task
    /// serves meanwhile.
    spared: Option<ReconnectPauses>,
    /// The time since which a statement whose connection was dropped may still run on the server.
    left: Option<Instant>,
    texts: Texts,
    is_opened: bool,
    /// The allowed settings of the sessions of an application's pool, once they are known.
    sessions: Arc<[String]>,
    /// Whether commits survive a crash, according to new connections.
    durability: DurabilityMonitor,
    /// Whether other programs leave settings on its connections, such as the search path.
    is_shared: bool,
    /// Whether tables are looked up with the search path of a new session.
    resets_path: bool,
}

/// A schema in which dlock looks for its tables.
#[derive(Clone, Copy, Debug)]
pub(super) struct SearchSchema {
    resets_path: bool,
    pub(super) create: bool,
}

/// A statement or script to run.
struct Work<'a> {
    sql: SqlStr,
    args: &'a [Arg<'a>],
    way: WorkKind,
}

enum WorkKind {
    Statement,
    /// A statement whose answer shows whether the server accepts writes.
    FromPrimary,
    /// Several statements without arguments.
    Script,
}

impl Work<'_> {
    async fn run(
        &self,
        transport: Transport,
        response_timeout: Duration,
        path: &str,
        conn: &mut PgConnection,
    ) -> Result<Vec<PgRow>, sqlx::Error> {
        let (sql, args) = (self.sql.clone(), self.args);
        match self.way {
            WorkKind::Statement => transport.fetch(conn, sql, args, response_timeout, path).await,
            WorkKind::FromPrimary => {
                from_primary(transport.fetch(conn, sql, args, response_timeout, path).await?)
            }
            WorkKind::Script => sqlx::raw_sql(sql).fetch_all(conn).await,
        }
    }
}

impl Link {
    /// Creates a link that connects at its first use. A connect or an answer may take half of
    /// `response_timeout`, so that there is time for a retry.
    pub(super) fn new(source: Source, transport: Transport, response_timeout: Duration) -> Self {
        // The pooler itself sets a search path in the URL, and it stays.
        let is_shared = transport == Transport::Text && !source.names_path();
        Self {
            source,
            transport,
            response_timeout,
            limit: response_timeout / 2,
            idle: Idle::new(),
            pauses: ReconnectPauses::new(),
            spared: None,
            left: None,
            texts: Texts::default(),
            is_opened: false,
            sessions: Arc::default(),
            durability: DurabilityMonitor::new(false),
            is_shared,
            resets_path: is_shared,
        }
    }

    /// Makes it share its idle connections with this link, which has the same settings.
    pub(super) fn beside(mut self, other: &Self) -> Self {
        self.idle = other.idle.clone();
        self
    }

    /// While no dedicated connection can be opened, makes it use the application's pool, or without a
    /// pool wait for a connection of another task.
    pub(super) fn or_other(mut self) -> Self {
        self.spared = Some(ReconnectPauses::new());
        self
    }

    /// Bounds the time of a connect and of an answer from now on.
    pub(super) fn bound(&mut self, limit: Duration) {
        self.limit = limit.min(self.response_timeout / 2);
    }

    /// Returns the places to look for tables, in this order, and whether to create them there. The
    /// first is the search path of a new session, the second that of this session, since a pooler
    /// may set the path of all (`connect_query`).
    pub(super) fn places(&self, create: bool) -> Vec<SearchSchema> {
        let place = |resets_path, create| SearchSchema { resets_path, create };
        match (self.is_shared, create) {
            (false, _) => vec![place(false, create)],
            (true, false) => vec![place(true, false), place(false, false)],
            (true, true) => vec![place(true, false), place(false, false), place(true, true)],
        }
    }

    /// Makes it look for tables in this place.
    pub(super) const fn look_in(&mut self, place: SearchSchema) {
        self.resets_path = place.resets_path;
    }

    /// Makes it use these statements, which name the tables with their schema, so that the settings
    /// of a session do not matter.
    pub(super) fn name_tables(&mut self, texts: Texts) {
        self.texts = texts;
        self.is_opened = true;
    }

    /// Makes it use connections of the application's pool only with one of these settings.
    pub(super) fn expect(&mut self, sessions: Arc<[String]>) {
        self.sessions = sessions;
    }

    /// Makes it record in `durability` whether commits on new connections survive a crash.
    pub(super) fn watch(&mut self, durability: DurabilityMonitor) {
        self.durability = durability;
    }

    /// Returns whether commits survive a crash of the server, by this statement.
    pub(super) async fn is_durable(&mut self, sql: &'static str) -> Result<bool, Fault> {
        let rows = self.fetch(sql, &[]).await?;
        rows.first().map_or(Ok(false), |row| row.try_get(0).map_err(classify))
    }

    /// Runs a statement, which commits on its own.
    pub(super) async fn fetch(
        &mut self,
        sql: &'static str,
        args: &[Arg<'_>],
    ) -> Result<Vec<PgRow>, Fault> {
        let sql = self.texts.of(sql);
        self.run(Work { sql, args, way: WorkKind::Statement }).await
    }

    /// Runs a statement with the schemas of these tables.
    pub(super) async fn fetch_in(
        &mut self,
        texts: &mut Texts,
        sql: &'static str,
    ) -> Result<Vec<PgRow>, Fault> {
        self.run(Work { sql: texts.of(sql), args: &[], way: WorkKind::Statement }).await
    }

    /// Makes the session of dlock's own, if it has one, look up names in the catalog only. Its
    /// statements name the schema of everything else.
    pub(super) async fn leave_path(&mut self) -> Result<(), Fault> {
        if self.idle.is_empty() || self.transport == Transport::Text {
            return Ok(());
        }
        self.fetch(OWN_PATH, &[]).await.map(drop)
    }

    /// Returns the settings before a statement on a shared connection that decide where its names
    /// are looked up.
    fn path(&self) -> &'static str {
        match (self.texts.is_empty(), self.resets_path) {
            (false, _) => LOCAL_PATH,
            (true, true) => RESET_PATH,
            (true, false) => "",
        }
    }

    /// Runs a statement whose second column is null if the server accepts no writes. Then the rows
    /// may be out of date, and the read fails.
    pub(super) async fn fetch_from_primary(
        &mut self,
        sql: &'static str,
        args: &[Arg<'_>],
    ) -> Result<Vec<PgRow>, Fault> {
        let sql = self.texts.of(sql);
        self.run(Work { sql, args, way: WorkKind::FromPrimary }).await
    }

    /// Creates tables in the first schema of the search path, in one transaction.
    pub(super) async fn create(&mut self, sql: &'static str, tables: &[&str]) -> Result<(), Fault> {
        let rows = self.fetch(queries::CREATES_IN, &[]).await?;
        let found = rows.first().map(|row| row.try_get::<Option<String>, _>(0));
        let schema = found.transpose().map_err(classify)?.flatten();
        let homes = tables.iter().filter_map(|table| Some((*table, schema.as_deref()?)));
        let sql = Texts::new(homes).of(sql);
        let role = if self.transport == Transport::Text { RESET_ROLE } else { "" };
        // Without a schema the server refuses the script.
        let path = if schema.is_some() { LOCAL_PATH } else { self.path() };
        let sql = AssertSqlSafe(format!("{role}{path}{}", sql.as_str())).into_sql_str();
        self.run(Work { sql, args: &[], way: WorkKind::Script }).await.map(drop)
    }

    async fn run(&mut self, work: Work<'_>) -> Result<Vec<PgRow>, Fault> {
        let mut conn = self.take().await?;
        let (transport, response_timeout, sent) =
            (self.transport, self.response_timeout, Clock::Boot.now());
        let path = self.path();
        let mut result =
            timeout(self.limit, work.run(transport, response_timeout, path, conn.raw())).await;
        // The server did not know the prepared statement, so nothing was executed.
        if matches!(&result, Ok(Err(error)) if is_unprepared(error))
            && prepares_again(&mut conn, self.limit).await
        {
            result =
                timeout(self.limit, work.run(transport, response_timeout, path, conn.raw())).await;
        }
        let Ok(result) = result else {
            // The next statement on it would get the answer to this one.
            self.discard(conn);
            self.left.get_or_insert(sent);
            return Err(self.pauses.failed(late()));
        };
        match result {
            Err(error) if breaks(&error) => {
                self.discard(conn);
                Err(self.pauses.failed(classify(error)))
            }
            // The application may have left the limit on this session only.
            Err(error) if is_limit(&error) && matches!(conn, Borrowed::Pooled(_)) => {
                conn.discard();
                Err(self.pauses.failed(classify(error)))
            }
            result => {
                self.pauses.worked();
                self.put_back(conn);
                result.map_err(classify)
            }
        }
    }

    /// Returns a connection to run a statement on.
    async fn take(&mut self) -> Result<Borrowed<Postgres>, Fault> {
        if self.idle.is_empty() || self.left.is_some() {
            self.pauses.pause().await?;
        }
        let mut conn = self.connection().await.map_err(|fault| self.pauses.failed(fault))?;
        // The usual path: no statement was abandoned.
        let Some(left) = self.left else { return Ok(conn) };
        // A statement whose commit waits for a standby stays on the server until the standby is
        // back, even after its connection was dropped. If each retry left one, such statements
        // would fill the server. So there is at most one, and this connection checks whether it has
        // ended.
        match self.waits_for_a_standby(&mut conn, left).await {
            Ok(false) => {
                self.left = None;
                Ok(conn)
            }
            Ok(true) => {
                self.put_back(conn);
                Err(self.pauses.failed(waits_for_a_standby()))
            }
            Err(fault) => {
                self.discard(conn);
                Err(self.pauses.failed(fault))
            }
        }
    }

    /// Returns whether a statement of this user that was sent at `sent` or earlier waits in its
    /// commit.
    async fn waits_for_a_standby(
        &mut self,
        conn: &mut Borrowed<Postgres>,
        sent: Instant,
    ) -> Result<bool, Fault> {
        let age = Clock::Boot.now().since(sent).as_micros();
        // A tenth less, since the old statement may have needed a little longer to arrive than this
        // one.
        let args = [Arg::Number(i64::try_from(age).unwrap_or(i64::MAX) / 10 * 9)];
        let sql = self.texts.of(queries::STANDBY);
        let asked =
            self.transport.fetch(conn.raw(), sql, &args, self.response_timeout, self.path());
        let found = timeout(self.limit, asked).await.map_err(|_| late())?.map_err(classify)?;
        found.first().map_or(Ok(false), |row| row.try_get(0).map_err(classify))
    }

    async fn connection(&mut self) -> Result<Borrowed<Postgres>, Fault> {
        let nothing_sent = |fault: Fault| fault.before_anything_was_sent();
        if let Source::Pool(pool, _) = &self.source
            && !pool.is_closed()
        {
            match clean(pool, self.limit, &self.sessions).await {
                // The locks outlive the pool, so that they can be released.
                Err(_) if pool.is_closed() => {}
                conn => return conn.map(Borrowed::Pooled).map_err(nothing_sent),
            }
        }
        if let Some(conn) = self.idle.take() {
            return Ok(Borrowed::Own(conn));
        }
        let (Source::Own(config) | Source::Pool(_, config)) = &self.source;
        let (is_opened, durability) = (self.is_opened, &self.durability);
        let pool = config.driver.pool.as_ref().filter(|pool| !pool.is_closed());
        // With a pool, half of the time, so that there is time for the pool if the server does not
        // answer.
        let has_spare = self.spared.is_some() && pool.is_some();
        let limit = if has_spare { self.limit / 2 } else { self.limit };
        let own = async {
            let connecting = config.connect(limit, |options: PgConnectOptions| async move {
                let mut conn = options.connect().await.map_err(classify)?;
                greet(&mut conn, config, is_opened, durability).await?;
                Ok(conn)
            });
            let connected = timeout(limit, connecting).await;
            let connected = connected.unwrap_or_else(|_| Err(silent_at_first("PostgreSQL is")));
            connected.map(Borrowed::Own).map_err(nothing_sent)
        };
        let Some(spared) = &mut self.spared else { return own.await };
        let other = async {
            let taken = match pool {
                Some(pool) => clean(pool, self.limit, &self.sessions).await.map(Borrowed::Pooled),
                None => self.idle.next(self.limit / 2).await.map(Borrowed::Own),
            };
            taken.map_err(nothing_sent)
        };
        Box::pin(spared.own_or_other(own, other)).await
    }

    fn put_back(&mut self, conn: Borrowed<Postgres>) {
        match conn {
            Borrowed::Own(conn) => self.idle.put(conn),
            Borrowed::Pooled(conn) => drop(conn),
        }
    }

    /// Drops a connection that has broken.
    fn discard(&self, conn: Borrowed<Postgres>) {
        conn.discard();
        self.idle.clear();
    }

    /// Returns whether the statements run on sessions of the application.
    pub(super) const fn is_pooled(&self) -> bool {
        matches!(self.source, Source::Pool(..))
    }

    /// Returns whether there is a connection. If not, the next statement opens one.
    pub(super) fn is_open(&self) -> bool {
        !self.idle.is_empty()
    }

    /// Drops the connection without a message to the server.
    pub(super) fn drop_connection(&mut self) {
        self.idle.clear();
    }

    /// Closes the connections in an orderly way, unless that takes too long. Only the last of the
    /// links that share them does so.
    pub(super) async fn close(self) {
        for conn in self.idle.into_last() {
            match timeout(self.response_timeout, conn.close()).await {
                Ok(Ok(())) => {}
                Ok(Err(error)) => {
                    tracing::debug!(target: "dlock", %error, "closing a connection failed")
                }
                Err(_) => tracing::debug!(target: "dlock", "closing a connection timed out"),
            }
        }
    }
}

fn waits_for_a_standby() -> Fault {
    Fault::passing(
        "a commit on the server waits for a synchronous standby: check that it runs, or change \
         synchronous_standby_names",
    )
}

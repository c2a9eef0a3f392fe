//! A connection to the server.
//!
//! It is used again only after an answer was read to its end. After a timeout the answer may still
//! arrive, and would be taken for the answer to the next statement. So that connection is dropped.
//! The statement may have been applied, so its error has an unknown certainty.

use sqlx::{Connection as _, MySql, MySqlConnection, SqlStr, mysql::MySqlRow};
use tokio::time::{error::Elapsed, timeout};

use super::{
    connector::{Connector, Source},
    error::{classify, is_duplicate, is_harmless},
    queries,
    statement::{Statement, text},
};
use crate::{
    engine::{Fault, ReconnectPauses},
    server::{Borrowed, Idle, Texts, from_primary, late},
};

const TABLES: [&str; 3] = ["dlock_lock", "dlock_schema", "dlock_plain"];

/// A connection that is opened when it is needed, and again after it has broken. Between statements
/// it is shared with the other tasks of the engine. With an application's pool, each statement uses
/// another one. If the application closes its pool, dlock continues on connections of its own.
pub(super) struct MysqlConn {
    pub(super) way: Connector,
    /// The connection for the next statement, if it has been taken already.
    conn: Option<Borrowed<MySql>>,
    /// With the largest statement on each.
    idle: Idle<(MySqlConnection, usize)>,
    /// The largest statement, in bytes, on this connection or on the last one.
    pub(super) packet: usize,
    pauses: ReconnectPauses,
    /// The pauses between attempts to open a connection, if the application's pool or another task
    /// serves meanwhile.
    spared: Option<ReconnectPauses>,
    texts: Texts,
}

impl MysqlConn {
    pub(super) fn new(way: Connector) -> Self {
        let (idle, pauses, texts) = (Idle::new(), ReconnectPauses::new(), Texts::default());
        Self { way, conn: None, idle, packet: usize::MAX, pauses, spared: None, texts }
    }

    /// Sets whether the server has `RETURNING`.
    pub(super) fn returning(mut self, returning: bool) -> Self {
        self.way.returning = returning;
        self
    }

    /// Returns the current database of the connection, and its role.
    pub(super) async fn which(&mut self) -> Result<(String, String), Fault> {
        let rows = self.fetch(Statement::new(SqlStr::from_static(queries::WHICH))).await?;
        let found = rows.first().map(|row| Ok((text(row, 0)?, text(row, 1)?)));
        found.unwrap_or_else(|| Ok((String::new(), String::new())))
    }

    /// Makes it use dlock's tables in this database, regardless of the current database of a
    /// connection, and pooled connections only with one of these roles, and on a node of a Galera
    /// cluster only if the other nodes get what they write.
    pub(super) fn within(mut self, database: &str, roles: &[String], galera: bool) -> Self {
        let quoted = format!("`{}`", database.replace('`', "``"));
        let roles: Vec<_> = roles.iter().map(|role| format!("X'{}'", digits(role))).collect();
        self.way.watch(&format!("{quoted}.dlock_lock"), &roles.join(", "), galera);
        self.texts = Texts::new(TABLES.map(|table| (table, &*quoted)))
            .with("DATABASE()", format!("_utf8mb4 X'{}'", digits(database)));
        self
    }

    /// Returns a statement, with the database in the names of dlock's tables.
    pub(super) fn query<'q>(&mut self, sql: &'static str) -> Statement<'q> {
        Statement::new(self.texts.of(sql))
    }

    /// Runs a statement that has no arguments.
    pub(super) async fn rows(&mut self, sql: &'static str) -> Result<Vec<MySqlRow>, Fault> {
        let query = self.query(sql);
        self.fetch(query).await
    }

    /// Returns a connection like this one, for another task. Both share what is idle.
    pub(super) fn another(&self) -> Self {
        let (way, packet, idle) = (self.way.clone(), self.packet, self.idle.clone());
        Self { texts: self.texts.clone(), packet, idle, ..Self::new(way) }
    }

    /// Returns a connection like this one, with another source of connections.
    pub(super) fn another_from(&self, source: Source) -> Self {
        let mut another = self.another();
        another.way.source = source;
        another
    }

    /// While no dedicated connection can be opened, makes it use the application's pool, or without a
    /// pool wait for a connection of another task.
    pub(super) fn or_other(mut self) -> Self {
        self.spared = Some(ReconnectPauses::new());
        self
    }

    /// Runs a statement to its end, since only the end shows whether the commit succeeded. After a
    /// timeout or an unusual error the connection is not used again, since the driver may have lost
    /// its place in the stream.
    pub(super) async fn fetch(&mut self, statement: Statement<'_>) -> Result<Vec<MySqlRow>, Fault> {
        self.fetch_as(statement, Ok).await
    }

    /// Runs a statement whose second column is null if the server accepts no writes. Then the rows
    /// may be out of date, and the read fails.
    pub(super) async fn fetch_from_primary(
        &mut self,
        statement: Statement<'_>,
    ) -> Result<Vec<MySqlRow>, Fault> {
        self.fetch_as(statement, from_primary).await
    }

    async fn fetch_as(
        &mut self,
        statement: Statement<'_>,
        seen: fn(Vec<MySqlRow>) -> Result<Vec<MySqlRow>, sqlx::Error>,
    ) -> Result<Vec<MySqlRow>, Fault> {
        let mut conn = self.take().await?;
        let result = timeout(self.way.limit, statement.fetch(conn.raw())).await;
        self.end(conn, result.map(|rows| rows.and_then(seen)))
    }

    /// Runs a statement that returns no rows, and returns how many rows matched. An insert of an
    /// existing row returns 0.
    pub(super) async fn change(&mut self, statement: Statement<'_>) -> Result<u64, Fault> {
        let mut conn = self.take().await?;
        let result = timeout(self.way.limit, statement.execute(conn.raw())).await;
        // A duplicate key is an answer: the connection is fine, and another client has the row.
        if let Ok(Err(error)) = &result
            && is_duplicate(error)
        {
            self.put_back(conn);
            return Ok(0);
        }
        self.end(conn, result).map(|done| done.rows_affected())
    }

    /// Runs several statements without arguments, on a dedicated connection. The application's
    /// sessions may be read-only by default, and then could create no tables.
    pub(super) async fn script(&mut self, sql: &'static str) -> Result<(), Fault> {
        let mut own = self.another_from(self.way.source.own());
        let mut conn = own.take().await?;
        let result = timeout(own.way.limit, sqlx::raw_sql(sql).execute(conn.raw())).await;
        own.end(conn, result).map(drop)
    }

    async fn take(&mut self) -> Result<Borrowed<MySql>, Fault> {
        if let Some(conn) = self.conn.take() {
            return Ok(conn);
        }
        if self.way.is_dedicated()
            && let Some((conn, packet)) = self.idle.take()
        {
            self.packet = packet;
            return Ok(Borrowed::Own(conn));
        }
        // The pause comes before the connect, so that a failing server gets few new connections.
        self.pauses.pause().await?;
        // On the heap: a connect would enlarge the futures of all statements.
        let connected = match &mut self.spared {
            Some(spared) => Box::pin(self.way.connect_or_spare(spared, &self.idle)).await,
            None => Box::pin(self.way.connect()).await,
        };
        let (conn, packet) = connected.map_err(|fault| self.pauses.failed(fault))?;
        self.packet = packet;
        Ok(conn)
    }

    /// Makes a connection ready for the next statement, and returns the largest size of that, which
    /// is a setting of the connection.
    pub(super) async fn ready(&mut self) -> Result<usize, Fault> {
        let conn = self.take().await?;
        self.conn = Some(conn);
        Ok(self.packet)
    }

    /// Ends a statement, with or without an answer.
    fn end<T>(
        &mut self,
        conn: Borrowed<MySql>,
        result: Result<Result<T, sqlx::Error>, Elapsed>,
    ) -> Result<T, Fault> {
        let Ok(result) = result else {
            // The next statement on it would get the answer to this one.
            self.discard(conn);
            return Err(self.pauses.failed(late()));
        };
        match result {
            Err(error) if !is_harmless(&error) => {
                self.discard(conn);
                Err(self.pauses.failed(classify(error)))
            }
            result => {
                self.pauses.worked();
                self.put_back(conn);
                result.map_err(classify)
            }
        }
    }

    fn put_back(&mut self, conn: Borrowed<MySql>) {
        match conn {
            // A pooled connection returns to the pool after each statement, so that it is checked
            // before the next.
            Borrowed::Own(conn) => self.idle.put((conn, self.packet)),
            Borrowed::Pooled(conn) => drop(conn),
        }
    }

    /// Drops a connection that has broken.
    fn discard(&self, conn: Borrowed<MySql>) {
        conn.discard();
        self.idle.clear();
    }

    /// Closes the connections, unless that takes too long. Only the last of the tasks that share
    /// them does so.
    pub(super) async fn close(mut self) {
        if let Some(conn) = self.conn.take() {
            self.put_back(conn);
        }
        for (conn, _) in self.idle.into_last() {
            if let Ok(Err(error)) = timeout(self.way.timeout, conn.close()).await {
                tracing::debug!(target: "dlock", %error, "closing a connection failed");
            }
        }
    }
}

/// Returns the bytes of a text in hexadecimal digits.
fn digits(text: &str) -> String {
    text.bytes().fold(String::new(), |digits, byte| format!("{digits}{byte:02x}"))
}

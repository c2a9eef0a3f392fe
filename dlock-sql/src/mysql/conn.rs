//! A connection to the server.

use sqlx::{
    Connection as _, MySql,
    mysql::{MySqlArguments, MySqlRow},
    query::Query,
};
use tokio::time::{error::Elapsed, timeout};

use super::{
    answer::text,
    connector::{Connector, Source},
    error::{classify, is_duplicate, is_harmless},
    queries,
};
use crate::{
    engine::{Backoff, Fault},
    server::{Taken, Texts, from_primary, late},
};

const TABLES: [&str; 3] = ["dlock_lock", "dlock_schema", "dlock_plain"];

/// A connection that is made when it is needed, and made again when it has broken; or the way to an
/// application's pool, where each statement has another one.
pub(super) struct MysqlConn {
    pub(super) way: Connector,
    conn: Option<Taken<MySql>>,
    /// How many bytes a statement may have on it, or might have on the last one.
    pub(super) packet: usize,
    backoff: Backoff,
    texts: Texts,
}

impl MysqlConn {
    pub(super) fn new(way: Connector) -> Self {
        let (backoff, texts) = (Backoff::new(), Texts::default());
        Self { way, conn: None, packet: usize::MAX, backoff, texts }
    }

    /// Sets whether the server can return what it writes.
    pub(super) fn returning(mut self, returning: bool) -> Self {
        self.way.returning = returning;
        self
    }

    /// The database in which the connection is.
    pub(super) async fn database(&mut self) -> Result<String, Fault> {
        let rows = self.fetch(sqlx::query(queries::WHICH)).await?;
        rows.first().map_or(Ok(String::new()), |row| text(row, 0))
    }

    /// Has it find dlock's tables in this database, wherever a connection is.
    pub(super) fn within(mut self, database: &str) -> Self {
        let quoted = format!("`{}`", database.replace('`', "``"));
        let digits =
            database.bytes().fold(String::new(), |digits, byte| format!("{digits}{byte:02x}"));
        self.texts = Texts::new(TABLES.map(|table| (table, &*quoted)))
            .with("DATABASE()", format!("_utf8mb4 X'{digits}'"));
        self
    }

    /// A statement, with dlock's tables where they are.
    pub(super) fn query<'q>(&mut self, sql: &'static str) -> Query<'q, MySql, MySqlArguments> {
        sqlx::query(self.texts.of(sql))
    }

    /// Runs a statement that has no arguments.
    pub(super) async fn rows(&mut self, sql: &'static str) -> Result<Vec<MySqlRow>, Fault> {
        let query = self.query(sql);
        self.fetch(query).await
    }

    /// A connection like this one.
    pub(super) fn another(&self) -> Self {
        let (way, packet) = (self.way.clone(), self.packet);
        Self { texts: self.texts.clone(), packet, ..Self::new(way) }
    }

    /// The same, with connections from elsewhere.
    pub(super) fn another_from(&self, source: Source) -> Self {
        let mut another = self.another();
        another.way.source = source;
        another
    }

    /// Runs a statement to its end: a commit that fails is only seen there. A connection whose
    /// statement has not ended, or on which anything unusual has happened, is not used again,
    /// since the driver may have lost its place in the stream.
    pub(super) async fn fetch(
        &mut self,
        query: Query<'_, MySql, MySqlArguments>,
    ) -> Result<Vec<MySqlRow>, Fault> {
        self.fetch_as(query, Ok).await
    }

    /// The same for a statement that tells, by a null as the second column, that the server takes no
    /// writes: what is read there may be old.
    pub(super) async fn fetch_from_primary(
        &mut self,
        query: Query<'_, MySql, MySqlArguments>,
    ) -> Result<Vec<MySqlRow>, Fault> {
        self.fetch_as(query, from_primary).await
    }

    async fn fetch_as(
        &mut self,
        query: Query<'_, MySql, MySqlArguments>,
        seen: fn(Vec<MySqlRow>) -> Result<Vec<MySqlRow>, sqlx::Error>,
    ) -> Result<Vec<MySqlRow>, Fault> {
        let mut conn = self.take().await?;
        let result = timeout(self.way.limit, query.fetch_all(conn.raw())).await;
        self.end(conn, result.map(|rows| rows.and_then(seen)))
    }

    /// Runs a statement that returns no rows, and says how many rows it found to change. A row that
    /// is there already makes an insert change none.
    pub(super) async fn change(
        &mut self,
        query: Query<'_, MySql, MySqlArguments>,
    ) -> Result<u64, Fault> {
        let mut conn = self.take().await?;
        let result = timeout(self.way.limit, query.execute(conn.raw())).await;
        if let Ok(Err(error)) = &result
            && is_duplicate(error)
        {
            self.keep(conn);
            return Ok(0);
        }
        self.end(conn, result).map(|done| done.rows_affected())
    }

    /// Runs several statements without arguments, on a connection of our own: where sessions only
    /// read by default, an application's would make no tables.
    pub(super) async fn script(&mut self, sql: &'static str) -> Result<(), Fault> {
        let mut own = self.another_from(self.way.source.own());
        let mut conn = own.take().await?;
        let result = timeout(own.way.limit, sqlx::raw_sql(sql).execute(conn.raw())).await;
        own.end(conn, result)?;
        own.close().await;
        Ok(())
    }

    async fn take(&mut self) -> Result<Taken<MySql>, Fault> {
        if let Some(conn) = self.conn.take() {
            return Ok(conn);
        }
        self.backoff.pause().await?;
        let connected = self.way.connect().await.map_err(|fault| self.backoff.failed(fault));
        let (conn, packet) = connected?;
        self.packet = packet;
        Ok(conn)
    }

    /// Has a connection ready for the next statement: how many bytes that may have, which is a
    /// setting of the connection.
    pub(super) async fn ready(&mut self) -> Result<usize, Fault> {
        let conn = self.take().await?;
        self.conn = Some(conn);
        Ok(self.packet)
    }

    /// The end of a statement, which has answered or not.
    fn end<T>(
        &mut self,
        conn: Taken<MySql>,
        result: Result<Result<T, sqlx::Error>, Elapsed>,
    ) -> Result<T, Fault> {
        let Ok(result) = result else {
            // Whoever reads from it next would get the answer to this.
            conn.discard();
            return Err(self.backoff.failed(late()));
        };
        match result {
            Err(error) if !is_harmless(&error) => {
                conn.discard();
                Err(self.backoff.failed(classify(error)))
            }
            result => {
                self.backoff.worked();
                self.keep(conn);
                result.map_err(classify)
            }
        }
    }

    fn keep(&mut self, conn: Taken<MySql>) {
        match conn {
            Taken::Own(_) => self.conn = Some(conn),
            Taken::Pooled(conn) => drop(conn),
        }
    }

    /// Closes the connection, unless that takes too long.
    pub(super) async fn close(self) {
        if let Some(Taken::Own(conn)) = self.conn
            && let Ok(Err(error)) = timeout(self.way.timeout, conn.close()).await
        {
            tracing::debug!(target: "dlock", %error, "closing a connection failed");
        }
    }
}

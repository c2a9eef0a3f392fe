//! A connection to the server, and the engine's statements on it.

use std::time::Duration;

use dlock_core::{Error, Finding, LockName};
use sqlx::{
    Connection as _, MySql, SqlStr,
    mysql::{MySqlArguments, MySqlRow},
    query::Query,
};
use tokio::time::{error::Elapsed, timeout};

use super::{
    answer::{as_str, end_of, get, micros, row, text},
    durability::Settings,
    error::{classify, in_doubt, is_duplicate, is_harmless, late, overtaken},
    examine::{Tables, examine},
    json, queries,
    way::{Source, Taken, Way},
};
use crate::engine::{
    Backoff, Conn, Fault, Mark, Micros, Paged, Range, Row, Sighting, Wanted, Write, in_order,
};
use crate::server::{Texts, from_primary};

const TABLES: [&str; 3] = ["dlock_lock", "dlock_schema", "dlock_plain"];

/// A connection that is made when it is needed, and made again when it has broken; or the way to an
/// application's pool, where each statement has another one.
pub(super) struct MysqlConn {
    way: Way,
    conn: Option<Taken>,
    /// How many bytes a statement may have on it, or might have on the last one.
    packet: usize,
    backoff: Backoff,
    texts: Texts,
}

impl MysqlConn {
    pub(super) fn new(way: Way) -> Self {
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
    pub(super) fn sql(&mut self, sql: &'static str) -> SqlStr {
        self.texts.of(sql)
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
    async fn fetch_from_primary(
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
        let result = timeout(self.way.limit, query.fetch_all(&mut *conn)).await;
        self.end(conn, result.map(|rows| rows.and_then(seen)))
    }

    /// Runs a statement that returns no rows, and says how many rows it found to change. A row that
    /// is there already makes an insert change none.
    pub(super) async fn change(
        &mut self,
        query: Query<'_, MySql, MySqlArguments>,
    ) -> Result<u64, Fault> {
        let mut conn = self.take().await?;
        let result = timeout(self.way.limit, query.execute(&mut *conn)).await;
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
        let result = timeout(own.way.limit, sqlx::raw_sql(sql).execute(&mut *conn)).await;
        own.end(conn, result)?;
        own.close().await;
        Ok(())
    }

    async fn take(&mut self) -> Result<Taken, Fault> {
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
    async fn ready(&mut self) -> Result<usize, Fault> {
        let conn = self.take().await?;
        self.conn = Some(conn);
        Ok(self.packet)
    }

    /// The end of a statement, which has answered or not.
    fn end<T>(
        &mut self,
        conn: Taken,
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

    fn keep(&mut self, conn: Taken) {
        match conn {
            Taken::Own(_) => self.conn = Some(conn),
            Taken::Pooled(conn) => drop(conn),
        }
    }

    /// Writes, and gets the rows in return.
    async fn write_returning(
        &mut self,
        writes: &[Write],
    ) -> Result<Vec<Result<Row, Error>>, Fault> {
        let packet = self.ready().await?;
        let query = match writes {
            [write] => {
                let sql = self.sql(queries::APPLY_ONE_RETURNING);
                apply_one(sql, write, packet).bind(write.known_base())
            }
            _ => {
                json::check_size(writes, packet)?;
                let sql = self.sql(queries::APPLY_MANY_RETURNING);
                sqlx::query(sql).bind(json::writes(writes, packet))
            }
        };
        let found = self.fetch(query).await?;
        let named = |found| Ok((as_str(found, 0)?, row(found, 1)));
        let found = found.iter().map(named).collect::<Result<_, Fault>>()?;
        Ok(in_order(writes, found)?)
    }

    /// Writes, and then reads the rows, for servers that can't return what they write.
    ///
    /// Between the two statements others may have written. What they appended behind our operation
    /// is cut off again: that leaves the row as it was right behind the operation, by whatever
    /// snapshot, and so tells what it has done. When the operation is not to be found, because
    /// somebody has already folded it or removed the row, it has been applied all the same; what
    /// it has done is found out by sending it again, which every operation stands. (Of a release
    /// that is sent again nobody can tell whether the claim was lost before: it is then said to be
    /// done, as after a lost reply.)
    async fn write_and_read(&mut self, writes: &[Write]) -> Result<Vec<Result<Row, Error>>, Fault> {
        let packet = self.ready().await?;
        let query = match writes {
            [write] => apply_one(self.sql(queries::APPLY_ONE), write, packet),
            _ => {
                json::check_size(writes, packet)?;
                let sql = self.sql(queries::APPLY_MANY);
                sqlx::query(sql).bind(json::writes(writes, packet))
            }
        };
        self.fetch(query).await?;
        let wanted: Vec<_> = writes.iter().map(|write| (&write.name, write.known_base())).collect();
        let seen = self.sighting(&wanted).await.map_err(in_doubt)?;
        writes
            .iter()
            .zip(seen.rows)
            .map(|(write, row)| {
                let mut row = row.ok_or_else(overtaken)?;
                if let Ok(row) = &mut row {
                    let end = end_of(&row.log, &write.op).ok_or_else(overtaken)?;
                    row.log.truncate(end);
                }
                Ok(row)
            })
            .collect()
    }

    /// Reads the rows of these names, without the snapshots of these bases, with as many statements
    /// as it takes. The time is that of the first: none of the rows is older.
    async fn sighting(&mut self, wanted: &[(&LockName, i64)]) -> Result<Sighting, Fault> {
        let mut seen = Sighting { now: 0, rows: Vec::with_capacity(wanted.len()) };
        let most = if wanted.len() > 1 { json::most_names(self.ready().await?) } else { 1 };
        for part in wanted.chunks(most) {
            let part = self.sighting_of(part).await?;
            seen.now = if seen.rows.is_empty() { part.now } else { seen.now };
            seen.rows.extend(part.rows);
        }
        Ok(seen)
    }

    async fn sighting_of(&mut self, wanted: &[(&LockName, i64)]) -> Result<Sighting, Fault> {
        let query = match wanted {
            [(name, known)] => {
                sqlx::query(self.sql(queries::READ_ONE)).bind(*known).bind(name.as_str().as_bytes())
            }
            _ => sqlx::query(self.sql(queries::READ)).bind(json::wanted(wanted.iter().copied())),
        };
        let found = self.fetch_from_primary(query).await?;
        let mut seen = Sighting::of(wanted.len());
        for found in &found {
            seen.now = micros(found, 1)?;
            let place = usize::try_from(get::<i64>(found, 0)?).unwrap_or(0);
            let slot = place.checked_sub(1).and_then(|at| seen.rows.get_mut(at));
            if let Some(slot) = slot
                && get::<Option<i64>>(found, 2)?.is_some()
            {
                *slot = Some(row(found, 2));
            }
        }
        Ok(seen)
    }
}

impl Conn for MysqlConn {
    fn most_bytes(&self) -> usize {
        self.packet
    }

    fn bound(&mut self, limit: Duration) {
        self.way.bound(limit);
    }

    async fn unlocked(&mut self, names: &[&LockName]) -> Result<Vec<String>, Fault> {
        let mut unlocked = Vec::new();
        let most = if names.is_empty() { 1 } else { json::most_names(self.ready().await?) };
        for part in names.chunks(most) {
            let names = json::wanted(part.iter().map(|name| (*name, 0)));
            let sql = self.sql(queries::UNLOCKED);
            let found = self.fetch(sqlx::query(sql).bind(names)).await?;
            for row in &found {
                unlocked.push(text(row, 0)?);
            }
        }
        Ok(unlocked)
    }

    async fn apply(&mut self, writes: &[Write]) -> Result<Vec<Result<Row, Error>>, Fault> {
        match self.way.returning {
            true => self.write_returning(writes).await,
            false => self.write_and_read(writes).await,
        }
    }

    async fn read(&mut self, wanted: &[Wanted]) -> Result<Sighting, Fault> {
        let all: Vec<_> = wanted.iter().map(|wanted| (&wanted.name, wanted.known_base())).collect();
        self.sighting(&all).await
    }

    async fn version(&mut self) -> Result<Option<i64>, Fault> {
        Ok(None)
    }

    async fn page(&mut self, after: &str, old: Micros, most: u32) -> Result<Vec<Paged>, Fault> {
        let old = i64::try_from(old).unwrap_or(i64::MAX);
        let query = sqlx::query(self.sql(queries::PAGE))
            .bind(old)
            .bind(old)
            .bind(after.as_bytes())
            .bind(most);
        let found = self.fetch(query).await?;
        found
            .iter()
            .map(|found| {
                let is_old = get::<Option<Vec<u8>>>(found, 3)?.is_some();
                Ok(Paged {
                    name: text(found, 0)?,
                    now: micros(found, 1)?,
                    // One that can't be read is not to be deleted, and not to stop the others.
                    row: is_old.then(|| row(found, 2)).and_then(Result::ok),
                })
            })
            .collect()
    }

    async fn range(&mut self, range: &Range, most: u32) -> Result<Vec<Paged>, Fault> {
        let query = sqlx::query(self.sql(queries::RANGE))
            .bind(range.from.as_bytes())
            .bind(range.end.as_bytes())
            .bind(most);
        let found = self.fetch_from_primary(query).await?;
        let paged = |found| {
            Ok(Paged { name: text(found, 0)?, now: micros(found, 1)?, row: row(found, 2).ok() })
        };
        found.iter().map(paged).collect()
    }

    async fn delete(&mut self, rows: &[(String, Mark)]) -> Result<(), Fault> {
        let sql = self.sql(queries::DELETE);
        self.fetch(sqlx::query(sql).bind(json::marks(rows))).await?;
        Ok(())
    }

    async fn keeps(&mut self) -> Result<bool, Fault> {
        Ok(Settings::read(self).await?.keep())
    }

    async fn examine(&mut self) -> Result<Vec<Finding>, Fault> {
        examine(self, Tables::Locks).await
    }

    async fn close(self) {
        if let Some(Taken::Own(conn)) = self.conn
            && let Ok(Err(error)) = timeout(self.way.timeout, conn.close()).await
        {
            tracing::debug!(target: "dlock", %error, "a connection did not close");
        }
    }
}

fn apply_one<'q>(sql: SqlStr, write: &'q Write, packet: usize) -> Query<'q, MySql, MySqlArguments> {
    let (seen, cut, time, snap) = match write.room() <= packet.saturating_sub(json::AROUND) {
        true => write.fold_args(),
        false => Write::NO_FOLD,
    };
    sqlx::query(sql)
        .bind(write.name.as_str().as_bytes())
        .bind(seen)
        .bind(json::marked(cut))
        .bind(&*write.op)
        .bind(time)
        .bind(time)
        .bind(time)
        .bind(snap)
        .bind(time)
}

//! A connection to a SQLite file, and the engine's statements on it.
//!
//! Each statement is one transaction. If the process dies within one, SQLite rolls it back at the
//! next open. The driver runs the connection on a thread of this process, and the task that owns it
//! waits for each statement to its end. So a statement can't arrive late here, and needs no
//! deadline.

use std::{future::poll_fn, pin::pin, task::Poll, time::Duration};

use dlock_core::{Error, Finding};
use sqlx::{
    ConnectOptions as _, Connection as _, Row as _, Sqlite, SqliteConnection,
    query::Query,
    sqlite::{SqliteArguments, SqliteConnectOptions, SqliteRow},
};

use super::{
    error::classify, examine::examine, file::OpenFiles, json::Array, push::Notifier, queries,
};
use crate::engine::{
    Conn, Fault, Mark, Micros, Notification, Paged, Range, Row, RowsRead, Wanted, Write, in_order,
};

/// A statement of this many rows takes milliseconds, so a delay of up to one more does not matter.
const MANY: usize = 65;
const GULP: Duration = Duration::from_millis(1);

/// A connection that is reopened if its thread has died.
#[derive(Debug)]
pub(super) struct SqliteConn {
    options: SqliteConnectOptions,
    conn: Option<SqliteConnection>,
    notifier: Option<Notifier>,
    files: OpenFiles,
}

impl SqliteConn {
    pub(super) const fn new(
        options: SqliteConnectOptions,
        conn: SqliteConnection,
        files: OpenFiles,
    ) -> Self {
        Self { options, conn: Some(conn), notifier: None, files }
    }

    /// Makes this connection the one that sends notifications.
    pub(super) fn with_notifier(mut self, notifier: Option<Notifier>) -> Self {
        self.notifier = notifier;
        self
    }

    async fn take(&mut self) -> Result<SqliteConnection, Fault> {
        match self.conn.take() {
            Some(conn) => Ok(conn),
            None => {
                self.files.check_file()?;
                self.files.reopened();
                self.options.connect().await.map_err(classify)
            }
        }
    }

    /// Runs a statement of many rows to its end.
    ///
    /// The driver's thread passes row by row, and wakes the task for each. That costs more than the
    /// row. So this task does not wait for rows, but checks every millisecond.
    async fn fetch_many(
        &mut self,
        query: Query<'_, Sqlite, SqliteArguments>,
    ) -> Result<Vec<SqliteRow>, Fault> {
        let mut fetch = pin!(self.fetch(query));
        loop {
            let polled = poll_fn(|cx| Poll::Ready(fetch.as_mut().poll(cx))).await;
            match polled {
                Poll::Ready(rows) => return rows,
                Poll::Pending => tokio::time::sleep(GULP).await,
            }
        }
    }

    /// Reads up to `most` rows with valid names. `ask` creates the first statement, and then the
    /// statements that continue behind the bytes of a name.
    async fn walk<'q>(
        &mut self,
        most: u32,
        ask: impl Fn(Option<Vec<u8>>) -> Query<'q, Sqlite, SqliteArguments>,
    ) -> Result<Vec<Paged>, Fault> {
        let (mut paged, mut last) = (Vec::new(), None);
        loop {
            let left = most.saturating_sub(u32::try_from(paged.len()).unwrap_or(u32::MAX));
            if left == 0 {
                return Ok(paged);
            }
            let found = self.fetch(ask(last).bind(left)).await?;
            for found in &found {
                // A name that is no text, or not UTF-8, is no lock. SQLite stores any bytes as a
                // text.
                let Ok(name) = found.try_get(0) else { continue };
                // If a row can't be read, or has no snapshot here, the sweep skips it and continues
                // with the others.
                paged.push(Paged { name, now: micros(found, 1)?, row: row(found, 2).ok() });
            }
            let is_full = u32::try_from(found.len()).is_ok_and(|found| found == left);
            let Some(end) = found.last().filter(|_| is_full) else { return Ok(paged) };
            last = Some(get(end, 0)?);
        }
    }

    /// Runs a statement to its end, since only the end shows whether the commit succeeded.
    async fn fetch(
        &mut self,
        query: Query<'_, Sqlite, SqliteArguments>,
    ) -> Result<Vec<SqliteRow>, Fault> {
        let mut conn = self.take().await?;
        let result = query.fetch_all(&mut conn).await;
        // A connection whose thread has died is dropped. The next statement opens another one.
        if !matches!(result, Err(sqlx::Error::WorkerCrashed)) {
            self.conn = Some(conn);
        }
        // That costs a few microseconds.
        self.files.check()?;
        result.map_err(classify)
    }
}

impl Conn for SqliteConn {
    /// A statement is a call within this process, and its worker waits for the end.
    const CAN_BE_LATE: bool = false;

    async fn apply(&mut self, writes: &[Write]) -> Result<Vec<Result<Row, Error>>, Fault> {
        if let [write] = writes {
            let (seen, cut, time, snap) = write.fold_args();
            let query = sqlx::query(queries::APPLY_ONE)
                .bind(write.name.as_str())
                .bind(seen)
                .bind(cut)
                .bind(snap)
                .bind(&*write.op)
                .bind(write.known_base())
                .bind(time);
            let rows = self.fetch(query).await?;
            return Ok(rows.iter().map(|found| row(found, 0)).collect());
        }
        let room = writes.iter().map(Write::room).sum();
        let array = writes.iter().fold(Array::with_room(room), |all, write| {
            let (seen, cut, time, snap) = write.fold_args();
            all.array(|one| {
                let one = one.text(write.name.as_str()).number(seen).number(cut);
                one.text(snap).text(&write.op).number(time)
            })
        });
        let query = sqlx::query(queries::APPLY_MANY).bind(array.finish());
        let rows = match writes.len() {
            ..MANY => self.fetch(query).await?,
            _ => self.fetch_many(query).await?,
        };
        let named = |found| Ok((get::<&str>(found, 0)?, row(found, 1)));
        let found = rows.iter().map(named).collect::<Result<_, Fault>>()?;
        Ok(in_order(writes, found)?)
    }

    async fn read(&mut self, wanted: &[Wanted]) -> Result<RowsRead, Fault> {
        let array = wanted.iter().fold(Array::new(), |all, wanted| {
            all.array(|one| one.text(wanted.name.as_str()).number(wanted.known_base()))
        });
        let found = self.fetch(sqlx::query(queries::READ).bind(array.finish())).await?;
        let mut seen = RowsRead::of(wanted.len());
        for found in &found {
            let is_there = get::<Option<i64>>(found, 2)?.is_some();
            seen.put(get(found, 0)?, micros(found, 1)?, is_there.then(|| row(found, 2)));
        }
        Ok(seen)
    }

    async fn version(&mut self) -> Result<Option<i64>, Fault> {
        let found = self.fetch(sqlx::query(queries::DATA_VERSION)).await?;
        found.first().map(|found| get(found, 0)).transpose()
    }

    async fn page(
        &mut self,
        after: &str,
        skip: u32,
        old: Micros,
        most: u32,
    ) -> Result<Vec<Paged>, Fault> {
        let old = i64::try_from(old).unwrap_or(i64::MAX);
        let ask = |last: Option<Vec<u8>>| match last {
            Some(last) => sqlx::query(queries::PAGE).bind(last).bind(old).bind(0),
            None => sqlx::query(queries::PAGE).bind(after).bind(old).bind(skip),
        };
        self.walk(most, ask).await
    }

    async fn range(&mut self, range: &Range, most: u32) -> Result<Vec<Paged>, Fault> {
        let ask = |last: Option<Vec<u8>>| match last {
            // With a zero byte appended, it is the first possible name behind the last one.
            Some(last) => sqlx::query(queries::RANGE).bind([&*last, &[0]].concat()),
            None => sqlx::query(queries::RANGE).bind(&*range.from),
        };
        self.walk(most, |last| ask(last).bind(&*range.end)).await
    }

    async fn delete(&mut self, rows: &[(String, Mark)]) -> Result<(), Fault> {
        let array = rows.iter().fold(Array::new(), |all, (name, mark)| {
            all.array(|one| one.text(name).number(mark.base).number(mark.len))
        });
        self.fetch(sqlx::query(queries::DELETE).bind(array.finish())).await.map(drop)
    }

    async fn notify(&mut self, notifications: &[Notification]) -> Result<(), Fault> {
        if let Some(notifier) = &self.notifier {
            notifier.notify(notifications);
        }
        Ok(())
    }

    async fn examine(&mut self) -> Result<Vec<Finding>, Fault> {
        let mut conn = self.take().await?;
        let findings = examine(&mut conn, &self.files).await;
        // After an error the thread may have died. The next statement opens another connection.
        if findings.is_ok() {
            self.conn = Some(conn);
        }
        findings
    }

    async fn close(self) {
        if let Some(conn) = self.conn
            && let Err(error) = conn.close().await
        {
            tracing::debug!(target: "dlock", %error, "closing a connection failed");
        }
    }
}

/// Returns the columns base, snap and log, from `at` on.
fn row(found: &SqliteRow, at: usize) -> Result<Row, Error> {
    Ok(Row { base: get(found, at)?, snap: get(found, at + 1)?, log: get(found, at + 2)? })
}

fn micros(found: &SqliteRow, at: usize) -> Result<Micros, Fault> {
    Ok(Micros::try_from(get::<i64>(found, at)?).unwrap_or(0))
}

fn get<'r, T: sqlx::Decode<'r, Sqlite> + sqlx::Type<Sqlite>>(
    found: &'r SqliteRow,
    at: usize,
) -> Result<T, Fault> {
    found.try_get(at).map_err(classify)
}

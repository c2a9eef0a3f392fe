//! The engine's statements on MySQL and MariaDB.

use std::time::Duration;

use dlock_core::{Certainty, Error, Finding, LockName};
use sqlx::mysql::MySqlRow;

use super::{
    conn::MysqlConn,
    durability::ServerSettings,
    error::overtaken,
    examine::examine,
    json, queries,
    schema::Tables,
    statement::{Statement, as_str, end_of, get, micros, row, text},
};
use crate::engine::{
    Conn, Fault, Mark, Micros, Paged, Range, Row, RowsRead, Wanted, Write, in_order,
};

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
            let query = self.query(queries::UNLOCKED).bind(names);
            for row in &self.fetch(query).await? {
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

    async fn read(&mut self, wanted: &[Wanted]) -> Result<RowsRead, Fault> {
        let all: Vec<_> = wanted.iter().map(|wanted| (&wanted.name, wanted.known_base())).collect();
        self.read_rows(&all).await
    }

    async fn page(
        &mut self,
        after: &str,
        skip: u32,
        old: Micros,
        most: u32,
    ) -> Result<Vec<Paged>, Fault> {
        let old = i64::try_from(old).unwrap_or(i64::MAX);
        let query = self.query(queries::PAGE).bind(old).bind(old).bind(after.as_bytes());
        let query = query.bind(most).bind(skip);
        self.fetch(query).await?.iter().map(paged).collect()
    }

    async fn range(&mut self, range: &Range, most: u32) -> Result<Vec<Paged>, Fault> {
        let query = self
            .query(queries::RANGE)
            .bind(range.from.as_bytes())
            .bind(range.end.as_bytes())
            .bind(most);
        self.fetch_from_primary(query).await?.iter().map(paged).collect()
    }

    async fn delete(&mut self, rows: &[(String, Mark)]) -> Result<(), Fault> {
        let query = self.query(queries::DELETE).bind(json::marks(rows));
        self.fetch(query).await.map(drop)
    }

    async fn is_durable(&mut self) -> Result<bool, Fault> {
        Ok(ServerSettings::read(self).await?.is_durable())
    }

    async fn examine(&mut self) -> Result<Vec<Finding>, Fault> {
        examine(self, Tables::Locks).await
    }

    async fn close(self) {
        MysqlConn::close(self).await;
    }
}

impl MysqlConn {
    /// Returns the statement for these writes: the one for one row, or the one for many.
    async fn writing<'q>(
        &mut self,
        writes: &'q [Write],
        [one, many]: [&'static str; 2],
    ) -> Result<Statement<'q>, Fault> {
        let packet = self.ready().await?;
        if let [write] = writes {
            return Ok(apply_one(self.query(one), write, packet));
        }
        json::check_size(writes, packet)?;
        Ok(self.query(many).bind(json::writes(writes, packet)))
    }

    /// Writes with `RETURNING`, which returns the rows.
    async fn write_returning(
        &mut self,
        writes: &[Write],
    ) -> Result<Vec<Result<Row, Error>>, Fault> {
        let texts = [queries::APPLY_ONE_RETURNING, queries::APPLY_MANY_RETURNING];
        let mut query = self.writing(writes, texts).await?;
        if let [write] = writes {
            query = query.bind(write.known_base());
        }
        let found = self.fetch(query).await?;
        let named = |found| Ok((as_str(found, 0)?, row(found, 1)));
        let found = found.iter().map(named).collect::<Result<_, Fault>>()?;
        Ok(in_order(writes, found)?)
    }

    /// Writes, and then reads the rows, for servers without `RETURNING`.
    ///
    /// Other clients may write between the two statements. Their operations behind this one are cut
    /// off the log that was read. The rest is the row as it was right behind this operation,
    /// regardless of its snapshot, and so shows the result. If the operation is not found, another
    /// client has folded it or deleted the row. It was applied, and is sent again for its result,
    /// since operations are idempotent. (The second sending of a release can't show whether the
    /// claim was lost before. It counts as released, as after a lost answer.)
    async fn write_and_read(&mut self, writes: &[Write]) -> Result<Vec<Result<Row, Error>>, Fault> {
        let query = self.writing(writes, [queries::APPLY_ONE, queries::APPLY_MANY]).await?;
        self.fetch(query).await?;
        let wanted: Vec<_> = writes.iter().map(|write| (&write.name, write.known_base())).collect();
        // From here on the operations have been applied, so a failed read leaves their result
        // unknown.
        let in_doubt = |fault: Fault| fault.with_certainty(Certainty::Unknown);
        let seen = self.read_rows(&wanted).await.map_err(in_doubt)?;
        writes
            .iter()
            .zip(seen.rows)
            .map(|(write, row)| {
                let mut row = row.ok_or_else(overtaken)?;
                if let Ok(written) = &mut row {
                    match end_of(&written.log, &write.op) {
                        Some(end) => written.log.truncate(end),
                        // The statement appends nothing to a row that can't be read.
                        None => match written.replay() {
                            Err(error) => row = Err(error),
                            Ok(_) => return Err(overtaken()),
                        },
                    }
                }
                Ok(row)
            })
            .collect()
    }

    /// Reads the rows of these names, without the snapshots of these bases, in one or more
    /// statements. Returns the time of the first statement: no row is older.
    async fn read_rows(&mut self, wanted: &[(&LockName, i64)]) -> Result<RowsRead, Fault> {
        let mut seen = RowsRead { now: 0, rows: Vec::with_capacity(wanted.len()) };
        let most = if wanted.len() > 1 { json::most_names(self.ready().await?) } else { 1 };
        for part in wanted.chunks(most) {
            let part = self.read_part(part).await?;
            seen.now = if seen.rows.is_empty() { part.now } else { seen.now };
            seen.rows.extend(part.rows);
        }
        Ok(seen)
    }

    async fn read_part(&mut self, wanted: &[(&LockName, i64)]) -> Result<RowsRead, Fault> {
        let query = match wanted {
            [(name, known)] => {
                self.query(queries::READ_ONE).bind(*known).bind(name.as_str().as_bytes())
            }
            _ => self.query(queries::READ).bind(json::wanted(wanted.iter().copied())),
        };
        let found = self.fetch_from_primary(query).await?;
        let mut seen = RowsRead::of(wanted.len());
        for found in &found {
            let is_there = get::<Option<i64>>(found, 2)?.is_some();
            // The server counts from 1.
            let at = get::<i64>(found, 0)?.saturating_sub(1);
            seen.put(at, micros(found, 1)?, is_there.then(|| row(found, 2)));
        }
        Ok(seen)
    }
}

/// Returns a row of a page. If it can't be read, or has no snapshot here, the sweep skips it and
/// continues with the others.
fn paged(found: &MySqlRow) -> Result<Paged, Fault> {
    Ok(Paged { name: text(found, 0)?, now: micros(found, 1)?, row: row(found, 2).ok() })
}

fn apply_one<'q>(query: Statement<'q>, write: &'q Write, packet: usize) -> Statement<'q> {
    let (seen, cut, time, snap) = match write.room() <= packet.saturating_sub(json::AROUND) {
        true => write.fold_args(),
        false => Write::NO_FOLD,
    };
    query
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

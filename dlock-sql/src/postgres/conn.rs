//! The engine's statements on PostgreSQL.
//!
//! Each is one statement that commits on its own, so none leaves a transaction open. With
//! `skips_sync` it does not wait for the disk: a crash may then lose the operations, which only
//! joined a queue.

use std::time::Duration;

use dlock_core::{Error, Finding, LockName};
use sqlx::postgres::PgRow;

use super::{
    examine::examine,
    link::Link,
    literal::Arg,
    queries,
    schema::Tables,
    statement::{get, micros, row},
};
use crate::engine::{
    Conn, Fault, Mark, Micros, Notification, Paged, Range, Row, RowsRead, Wanted, Write, in_order,
};

/// A link, as the engine sees it.
pub(super) struct PgConn(pub(super) Link);

impl Conn for PgConn {
    const CAN_SKIP_SYNC: bool = true;

    fn bound(&mut self, limit: Duration) {
        self.0.bound(limit);
    }

    async fn unlocked(&mut self, names: &[&LockName]) -> Result<Vec<String>, Fault> {
        let names = names.iter().map(|name| name.as_str()).collect();
        let found = self.0.fetch(queries::UNLOCKED, &[Arg::Texts(names)]).await?;
        found.iter().map(|row| get(row, 0)).collect()
    }

    async fn apply(&mut self, writes: &[Write]) -> Result<Vec<Result<Row, Error>>, Fault> {
        // Only a single write may skip the sync.
        if let [write] = writes {
            let (seen, cut, time, snap) = write.fold_args();
            let args = [
                Arg::Text(write.name.as_str()),
                Arg::Number(seen),
                Arg::Number(if write.fold.is_some() { cut } else { write.known_len() }),
                Arg::Text(snap),
                Arg::Text(&write.op),
                Arg::Number(write.known_base()),
                Arg::Number(time),
            ];
            let sql = if write.skips_sync {
                &queries::APPLY_ONE_WITHOUT_SYNC
            } else {
                queries::APPLY_ONE
            };
            let rows = self.0.fetch(sql, &args).await?;
            return Ok(rows.iter().map(|found| row(found, 0)).collect());
        }
        let (mut seen, mut cut, mut time, mut snap) = (vec![], vec![], vec![], vec![]);
        for fold in writes.iter().map(Write::fold_args) {
            seen.push(fold.0);
            cut.push(fold.1);
            time.push(fold.2);
            snap.push(fold.3);
        }
        let known = || writes.iter().filter(|write| write.known.is_some());
        let args = [
            Arg::Texts(writes.iter().map(|write| write.name.as_str()).collect()),
            Arg::Numbers(seen),
            Arg::Numbers(cut),
            Arg::Texts(snap),
            Arg::Texts(writes.iter().map(|write| &*write.op).collect()),
            Arg::Numbers(time),
            Arg::Texts(known().map(|write| write.name.as_str()).collect()),
            Arg::Numbers(known().map(Write::known_base).collect()),
            Arg::Numbers(known().map(Write::known_len).collect()),
        ];
        let rows = self.0.fetch(queries::APPLY_MANY, &args).await?;
        let named = |found| Ok((get::<&str>(found, 0)?, row(found, 1)));
        let found = rows.iter().map(named).collect::<Result<_, Fault>>()?;
        // RETURNING returns the rows in any order.
        Ok(in_order(writes, found)?)
    }

    async fn read(&mut self, wanted: &[Wanted]) -> Result<RowsRead, Fault> {
        let args = [
            Arg::Texts(wanted.iter().map(|wanted| wanted.name.as_str()).collect()),
            Arg::Numbers(wanted.iter().map(Wanted::known_base).collect()),
        ];
        let mut seen = RowsRead::of(wanted.len());
        // From the primary only: a row of a standby may lack grants.
        for found in &self.0.fetch_from_primary(queries::READ, &args).await? {
            let is_there = get::<Option<i64>>(found, 2)?.is_some();
            seen.put(get(found, 0)?, micros(found, 1)?, is_there.then(|| row(found, 2)));
        }
        Ok(seen)
    }

    async fn page(
        &mut self,
        after: &str,
        skip: u32,
        old: Micros,
        most: u32,
    ) -> Result<Vec<Paged>, Fault> {
        let old = Arg::Number(i64::try_from(old).unwrap_or(i64::MAX));
        let args = [Arg::Text(after), old, Arg::Number(most.into()), Arg::Number(skip.into())];
        self.0.fetch(queries::PAGE, &args).await?.iter().map(paged).collect()
    }

    async fn range(&mut self, range: &Range, most: u32) -> Result<Vec<Paged>, Fault> {
        let args = [Arg::Text(&range.from), Arg::Text(&range.end), Arg::Number(most.into())];
        self.0.fetch_from_primary(queries::RANGE, &args).await?.iter().map(paged).collect()
    }

    async fn delete(&mut self, rows: &[(String, Mark)]) -> Result<(), Fault> {
        let args = [
            Arg::Texts(rows.iter().map(|(name, _)| &**name).collect()),
            Arg::Numbers(rows.iter().map(|(_, mark)| mark.base).collect()),
            Arg::Numbers(rows.iter().map(|(_, mark)| mark.len).collect()),
        ];
        self.0.fetch(queries::DELETE, &args).await.map(drop)
    }

    async fn notify(&mut self, notifications: &[Notification]) -> Result<(), Fault> {
        let notifications: Vec<_> = notifications
            .iter()
            .map(|notification| (channel(notification.granted.home), notification.to_string()))
            .collect();
        let (channels, texts) =
            notifications.iter().map(|(channel, text)| (&**channel, &**text)).unzip();
        self.0.fetch(queries::NOTIFY, &[Arg::Texts(channels), Arg::Texts(texts)]).await.map(drop)
    }

    async fn is_durable(&mut self) -> Result<bool, Fault> {
        self.0.is_durable(queries::IS_DURABLE).await
    }

    async fn examine(&mut self) -> Result<Vec<Finding>, Fault> {
        examine(&mut self.0, Tables::Locks).await
    }

    async fn close(self) {
        self.0.close().await;
    }
}

/// Returns the channel for notifications to this engine.
pub(super) fn channel(home: u32) -> String {
    format!("dlock_{home:08x}")
}

/// Returns a row of a page. If it can't be read, or has no snapshot here, the sweep skips it and
/// continues with the others.
fn paged(found: &PgRow) -> Result<Paged, Fault> {
    Ok(Paged { name: get(found, 0)?, now: micros(found, 1)?, row: row(found, 2).ok() })
}

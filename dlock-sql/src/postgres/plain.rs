//! The plain schemes: their statements, and opening the mode.

use std::sync::Arc;

use dlock_core::{DynBackend, Error, Finding, LockName};
use tokio::runtime::Handle;

use super::{
    PostgresConfig,
    conn::PgConn,
    examine::examine,
    link::Link,
    literal::Arg,
    queries,
    schema::{Tables, prepare_in_time},
    statement::get,
};
use crate::{
    engine::{Conn, DurabilityMonitor, Fault, Listed, Range},
    plain::{Argument, PlainConn, PlainRead, PlainRow, Scheme, Statements, no_answer, start},
};

macro_rules! now {
    () => {
        "((extract(epoch FROM pg_catalog.statement_timestamp()) \
         OPERATOR(pg_catalog.*) 1000000)::bigint)"
    };
}

pub(crate) const STATEMENTS: Statements = Statements {
    insert: concat!(
        "INSERT INTO dlock_plain (name, holder, state, version, expiry)\n",
        "SELECT $1::pg_catalog.text, $2::pg_catalog.text, 'held', 1, ",
        now!(),
        " OPERATOR(pg_catalog.+) $3::bigint\nWHERE ",
        now!(),
        " OPERATOR(pg_catalog.<=) $4::bigint\n",
        "ON CONFLICT (name) DO NOTHING RETURNING 1",
    ),
    clear: concat!(
        "DELETE FROM dlock_plain WHERE name OPERATOR(pg_catalog.=) $1::pg_catalog.text\n",
        "AND expiry OPERATOR(pg_catalog.<=) ",
        now!(),
        " RETURNING 1",
    ),
    take: concat!(
        "UPDATE dlock_plain SET holder = $1::pg_catalog.text, state = 'held',\n",
        "version = version OPERATOR(pg_catalog.+) 1, expiry = ",
        now!(),
        " OPERATOR(pg_catalog.+) $2::bigint\n",
        "WHERE name OPERATOR(pg_catalog.=) $3::pg_catalog.text\n",
        "AND version OPERATOR(pg_catalog.=) $4::bigint\n",
        "AND (state OPERATOR(pg_catalog.<>) 'held' OR expiry OPERATOR(pg_catalog.<=) ",
        now!(),
        ")\nAND ",
        now!(),
        " OPERATOR(pg_catalog.<=) $5::bigint RETURNING 1",
    ),
    renew: concat!(
        "UPDATE dlock_plain SET expiry = greatest(least(expiry, $2::bigint), ",
        now!(),
        " OPERATOR(pg_catalog.+) $1::bigint)\n",
        "WHERE name OPERATOR(pg_catalog.=) $3::pg_catalog.text\n",
        "AND holder OPERATOR(pg_catalog.=) $4::pg_catalog.text\n",
        "AND state OPERATOR(pg_catalog.=) 'held'\n",
        "AND expiry OPERATOR(pg_catalog.>) ",
        now!(),
        " AND ",
        now!(),
        " OPERATOR(pg_catalog.<=) $5::bigint RETURNING 1",
    ),
    delete: "DELETE FROM dlock_plain WHERE name OPERATOR(pg_catalog.=) $1::pg_catalog.text\n\
             AND holder OPERATOR(pg_catalog.=) $2::pg_catalog.text RETURNING 1",
    free: "UPDATE dlock_plain SET state = 'free'\n\
           WHERE name OPERATOR(pg_catalog.=) $1::pg_catalog.text\n\
           AND holder OPERATOR(pg_catalog.=) $2::pg_catalog.text\n\
           AND state OPERATOR(pg_catalog.=) 'held' RETURNING 1",
    read: concat!(
        "SELECT clock.now, p.holder, p.state OPERATOR(pg_catalog.=) 'held', p.version,\n",
        "p.expiry OPERATOR(pg_catalog.-) clock.now\n",
        "FROM (SELECT ",
        now!(),
        " AS now) AS clock\n",
        "LEFT JOIN dlock_plain AS p ON p.name OPERATOR(pg_catalog.=) $1::pg_catalog.text",
    ),
    range: concat!(
        "SELECT name, state OPERATOR(pg_catalog.=) 'held' AND expiry OPERATOR(pg_catalog.>) ",
        now!(),
        "\nFROM dlock_plain WHERE name OPERATOR(pg_catalog.>=) $1::pg_catalog.text\n",
        "AND name OPERATOR(pg_catalog.<) $2::pg_catalog.text ORDER BY name LIMIT $3::bigint",
    ),
};

impl PlainConn for PgConn {
    async fn change(
        &mut self,
        statement: &'static str,
        arguments: &[Argument<'_>],
    ) -> Result<u64, Fault> {
        let arguments: Vec<Arg<'_>> = arguments
            .iter()
            .map(|argument| match *argument {
                Argument::Text(text) => Arg::Text(text),
                Argument::Number(number) => Arg::Number(number),
            })
            .collect();
        let changed = self.0.fetch(statement, &arguments).await?.len();
        Ok(u64::try_from(changed).unwrap_or(u64::MAX))
    }

    async fn read(&mut self, statement: &'static str, name: &LockName) -> Result<PlainRead, Fault> {
        let rows = self.0.fetch(statement, &[Arg::Text(name.as_str())]).await?;
        let row = rows.first().ok_or_else(no_answer)?;
        let now = get(row, 0)?;
        let Some(holder) = get::<Option<String>>(row, 1)? else {
            return Ok(PlainRead { now, row: None });
        };
        let (is_held, version, left) = (get(row, 2)?, get(row, 3)?, get(row, 4)?);
        Ok(PlainRead { now, row: Some(PlainRow { holder, is_held, version, left }) })
    }

    async fn range(
        &mut self,
        statement: &'static str,
        range: &Range,
        most: u32,
    ) -> Result<Vec<Listed>, Fault> {
        let args = [Arg::Text(&range.from), Arg::Text(&range.end), Arg::Number(most.into())];
        let rows = self.0.fetch(statement, &args).await?;
        let listed = |row| Ok(Listed { name: get(row, 0)?, is_used: get(row, 1)? });
        rows.iter().map(listed).collect()
    }

    async fn is_durable(&mut self) -> Result<bool, Fault> {
        self.0.is_durable(queries::PLAIN_IS_DURABLE).await
    }

    async fn examine(&mut self) -> Result<Vec<Finding>, Fault> {
        examine(&mut self.0, Tables::Plain).await
    }

    async fn close(self) {
        Conn::close(self).await;
    }
}

/// Opens the plain mode.
pub(super) async fn open_plain(
    config: &PostgresConfig,
    scheme: Scheme,
    runtime: &Handle,
    database: &str,
) -> Result<DynBackend, Error> {
    let mut link = Link::new(config.own(), config.transport(), config.response_timeout);
    let prepared = prepare_in_time(&mut link, Tables::Plain, config).await?;
    let store = prepared.store(database);
    link.name_tables(prepared.texts);
    let durability = DurabilityMonitor::new(link.is_durable(queries::PLAIN_IS_DURABLE).await?);
    link.watch(durability.clone());
    let (conn, response_timeout) = (PgConn(link), config.response_timeout);
    Ok(Arc::new(start(runtime, &store, durability, conn, scheme, STATEMENTS, response_timeout)))
}

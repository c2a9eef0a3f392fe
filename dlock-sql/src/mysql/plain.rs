//! The plain schemes: their statements, and opening the mode.

use std::sync::Arc;

use dlock_core::{
    Clock, ConfigIssue, DynBackend, Error, Exclusion, Finding, Guarantees, LockName, Scope,
};
use sqlx::{MySql, mysql::MySqlArguments, query::Query};
use tokio::runtime::Handle;

use super::{
    answer::{get, text},
    check::check_server,
    config::MysqlConfig,
    conn::MysqlConn,
    error::{is_denied, is_missing},
    examine::{Tables, examine},
    way::Way,
};
use crate::{
    engine::{Conn, Fault, Kept, Listed, Patience, Range},
    plain::{Argument, Looked, PlainConn, PlainStore, Scheme, Seen, Statements, no_answer},
};

/// The table.
pub(super) const SCHEMA: &str = include_str!("plain.sql");

macro_rules! now {
    () => {
        "TIMESTAMPDIFF(MICROSECOND, '1970-01-01', UTC_TIMESTAMP(6))"
    };
}

pub(crate) const STATEMENTS: Statements = Statements {
    insert: concat!(
        "INSERT INTO dlock_plain (name, holder, state, version, expiry) SELECT ?, ?, 'held', 1, ",
        now!(),
        " + ? FROM DUAL WHERE ",
        now!(),
        " <= ?",
    ),
    clear: concat!("DELETE FROM dlock_plain WHERE name = ? AND expiry <= ", now!()),
    take: concat!(
        "UPDATE dlock_plain SET holder = ?, state = 'held', version = version + 1, expiry = ",
        now!(),
        " + ? WHERE name = ? AND version = ? AND (state <> 'held' OR expiry <= ",
        now!(),
        ") AND ",
        now!(),
        " <= ?",
    ),
    renew: concat!(
        "UPDATE dlock_plain SET expiry = GREATEST(expiry, ",
        now!(),
        " + ?) WHERE name = ? AND holder = ? AND state = 'held' AND expiry > ",
        now!(),
        " AND ",
        now!(),
        " <= ?",
    ),
    delete: "DELETE FROM dlock_plain WHERE name = ? AND holder = ?",
    free: "UPDATE dlock_plain SET state = 'free' WHERE name = ? AND holder = ? AND state = 'held'",
    look: concat!(
        "SELECT clock.now, p.holder, p.state = 'held', p.version, p.expiry - clock.now FROM (SELECT ",
        now!(),
        " AS now) AS clock LEFT JOIN dlock_plain AS p ON p.name = ?",
    ),
    range: concat!(
        "SELECT name, state = 'held' AND expiry > ",
        now!(),
        " FROM dlock_plain WHERE name >= ? AND name < ? \
         AND CAST(CONVERT(CONVERT(CONVERT(name USING utf8mb4) USING utf16) USING utf8mb4) \
         AS BINARY) = name ORDER BY name LIMIT ?",
    ),
};

/// Finds out what the user may not do, by changing nothing.
const PROBES: [&str; 4] = [
    "SELECT holder FROM dlock_plain WHERE 1 = 0",
    "INSERT INTO dlock_plain (name, holder, state, version, expiry) \
     SELECT '', '', '', 0, 0 FROM (SELECT 1) AS nothing WHERE 1 = 0",
    "UPDATE dlock_plain SET state = state WHERE 1 = 0",
    "DELETE FROM dlock_plain WHERE 1 = 0",
];

const ENGINE: &str = "SELECT engine FROM information_schema.tables \
     WHERE table_schema = DATABASE() AND table_name = 'dlock_plain'";

impl PlainConn for MysqlConn {
    async fn change(
        &mut self,
        statement: &'static str,
        arguments: &[Argument<'_>],
    ) -> Result<u64, Fault> {
        let query = arguments.iter().fold(sqlx::query(self.sql(statement)), bind);
        MysqlConn::change(self, query).await
    }

    async fn look(&mut self, statement: &'static str, name: &LockName) -> Result<Looked, Fault> {
        let query = sqlx::query(self.sql(statement)).bind(name.as_str().as_bytes());
        let rows = self.fetch(query).await?;
        let row = rows.first().ok_or_else(|| Fault::from(no_answer()))?;
        let now = get(row, 0)?;
        let Some(holder) = get::<Option<Vec<u8>>>(row, 1)? else {
            return Ok(Looked { now, row: None });
        };
        let holder = String::from_utf8_lossy(&holder).into_owned();
        let is_held = get::<i64>(row, 2)? != 0;
        let (version, left) = (get(row, 3)?, get(row, 4)?);
        Ok(Looked { now, row: Some(Seen { holder, is_held, version, left }) })
    }

    async fn range(
        &mut self,
        statement: &'static str,
        range: &Range,
        most: u32,
    ) -> Result<Vec<Listed>, Fault> {
        let query = sqlx::query(self.sql(statement))
            .bind(range.from.as_bytes())
            .bind(range.end.as_bytes())
            .bind(most);
        let rows = self.fetch(query).await?;
        let listed = |row| Ok(Listed { name: text(row, 0)?, is_used: get::<i64>(row, 1)? != 0 });
        rows.iter().map(listed).collect()
    }

    async fn keeps(&mut self) -> Result<bool, Fault> {
        Ok(check_server(self).await?.keeps && is_innodb(self).await?)
    }

    async fn examine(&mut self) -> Result<Vec<Finding>, Fault> {
        examine(self, Tables::Plain).await
    }

    async fn close(self) {
        Conn::close(self).await;
    }
}

fn bind<'q>(
    query: Query<'q, MySql, MySqlArguments>,
    argument: &Argument<'q>,
) -> Query<'q, MySql, MySqlArguments> {
    match *argument {
        Argument::Text(text) => query.bind(text.as_bytes()),
        Argument::Number(number) => query.bind(number),
    }
}

/// Opens the plain mode.
pub(super) async fn open_plain(
    config: &MysqlConfig,
    scheme: Scheme,
    runtime: &Handle,
    store: Arc<str>,
) -> Result<DynBackend, Error> {
    let way = Way::new(config.driver.own(), config.patience);
    let mut conn = MysqlConn::new(way);
    let mut patience = Patience::until(Clock::Boot.now().saturating_add(config.patience));
    let kept = loop {
        match prepare(&mut conn, config.create_schema).await {
            Ok(keeps) => break Kept::new(keeps),
            Err(fault) => patience.after(fault).await?,
        }
    };
    let home = conn.database().await.map_err(|fault| fault.error)?;
    let conn = conn.within(&home);
    let database = Guarantees::WEAKEST.with_exclusion(Exclusion::Restart);
    let database = (database.with_scope(Scope::Network), kept);
    let patience = config.patience;
    let store = PlainStore::start(runtime, store, database, conn, scheme, STATEMENTS, patience);
    Ok(Arc::new(store))
}

/// Checks the server, the table and the rights, and makes the table where that is asked for; whether
/// what commits outlives a crash.
async fn prepare(conn: &mut MysqlConn, create: bool) -> Result<bool, Fault> {
    check_server(conn).await?;
    match probe(conn).await {
        Err(fault) if is_missing(&fault) && create => {
            conn.script(SCHEMA).await?;
            probe(conn).await?;
        }
        Err(fault) if is_missing(&fault) => {
            return Err(Error::config(
                ConfigIssue::SchemaMissing,
                "the database has no table dlock_plain: open with create_schema \
                 (dlock.create_schema=true), or run MysqlConfig::PLAIN_SCHEMA",
            )
            .into());
        }
        probed => probed?,
    }
    PlainConn::keeps(conn).await
}

/// Other engines forget the last grants in a crash, or all of them.
async fn is_innodb(conn: &mut MysqlConn) -> Result<bool, Fault> {
    let sql = conn.sql(ENGINE);
    let found = conn.fetch(sqlx::query(sql)).await?;
    let engine = found.first().map(|row| get::<Option<Vec<u8>>>(row, 0)).transpose()?.flatten();
    Ok(engine.is_some_and(|engine| engine.eq_ignore_ascii_case(b"InnoDB")))
}

pub(super) async fn probe(conn: &mut MysqlConn) -> Result<(), Fault> {
    for probe in PROBES {
        let sql = conn.sql(probe);
        conn.fetch(sqlx::query(sql)).await.map_err(|fault| match is_denied(&fault.error) {
            true => Error::config(
                ConfigIssue::Access,
                "the user lacks rights: run GRANT SELECT, INSERT, UPDATE, DELETE ON dlock_plain \
                 TO the user",
            )
            .with_source(fault.error)
            .into(),
            false => fault,
        })?;
    }
    Ok(())
}

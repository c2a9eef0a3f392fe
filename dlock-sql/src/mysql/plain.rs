//! The plain schemes: their statements, and opening the mode.
//!
//! Each statement that takes or renews a row compares the deadline with `now!()`, the server's
//! clock in microseconds, so a late statement changes nothing. `renew` keeps the later of two ends,
//! so that it does not undo a renewal that overtook it; only the last renewal of a claim shortens.
//!
//! Only InnoDB keeps a grant across a crash. With another engine the mode works, but promises less.

use std::sync::Arc;

use dlock_core::{DynBackend, Error, Finding, LockName};
use tokio::runtime::Handle;

use super::{
    check::check_server,
    config::MysqlConfig,
    conn::MysqlConn,
    connector::Connector,
    examine::examine,
    schema::{Tables, prepare},
    statement::{Statement, get, text},
};
use crate::{
    engine::{DurabilityMonitor, Fault, Listed, Range, RetryBudget, retry},
    plain::{self, Argument, PlainConn, PlainRead, PlainRow, Scheme, Statements, no_answer},
};

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
        "UPDATE dlock_plain SET expiry = GREATEST(",
        now!(),
        " + ?, LEAST(expiry, ?)) WHERE name = ? AND holder = ? AND state = 'held' AND expiry > ",
        now!(),
        " AND ",
        now!(),
        " <= ?",
    ),
    delete: "DELETE FROM dlock_plain WHERE name = ? AND holder = ?",
    free: "UPDATE dlock_plain SET state = 'free' WHERE name = ? AND holder = ? AND state = 'held'",
    read: concat!(
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

const ENGINE: &str = "SELECT engine FROM information_schema.tables \
     WHERE table_schema = DATABASE() AND table_name = 'dlock_plain'";

impl PlainConn for MysqlConn {
    async fn change(
        &mut self,
        statement: &'static str,
        arguments: &[Argument<'_>],
    ) -> Result<u64, Fault> {
        let query = arguments.iter().fold(self.query(statement), bind);
        MysqlConn::change(self, query).await
    }

    async fn read(&mut self, statement: &'static str, name: &LockName) -> Result<PlainRead, Fault> {
        let query = self.query(statement).bind(name.as_str().as_bytes());
        let rows = self.fetch(query).await?;
        let row = rows.first().ok_or_else(no_answer)?;
        let now = get(row, 0)?;
        // Every answer contains the clock, even without a row.
        let Some(holder) = get::<Option<Vec<u8>>>(row, 1)? else {
            return Ok(PlainRead { now, row: None });
        };
        let holder = String::from_utf8_lossy(&holder).into_owned();
        let is_held = get::<i64>(row, 2)? != 0;
        let (version, left) = (get(row, 3)?, get(row, 4)?);
        Ok(PlainRead { now, row: Some(PlainRow { holder, is_held, version, left }) })
    }

    async fn range(
        &mut self,
        statement: &'static str,
        range: &Range,
        most: u32,
    ) -> Result<Vec<Listed>, Fault> {
        let query =
            self.query(statement).bind(range.from.as_bytes()).bind(range.end.as_bytes()).bind(most);
        let rows = self.fetch(query).await?;
        let listed = |row| Ok(Listed { name: text(row, 0)?, is_used: get::<i64>(row, 1)? != 0 });
        rows.iter().map(listed).collect()
    }

    async fn is_durable(&mut self) -> Result<bool, Fault> {
        // Both can change while the store is open: the settings, and the engine of the table.
        Ok(check_server(self).await?.is_durable && is_innodb(self).await?)
    }

    async fn examine(&mut self) -> Result<Vec<Finding>, Fault> {
        examine(self, Tables::Plain).await
    }

    async fn close(self) {
        MysqlConn::close(self).await;
    }
}

fn bind<'q>(query: Statement<'q>, argument: &Argument<'q>) -> Statement<'q> {
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
    let way = Connector::new(config.driver.own(), config.response_timeout);
    let mut conn = MysqlConn::new(way);
    let prepared = retry!(
        RetryBudget::to_open(config.response_timeout),
        prepare_plain(&mut conn, config.create_schema).await
    );
    let durability = DurabilityMonitor::new(prepared?);
    let (home, _) = conn.which().await?;
    let conn = conn.within(&home, &[], false);
    let response_timeout = config.response_timeout;
    let store =
        plain::start(runtime, &store, durability, conn, scheme, STATEMENTS, response_timeout);
    Ok(Arc::new(store))
}

/// Checks the server, the table and the rights, and creates the table if configured. Returns true
/// if commits survive a crash.
async fn prepare_plain(conn: &mut MysqlConn, create: bool) -> Result<bool, Fault> {
    check_server(conn).await?;
    prepare(conn, Tables::Plain, create).await?;
    PlainConn::is_durable(conn).await
}

/// Returns whether the engine is InnoDB. Other engines lose the last grants in a crash, or all of
/// them.
async fn is_innodb(conn: &mut MysqlConn) -> Result<bool, Fault> {
    let found = conn.rows(ENGINE).await?;
    let engine = found.first().map(|row| get::<Option<Vec<u8>>>(row, 0)).transpose()?.flatten();
    Ok(engine.is_some_and(|engine| engine.eq_ignore_ascii_case(b"InnoDB")))
}

//! The plain schemes' statements.

use dlock_core::{Finding, LockName};

use super::{answer::get, conn::PgConn, examine::examine, literal::Arg, queries, schema::Tables};
use crate::{
    engine::{Conn, Fault, Listed, Range},
    plain::{Argument, Looked, PlainConn, PlainRow, Statements, no_answer},
};

macro_rules! now {
    () => {
        "(extract(epoch FROM statement_timestamp()) * 1000000)::bigint"
    };
}

pub(crate) const STATEMENTS: Statements = Statements {
    insert: concat!(
        "INSERT INTO dlock_plain (name, holder, state, version, expiry)\n",
        "SELECT $1::text, $2::text, 'held', 1, ",
        now!(),
        " + $3::bigint\n",
        "WHERE ",
        now!(),
        " <= $4::bigint\n",
        "ON CONFLICT (name) DO NOTHING RETURNING 1",
    ),
    clear: concat!(
        "DELETE FROM dlock_plain WHERE name = $1::text AND expiry <= ",
        now!(),
        " RETURNING 1",
    ),
    take: concat!(
        "UPDATE dlock_plain SET holder = $1::text, state = 'held', version = version + 1,\n",
        "expiry = ",
        now!(),
        " + $2::bigint\n",
        "WHERE name = $3::text AND version = $4::bigint\n",
        "AND (state <> 'held' OR expiry <= ",
        now!(),
        ")\nAND ",
        now!(),
        " <= $5::bigint RETURNING 1",
    ),
    renew: concat!(
        "UPDATE dlock_plain SET expiry = greatest(least(expiry, $2::bigint), ",
        now!(),
        " + $1::bigint)\n",
        "WHERE name = $3::text AND holder = $4::text AND state = 'held'\n",
        "AND expiry > ",
        now!(),
        " AND ",
        now!(),
        " <= $5::bigint RETURNING 1",
    ),
    delete: "DELETE FROM dlock_plain WHERE name = $1::text AND holder = $2::text RETURNING 1",
    free: "UPDATE dlock_plain SET state = 'free'\n\
           WHERE name = $1::text AND holder = $2::text AND state = 'held' RETURNING 1",
    look: concat!(
        "SELECT clock.now, p.holder, p.state = 'held', p.version, p.expiry - clock.now\n",
        "FROM (SELECT ",
        now!(),
        " AS now) AS clock\nLEFT JOIN dlock_plain AS p ON p.name = $1::text",
    ),
    range: concat!(
        "SELECT name, state = 'held' AND expiry > ",
        now!(),
        "\nFROM dlock_plain WHERE name >= $1::text AND name < $2::text ORDER BY name LIMIT $3::bigint",
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

    async fn look(&mut self, statement: &'static str, name: &LockName) -> Result<Looked, Fault> {
        let rows = self.0.fetch(statement, &[Arg::Text(name.as_str())]).await?;
        let row = rows.first().ok_or_else(no_answer)?;
        let now = get(row, 0)?;
        let Some(holder) = get::<Option<String>>(row, 1)? else {
            return Ok(Looked { now, row: None });
        };
        let (is_held, version, left) = (get(row, 2)?, get(row, 3)?, get(row, 4)?);
        Ok(Looked { now, row: Some(PlainRow { holder, is_held, version, left }) })
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

    async fn keeps(&mut self) -> Result<bool, Fault> {
        self.0.keeps(queries::PLAIN_KEEPS).await
    }

    async fn examine(&mut self) -> Result<Vec<Finding>, Fault> {
        examine(&mut self.0, Tables::Plain).await
    }

    async fn close(self) {
        Conn::close(self).await;
    }
}

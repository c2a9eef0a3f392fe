//! The statements that dlock sends over SQL for an uncontended lock, by the bare driver over one
//! connection: the same text, arguments and answers, without dlock's processing of them.

use std::sync::Arc;

use sqlx::Row;
use tokio::sync::Mutex;

use super::{
    NO_WAIT,
    bare::{BareConnection, file_beside},
    sql::owner,
};
use crate::{
    Failure,
    subject::{Lock, Subject, Want, Witness},
};

const POSTGRES: &str = include_str!("../../../../dlock-sql/src/postgres/apply_one.sql");
const SQLITE: &str = include_str!("../../../../dlock-sql/src/sqlite/apply_one.sql");
const MYSQL: &str = concat!(
    include_str!("../../../../dlock-sql/src/mysql/apply_one.sql"),
    include_str!("../../../../dlock-sql/src/mysql/returning_one.sql")
);

/// The length above which a log is folded, as in dlock.
const FOLD_ABOVE: usize = 128;

/// A connection that all locks share, one at a time.
#[derive(Clone, Debug)]
pub(super) struct Same(Arc<Mutex<BareConnection>>);

/// The known base of the row, and the fold to send with the next statement.
#[derive(Debug, Default)]
struct Seen {
    base: i64,
    fold: Option<(i64, i64, String)>,
}

/// A lock of one name.
#[derive(Debug)]
pub(super) struct SameLock {
    same: Same,
    name: String,
    claim: String,
    seen: Seen,
}

impl Same {
    pub(super) async fn connect(url: &str) -> Result<Self, Failure> {
        let connection = if url.starts_with("sqlite:") {
            // A file with dlock's table, separate from dlock's file.
            let file = file_beside(url, "same")?;
            dlock::connect(&format!("sqlite:{}?dlock.create_schema=true", file.display())).await?;
            BareConnection::file(&file).await?
        } else {
            BareConnection::connect(url).await?
        };
        Ok(Self(Arc::new(Mutex::new(connection))))
    }
}

/// Sends an operation. Returns the base of the row, and its log.
async fn apply(
    connection: &mut BareConnection,
    name: &str,
    op: &str,
    seen: &Seen,
) -> Result<(i64, String), Failure> {
    let (cut, time, snap) =
        seen.fold.as_ref().map_or((0, 0, ""), |(cut, time, snap)| (*cut, *time, snap));
    let (known, seen) = (seen.base, if cut == 0 { 0 } else { seen.base });
    const NONE: &str = "a statement without an answer";
    Ok(match connection {
        BareConnection::Postgres(connection) => {
            let query = sqlx::query(POSTGRES).bind(name).bind(seen).bind(cut).bind(snap);
            let rows = query.bind(op).bind(known).bind(time).fetch_all(connection).await?;
            let row = rows.first().ok_or(NONE)?;
            (row.try_get(0)?, row.try_get(2)?)
        }
        BareConnection::Mysql(connection) => {
            let query = sqlx::query(MYSQL).bind(name.as_bytes()).bind(seen).bind(cut).bind(op);
            // The assignments of `cut`, `log`, `snap` and `base` each compare the time.
            let query = query.bind(time).bind(time).bind(time).bind(snap).bind(time);
            let rows = query.bind(known).fetch_all(connection).await?;
            let row = rows.first().ok_or(NONE)?;
            (row.try_get(1)?, String::from_utf8(row.try_get(3)?)?)
        }
        BareConnection::Sqlite(connection) => {
            let query = sqlx::query(SQLITE).bind(name).bind(seen).bind(cut).bind(snap);
            let rows = query.bind(op).bind(known).bind(time).fetch_all(connection).await?;
            let row = rows.first().ok_or(NONE)?;
            (row.try_get(0)?, row.try_get(2)?)
        }
    })
}
impl Subject for Same {
    type Lock = SameLock;

    async fn lock(&self, want: Want<'_>) -> Result<SameLock, Failure> {
        let Want::One(name) = want else { return Err(NO_WAIT.into()) };
        // All operations use the same claim.
        let claim = owner(name);
        let name = format!("same/{name}");
        Ok(SameLock { same: self.clone(), name, claim, seen: Seen::default() })
    }
}

impl SameLock {
    async fn apply(&mut self, driver: &mut BareConnection, op: &str) -> Result<(), Failure> {
        let (base, log) = apply(driver, &self.name, op, &self.seen).await?;
        let fold = match log.len() > FOLD_ABOVE {
            false => None,
            true => {
                let last = log.trim_end_matches(';').rsplit(' ').next().unwrap_or_default();
                Some((i64::try_from(log.len())?, last.parse()?, format!("v1 {last} 1073741824;")))
            }
        };
        self.seen = Seen { base, fold };
        Ok(())
    }
}

impl Lock for SameLock {
    async fn cycle<W: Witness>(&mut self, _witness: &mut W) -> Result<(), Failure> {
        let shared = self.same.clone();
        let mut driver = shared.0.lock().await;
        let take = format!("A {} = 1073741824 30000000 1 1684671037 Q", self.claim);
        self.apply(&mut driver, &take).await?;
        let release = format!("R {} 1", self.claim);
        self.apply(&mut driver, &release).await
    }
}

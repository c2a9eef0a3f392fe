//! Checks the server and dlock's tables, and creates the tables if configured.
//!
//! The order is: check the server, look for the tables, create them if they are missing, look
//! again, check columns, rights and version. Two programs may create the tables at the same time:
//! the script is one transaction, and the one that loses the race retries and finds the tables. A
//! process that dies in between leaves no partial tables.

use std::sync::Arc;

use dlock_core::{ConfigIssue, Error, ErrorKind};

use super::{
    driver::PostgresConfig,
    error::{ENCODING, MISSING, NOT_OURS, RIGHTS, code_of},
    link::Link,
    literal::Arg,
    queries,
    statement::{get, no_answer},
};
use crate::{
    engine::{Fault, Remedy, RetryBudget, retry},
    server::Texts,
};

/// The oldest server: 12.0.
const OLDEST: u32 = 120_000;

/// The kind of tables that are needed.
#[derive(Clone, Copy, Debug)]
pub(super) enum Tables {
    Locks,
    Plain,
    Advisory,
}

/// A database that has been checked.
pub(super) struct Prepared {
    /// The statements, with the schema of the tables that were found.
    pub(super) texts: Texts,
    /// That schema.
    pub(super) schema: String,
}

impl Prepared {
    /// Returns the name of the store. A name in two schemas is two locks, so each schema is a store of
    /// its own name. The usual schema is not shown. `database` names the database.
    pub(super) fn store(&self, database: &str) -> Arc<str> {
        match &*self.schema {
            "public" => database.into(),
            schema => format!("{database} (schema {schema})").into(),
        }
    }
}

/// Checks that the server is suitable and has the tables in our version.
pub(super) async fn prepare(
    link: &mut Link,
    tables: Tables,
    create: bool,
) -> Result<Prepared, Fault> {
    let mut missing = None;
    // Only missing tables lead to the next place. Any other fault is about tables that were found.
    for place in link.places(create) {
        link.look_in(place);
        match prepare_there(link, tables, place.create).await {
            Err(fault) if fault.is_of_missing_tables() => missing = Some(fault),
            Ok(found) => {
                link.leave_path().await?;
                return Ok(found);
            }
            fault => return fault,
        }
    }
    Err(missing.unwrap_or_else(no_answer))
}

/// Like [`prepare`], with retries.
pub(super) async fn prepare_in_time(
    link: &mut Link,
    tables: Tables,
    config: &PostgresConfig,
) -> Result<Prepared, Error> {
    retry!(
        RetryBudget::to_open(config.response_timeout),
        prepare(link, tables, config.create_schema).await
    )
}

async fn prepare_there(link: &mut Link, tables: Tables, create: bool) -> Result<Prepared, Fault> {
    check_server(link).await?;
    match tables {
        Tables::Locks => prepare_locks(link, create).await,
        Tables::Plain => prepare_table(link, &PLAIN, create).await,
        Tables::Advisory => prepare_table(link, &ADVISORY, create).await,
    }
}

/// Checks that the server is suitable.
async fn check_server(link: &mut Link) -> Result<(), Fault> {
    let rows = link.fetch(queries::SERVER, &[]).await?;
    let row = rows.first().ok_or_else(no_answer)?;
    let version: String = get(row, 0)?;
    check_age(&version)?;
    if get::<bool>(row, 2)? {
        // `stuck` and not a configuration error: a failover may end it.
        let text = "the server is a read-only standby: give the address of the primary";
        return Err(Fault::stuck(text));
    }
    if get::<bool>(row, 3)? {
        return Err(Fault::config(
            ConfigIssue::Access,
            "the user's transactions are read-only: set default_transaction_read_only = off",
        ));
    }
    if get::<String>(row, 1)? != "UTF8" {
        return Err(Fault::config(ConfigIssue::ForeignStore, ENCODING));
    }
    Ok(())
}

/// Refuses a server that is too old, by its `server_version_num`.
fn check_age(number: &str) -> Result<(), Error> {
    let version = number.parse::<u32>().unwrap_or(0);
    if version >= OLDEST {
        return Ok(());
    }
    let (major, minor) = (version / 10_000, version % 10_000);
    let version = match major {
        0..=9 => format!("{major}.{}.{}", minor / 100, minor % 100),
        _ => format!("{major}.{minor}"),
    };
    Err(Error::new(
        ErrorKind::Unsupported,
        format!(
            "the server is PostgreSQL {version}, on which dlock's statements are not tested: use \
             PostgreSQL 12 or later"
        ),
    ))
}

/// The tables that the search path leads to.
struct Found {
    tables: i64,
    columns: Option<String>,
    lacking: Option<String>,
    /// The schemas of both.
    schemas: [Option<String>; 2],
}

async fn prepare_locks(link: &mut Link, create: bool) -> Result<Prepared, Fault> {
    let mut found = look(link).await?;
    // Columns are checked before anything is created, so that a foreign table stays unchanged.
    if found.tables < 2 && create {
        check_columns(&found)?;
        check_trust(link, &found.names()).await?;
        make(link).await?;
        found = look(link).await?;
    }
    let [Some(schema), Some(versions)] = found.schemas.clone() else {
        return Err(Fault::config(ConfigIssue::SchemaMissing, MISSING));
    };
    check_columns(&found)?;
    // A session of dlock's own finds the same table, and its settings do not slow this check down.
    if !link.is_pooled() {
        check_trust(link, &found.names()).await?;
    }
    if let Some(what) = &found.lacking {
        let text = format!("the user lacks rights ({what:.200}): {RIGHTS}");
        return Err(Fault::config(ConfigIssue::Access, text));
    }
    // From here on, each statement names the schema. The search path of a session may change later.
    let mut texts = Texts::new([("dlock_lock", &*schema), ("dlock_schema", &*versions)]);
    check_version(link, &mut texts).await?;
    Ok(Prepared { texts, schema })
}

impl Found {
    /// Returns the tables that were found, with their schemas.
    fn names(&self) -> Vec<String> {
        let homes = ["dlock_lock", "dlock_schema"].into_iter().zip(&self.schemas);
        homes.filter_map(|(table, schema)| Some(in_schema(schema.as_deref()?, table))).collect()
    }
}

/// Returns the name of a table with its schema, which is quoted if necessary.
pub(super) fn in_schema(schema: &str, table: &str) -> String {
    format!("{schema}.{table}")
}

/// Refuses tables on which each write would run code of another user with the rights of this one.
async fn check_trust(link: &mut Link, tables: &[String]) -> Result<(), Fault> {
    if tables.is_empty() {
        return Ok(());
    }
    let names = Arg::Texts(tables.iter().map(|table| &**table).collect());
    let rows = link.fetch(queries::TRUST, &[names]).await?;
    let Some(row) = rows.first() else { return Ok(()) };
    let (table, reason, of) = (get::<String>(row, 0)?, get::<String>(row, 1)?, get(row, 2)?);
    Err(Fault::config(ConfigIssue::ForeignStore, distrust(&table, &reason, of)))
}

fn distrust(table: &str, reason: &str, of: &str) -> String {
    match reason {
        "owner" => format!(
            "the table {table} belongs to {of:.63}, whose triggers on it would run with the rights \
             of dlock's user: drop the table if {of:.63} is not trusted; otherwise run ALTER TABLE \
             {table} OWNER TO dlock's user or the owner of the database"
        ),
        "schema" => format!(
            "the schema of the table {table} belongs to {of:.63}, which can replace the table by one \
             whose triggers run with the rights of dlock's user: if {of:.63} is trusted, make dlock's \
             user or the owner of the database the owner of the schema (ALTER SCHEMA ... OWNER TO); \
             otherwise let dlock create its tables in another schema"
        ),
        "type" => format!(
            "a column of the table {table} has the type {of:.63}, which belongs to another user: drop \
             the table, and let dlock create it (dlock.create_schema=true)"
        ),
        "function" => format!(
            "each write to the table {table} runs {of:.63}, which belongs to another user: drop the \
             trigger, policy, constraint, default or index that uses it, or make dlock's user or the \
             owner of the database its owner"
        ),
        _ => format!(
            "{table} is not a plain table, but a view, a temporary table, or one with rules, child \
             tables or foreign keys that refer to it: give the locks a schema of their own, and let \
             dlock create its tables there (dlock.create_schema=true)"
        ),
    }
}

/// Returns the tables that the search path leads to.
///
/// `to_regclass` also finds tables whose creation was committed after the statement had taken its
/// snapshot, and this snapshot lacks their schemas. The next statement shows them.
async fn look(link: &mut Link) -> Result<Found, Fault> {
    let found = look_once(link).await?;
    match found.schemas {
        [Some(_), Some(_)] => Ok(found),
        _ if found.tables == 0 => Ok(found),
        _ => look_once(link).await,
    }
}

async fn look_once(link: &mut Link) -> Result<Found, Fault> {
    let rows = link.fetch(queries::TABLES, &[]).await?;
    let row = rows.first().ok_or_else(no_answer)?;
    Ok(Found {
        tables: get(row, 0)?,
        columns: get(row, 1)?,
        lacking: get(row, 2)?,
        schemas: [get(row, 3)?, get(row, 4)?],
    })
}

fn check_columns(found: &Found) -> Result<(), Fault> {
    match found.columns.as_deref() {
        None | Some(queries::COLUMNS) => Ok(()),
        Some(_) => Err(Fault::config(ConfigIssue::ForeignStore, NOT_OURS)),
    }
}

async fn make(link: &mut Link) -> Result<(), Fault> {
    link.create(queries::SCHEMA, &["dlock_lock", "dlock_schema"]).await.map_err(|fault| {
        // Another program created them at the same moment. The retry finds them.
        match code_of(&fault.error).as_deref() {
            Some("23505" | "42P07" | "42710") => fault.with_remedy(Remedy::Retry),
            _ => fault,
        }
    })
}

async fn check_version(link: &mut Link, texts: &mut Texts) -> Result<(), Fault> {
    let rows = link.fetch_in(texts, queries::VERSION).await?;
    let text = rows.first().map(|row| get::<Option<String>>(row, 0)).transpose()?.flatten();
    let ours = queries::SCHEMA_VERSION;
    match text.as_deref().map(str::parse::<i64>) {
        Some(Ok(version)) if version == ours => Ok(()),
        Some(Ok(newer)) if newer > ours => Err(Fault::newer(newer, ours)),
        Some(Ok(older)) => Err(Fault::config(
            ConfigIssue::SchemaMissing,
            format!(
                "the tables have version {older}, this program needs {ours}: stop all programs \
                 that use them, drop both, and create them again, by dlock.create_schema=true or \
                 PostgresConfig::SCHEMA"
            ),
        )),
        _ => Err(Fault::config(ConfigIssue::ForeignStore, NOT_OURS)),
    }
}

/// The one table of a mode.
struct ModeTable {
    name: &'static str,
    /// The query for the rights on it.
    rights: &'static str,
    schema: &'static str,
    /// The constant of the configuration with that schema.
    constant: &'static str,
}

const PLAIN: ModeTable = ModeTable {
    name: "dlock_plain",
    rights: queries::PLAIN_RIGHTS,
    schema: queries::PLAIN_SCHEMA,
    constant: "PLAIN_SCHEMA",
};

const ADVISORY: ModeTable = ModeTable {
    name: "dlock_advisory",
    rights: queries::ADVISORY_RIGHTS,
    schema: queries::ADVISORY_SCHEMA,
    constant: "ADVISORY_SCHEMA",
};

async fn prepare_table(
    link: &mut Link,
    table: &ModeTable,
    create: bool,
) -> Result<Prepared, Fault> {
    let name = table.name;
    let mut found = rights(link, table.rights).await?;
    if found.0.is_none() && create {
        link.create(table.schema, &[name]).await?;
        found = rights(link, table.rights).await?;
    }
    match found {
        (Some(true), Some(schema)) => {
            check_trust(link, &[in_schema(&schema, name)]).await?;
            Ok(Prepared { texts: Texts::new([(name, &*schema)]), schema })
        }
        (Some(false), _) => Err(Fault::config(
            ConfigIssue::Access,
            format!("the user lacks rights: grant SELECT, INSERT, UPDATE and DELETE on {name}"),
        )),
        (None, _) | (Some(true), None) => Err(Fault::config(
            ConfigIssue::SchemaMissing,
            format!(
                "the search path does not lead to a table {name}: open with create_schema \
                 (dlock.create_schema=true), or run {} of PostgresConfig",
                table.constant
            ),
        )),
    }
}

/// Returns whether the user has all rights on a table, `None` if there is no table, and its schema:
/// see [`look`].
async fn rights(
    link: &mut Link,
    query: &'static str,
) -> Result<(Option<bool>, Option<String>), Fault> {
    match rights_once(link, query).await? {
        (Some(_), None) => rights_once(link, query).await,
        found => Ok(found),
    }
}

async fn rights_once(
    link: &mut Link,
    query: &'static str,
) -> Result<(Option<bool>, Option<String>), Fault> {
    let rows = link.fetch(query, &[]).await?;
    rows.first().map_or(Ok((None, None)), |row| Ok((get(row, 0)?, get(row, 1)?)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_old_server_is_refused_with_its_version() {
        for (number, version) in
            [("110022", "PostgreSQL 11.22,"), ("90624", "PostgreSQL 9.6.24,"), ("", "PostgreSQL 0")]
        {
            let error = check_age(number).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::Unsupported);
            for part in [version, "12 or later"] {
                assert!(error.to_string().contains(part), "{error}");
            }
        }
        for number in ["120000", "150018", "180006"] {
            assert!(check_age(number).is_ok(), "{number}");
        }
    }
}

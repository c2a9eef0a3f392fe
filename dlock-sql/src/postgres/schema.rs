//! Whether the server is fit and has dlock's tables, and making them when asked to.

use dlock_core::{ConfigIssue, Error, ErrorKind};

use super::{
    conn::get,
    error::{ENCODING, MISSING, lacking, not_ours, standby},
    link::Link,
    queries,
};
use crate::{
    engine::{Cure, Fault},
    server::Texts,
};

/// The oldest server: 12.0.
const OLDEST: u32 = 120_000;

/// What the search path leads to.
struct Tables {
    found: i64,
    columns: Option<String>,
    lacking: Option<String>,
    /// The schemas of both.
    schemas: [Option<String>; 2],
}

/// A database that will do.
pub(super) struct Prepared {
    /// The statements, with the tables where they have been found.
    pub(super) texts: Texts,
    /// The schema in which that is.
    pub(super) schema: String,
}

/// Makes sure that the server will do and the tables are there, in our version.
pub(super) async fn prepare(link: &mut Link, create: bool) -> Result<Prepared, Fault> {
    let mut missing = None;
    for place in link.places(create) {
        link.look_in(place);
        match prepare_there(link, place.create).await {
            Err(fault) if is_missing(&fault) => missing = Some(fault),
            found => return found,
        }
    }
    Err(missing.unwrap_or_else(no_answer))
}

pub(super) fn is_missing(fault: &Fault) -> bool {
    fault.error.kind() == ErrorKind::Config(ConfigIssue::SchemaMissing)
}

async fn prepare_there(link: &mut Link, create: bool) -> Result<Prepared, Fault> {
    check_server(link).await?;
    let mut tables = tables(link).await?;
    if tables.found < 2 && create {
        check_columns(&tables)?;
        make(link).await?;
        tables = self::tables(link).await?;
    }
    if tables.found < 2 {
        return Err(Error::config(ConfigIssue::SchemaMissing, MISSING).into());
    }
    check_columns(&tables)?;
    if let Some(what) = &tables.lacking {
        return Err(lacking(what).into());
    }
    check_version(link).await?;
    let homes = ["dlock_lock", "dlock_schema"].into_iter().zip(&tables.schemas);
    let texts = Texts::new(homes.filter_map(|(table, schema)| Some((table, schema.as_deref()?))));
    let schema = tables.schemas[0].clone().unwrap_or_default();
    Ok(Prepared { texts, schema })
}

/// Makes sure that the server will do.
pub(super) async fn check_server(link: &mut Link) -> Result<(), Fault> {
    let rows = link.fetch(queries::SERVER, &[]).await?;
    let row = rows.first().ok_or_else(no_answer)?;
    let version: String = get(row, 0)?;
    if version.parse::<u32>().unwrap_or(0) < OLDEST {
        let text = format!("the server's version is {version:.20}: take PostgreSQL 12 or later");
        return Err(Error::new(ErrorKind::Unsupported, text).into());
    }
    if get::<bool>(row, 2)? {
        return Err(standby().into());
    }
    if get::<bool>(row, 3)? {
        return Err(Error::config(
            ConfigIssue::Access,
            "the user's transactions are read-only: set default_transaction_read_only = off",
        )
        .into());
    }
    if get::<String>(row, 1)? != "UTF8" {
        return Err(Error::config(ConfigIssue::ForeignStore, ENCODING).into());
    }
    Ok(())
}

async fn tables(link: &mut Link) -> Result<Tables, Fault> {
    let rows = link.fetch(queries::TABLES, &[]).await?;
    let row = rows.first().ok_or_else(no_answer)?;
    Ok(Tables {
        found: get(row, 0)?,
        columns: get(row, 1)?,
        lacking: get(row, 2)?,
        schemas: [get(row, 3)?, get(row, 4)?],
    })
}

fn check_columns(tables: &Tables) -> Result<(), Fault> {
    match tables.columns.as_deref() {
        None | Some(queries::COLUMNS) => Ok(()),
        Some(_) => Err(not_ours().into()),
    }
}

async fn make(link: &mut Link) -> Result<(), Fault> {
    link.run_script(queries::SCHEMA).await.map_err(|fault| {
        // Somebody else made them at the same moment, by hand.
        let source = std::error::Error::source(&fault.error);
        let error = source.and_then(|source| source.downcast_ref::<sqlx::Error>());
        let code = error.and_then(sqlx::Error::as_database_error).and_then(|error| error.code());
        match code.as_deref() {
            Some("23505" | "42P07" | "42710") => Fault { error: fault.error, cure: Cure::Retry },
            _ => fault,
        }
    })
}

async fn check_version(link: &mut Link) -> Result<(), Fault> {
    let rows = link.fetch(queries::VERSION, &[]).await?;
    let text = rows.first().map(|row| get::<Option<String>>(row, 0)).transpose()?.flatten();
    let ours = queries::SCHEMA_VERSION;
    match text.as_deref().map(str::parse::<i64>) {
        Some(Ok(version)) if version == ours => Ok(()),
        Some(Ok(newer)) if newer > ours => Err(Error::config(
            ConfigIssue::SchemaNewer,
            format!(
                "the tables have version {newer}, this program knows {ours}: run the same version \
                 of dlock everywhere"
            ),
        )
        .into()),
        Some(Ok(older)) => Err(Error::config(
            ConfigIssue::SchemaMissing,
            format!(
                "the tables have version {older}, this program needs {ours}: stop all that use \
                 them, drop both, and have them made anew, by dlock.create_schema=true or \
                 PostgresConfig::SCHEMA"
            ),
        )
        .into()),
        _ => Err(not_ours().into()),
    }
}

pub(super) fn no_answer() -> Fault {
    Error::new(ErrorKind::Protocol, "the server answered without a row: is it PostgreSQL?").into()
}

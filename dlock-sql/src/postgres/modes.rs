//! The modes that are not dlock's own: the plain schemes, and locks of a session.

use std::sync::Arc;

use dlock_core::{Clock, ConfigIssue, DynBackend, Error, Exclusion, Guarantees, Scope};
use tokio::runtime::Handle;

use super::{
    PostgresConfig,
    advisory::{self, Advisory},
    conn::{PgConn, get},
    link::Link,
    plain, queries,
    schema::{Prepared, check_server, is_missing, no_answer},
    source::Source,
    statement::Arg,
};
use crate::{
    engine::{Fault, Kept, Patience},
    plain::{PlainStore, Scheme},
    server::{Texts, value},
};

/// Opens the plain mode.
pub(super) async fn open_plain(
    config: &PostgresConfig,
    scheme: Scheme,
    runtime: &Handle,
    store: Arc<str>,
) -> Result<DynBackend, Error> {
    let mut link = Link::new(config.own(), config.travel(), config.patience);
    prepare(&mut link, config, "dlock_plain", plain::SCHEMA).await?;
    let kept = Kept::new(link.keeps(queries::PLAIN_KEEPS).await.map_err(|fault| fault.error)?);
    link.watch(kept.clone());
    let database = Guarantees::WEAKEST.with_exclusion(Exclusion::Restart);
    let database = database.with_scope(Scope::Network);
    Ok(Arc::new(PlainStore::start(
        runtime,
        store,
        (database, kept),
        PgConn(link),
        scheme,
        plain::STATEMENTS,
        config.patience,
    )))
}

/// Opens the advisory mode.
pub(super) async fn open_advisory(
    config: &PostgresConfig,
    runtime: &Handle,
    store: Arc<str>,
) -> Result<DynBackend, Error> {
    if config.driver.pooler || config.plain.is_some() {
        return Err(value(
            "dlock.advisory goes with neither dlock.pooler nor dlock.plain: it needs a connection \
             of its own to the server, and has no table but one for tokens",
        ));
    }
    let mut link = Link::new(config.own(), config.travel(), config.patience);
    prepare(&mut link, config, "dlock_advisory", advisory::SCHEMA).await?;
    check_pooler(&mut link, config.own(), config).await?;
    let (patience, retention) = (config.patience, config.retention);
    Ok(Arc::new(Advisory::start(runtime, store, link, patience, retention)))
}

/// Checks the server, and makes the table where that is asked for.
async fn prepare(
    link: &mut Link,
    config: &PostgresConfig,
    table: &'static str,
    schema: &'static str,
) -> Result<(), Error> {
    let until = Clock::Boot.now().saturating_add(config.patience);
    let mut patience = Patience::until(until);
    loop {
        match prepare_once(link, config.create_schema, table, schema).await {
            Ok(prepared) => {
                link.name_tables(prepared.texts);
                return Ok(());
            }
            Err(fault) => patience.after(fault).await?,
        }
    }
}

/// Checks the server and the table of the plain mode.
pub(super) async fn prepare_plain(link: &mut Link) -> Result<Prepared, Fault> {
    prepare_once(link, false, "dlock_plain", plain::SCHEMA).await
}

async fn prepare_once(
    link: &mut Link,
    create: bool,
    table: &'static str,
    schema: &'static str,
) -> Result<Prepared, Fault> {
    let mut missing = None;
    for place in link.places(create) {
        link.look_in(place);
        match prepare_there(link, place.create, table, schema).await {
            Err(fault) if is_missing(&fault) => missing = Some(fault),
            found => return found,
        }
    }
    Err(missing.unwrap_or_else(no_answer))
}

async fn prepare_there(
    link: &mut Link,
    create: bool,
    table: &'static str,
    schema: &'static str,
) -> Result<Prepared, Fault> {
    check_server(link).await?;
    let mut table_is = look(link, table).await?;
    if table_is.rights.is_none() && create {
        link.run_script(schema).await?;
        table_is = look(link, table).await?;
    }
    match table_is.rights {
        Some(true) => {
            let home = table_is.schema.as_deref().map(|schema| (table, schema));
            let texts = Texts::new(home);
            Ok(Prepared { texts, schema: table_is.schema.unwrap_or_default() })
        }
        Some(false) => Err(Error::config(
            ConfigIssue::Access,
            format!("the user lacks rights: grant SELECT, INSERT, UPDATE and DELETE on {table}"),
        )
        .into()),
        None => Err(Error::config(
            ConfigIssue::SchemaMissing,
            format!(
                "the search path does not lead to a table {table}: open with create_schema \
                 (dlock.create_schema=true), or run {} of PostgresConfig",
                if table == "dlock_plain" { "PLAIN_SCHEMA" } else { "ADVISORY_SCHEMA" }
            ),
        )
        .into()),
    }
}

/// What is known of a table.
struct Table {
    /// Whether the user has all rights on it; `None` without it.
    rights: Option<bool>,
    /// Its schema, quoted where it has to be.
    schema: Option<String>,
}

async fn look(link: &mut Link, table: &'static str) -> Result<Table, Fault> {
    let rows = link.fetch(TABLE, &[Arg::Text(table)]).await?;
    match rows.first() {
        Some(row) => Ok(Table { rights: get(row, 0)?, schema: get(row, 1)? }),
        None => Ok(Table { rights: None, schema: None }),
    }
}

const TABLE: &str = "SELECT has_table_privilege(t.it, 'SELECT')\n\
     AND has_table_privilege(t.it, 'INSERT')\n\
     AND has_table_privilege(t.it, 'UPDATE')\n\
     AND has_table_privilege(t.it, 'DELETE'),\n\
     (SELECT quote_ident(n.nspname) FROM pg_class AS c\n\
     JOIN pg_namespace AS n ON n.oid = c.relnamespace WHERE c.oid = t.it)\n\
     FROM (VALUES (to_regclass($1::text))) AS t (it)";

/// Two connections to the server have a process each there; behind a transaction pooler they may
/// share one.
async fn check_pooler(
    link: &mut Link,
    source: Source,
    config: &PostgresConfig,
) -> Result<(), Error> {
    let mut other = Link::new(source, config.travel(), config.patience);
    let process = async |link: &mut Link| -> Result<i64, Fault> {
        let rows = link.fetch(advisory::PROCESS, &[]).await?;
        rows.first().map_or(Ok(0), |row| get(row, 0))
    };
    let ours = process(link).await.map_err(|fault| fault.error)?;
    let others = process(&mut other).await.map_err(|fault| fault.error)?;
    other.close().await;
    if ours != others {
        return Ok(());
    }
    Err(value(
        "dlock.advisory does not work through a pooler, which this is: two connections share a \
         session. Give the address of the server",
    ))
}

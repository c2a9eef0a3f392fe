//! The modes that do not use dlock's own table: the plain schemes, and locks of a session.

use std::sync::Arc;

use dlock_core::{DynBackend, Error, Fencing, Guarantees, OrphanRelease, Scope};
use tokio::runtime::Handle;

use super::{
    PostgresConfig,
    advisory::{self, Session},
    conn::PgConn,
    link::Link,
    plain::STATEMENTS,
    queries,
    schema::{Tables, prepare_in_time},
    source::Source,
    statement::get,
};
use crate::{
    engine::{DurabilityMonitor, Fault},
    plain::{Form, MutexStore, Scheme, start},
    server::value,
};

/// Opens the plain mode.
pub(super) async fn open_plain(
    config: &PostgresConfig,
    scheme: Scheme,
    runtime: &Handle,
    store: Arc<str>,
) -> Result<DynBackend, Error> {
    let mut link = Link::new(config.own(), config.transport(), config.response_timeout);
    let prepared = prepare_in_time(&mut link, Tables::Plain, config).await?;
    link.name_tables(prepared.texts);
    let durability = DurabilityMonitor::new(link.is_durable(queries::PLAIN_IS_DURABLE).await?);
    link.watch(durability.clone());
    let (conn, response_timeout) = (PgConn(link), config.response_timeout);
    Ok(Arc::new(start(runtime, store, durability, conn, scheme, STATEMENTS, response_timeout)))
}

/// Opens the advisory mode.
pub(super) async fn open_advisory(
    config: &PostgresConfig,
    runtime: &Handle,
    store: Arc<str>,
) -> Result<DynBackend, Error> {
    if config.driver.pooler || config.plain.is_some() {
        return Err(value(
            "dlock.advisory can't be combined with dlock.pooler or dlock.plain: use one of them",
        ));
    }
    let mut link = Link::new(config.own(), config.transport(), config.response_timeout);
    let prepared = prepare_in_time(&mut link, Tables::Advisory, config).await?;
    link.name_tables(prepared.texts);
    check_pooler(&mut link, config.own(), config).await?;
    let (response_timeout, retention) = (config.response_timeout, config.retention);
    let form = Form {
        name: "the advisory mode (dlock.advisory)",
        together: usize::MAX,
        promises: Box::new(|| {
            Guarantees::WEAKEST
                .with_fencing(Fencing::Clock)
                .with_orphan_release(OrphanRelease::SessionEnd)
                .with_scope(Scope::Network)
        }),
    };
    Ok(Arc::new(MutexStore::start(runtime, store, form, response_timeout, |requests| {
        Session::new(link, requests, response_timeout, retention).run()
    })))
}

/// Checks whether a pooler shares connections: two connections have one server process each, but
/// behind a transaction pooler they may share one.
async fn check_pooler(
    link: &mut Link,
    source: Source,
    config: &PostgresConfig,
) -> Result<(), Error> {
    let mut other = Link::new(source, config.transport(), config.response_timeout);
    let process = async |link: &mut Link| -> Result<i64, Fault> {
        let rows = link.fetch(advisory::PROCESS, &[]).await?;
        rows.first().map_or(Ok(0), |row| get(row, 0))
    };
    let ours = process(link).await?;
    let others = process(&mut other).await?;
    other.close().await;
    if ours != others {
        return Ok(());
    }
    Err(value(
        "dlock.advisory does not work through a pooler, and here two connections share a session: \
         give the address of the server",
    ))
}

//! The opening of a database: connecting, and determining the guarantees.

use std::sync::Arc;

use dlock_core::{ConfigIssue, Error};
use tokio::runtime::Handle;

use super::{
    PostgresConfig,
    answer::get,
    conn::PgConn,
    link::Link,
    listener::PostgresListener,
    queries,
    schema::{Prepared, Tables, prepare, prepare_in_time},
    source::Source,
};
use crate::engine::{Connections, DurabilityMonitor, sample};

/// An open database.
pub(super) struct Opened {
    pub(super) connections: Connections<PgConn, PostgresListener>,
    /// The engine's notification channel id. 0 if it has no listener.
    pub(super) home: u32,
    /// Whether commits survive a crash of the server.
    pub(super) durability: DurabilityMonitor,
}

/// Opens the database. Several processes may do so at once, even the first time.
pub(super) async fn open(config: &PostgresConfig, runtime: &Handle) -> Result<Opened, Error> {
    let link = |source: Source| Link::new(source, config.transport(), config.response_timeout);
    let mut first = link(config.shared());
    let Prepared { mut texts, .. } = prepare_in_time(&mut first, Tables::Locks, config).await?;
    let mut sessions: Arc<[String]> = Arc::default();
    let mut is_durable = true;
    if config.driver.pool.is_some() {
        let mut own = link(config.own()).beside(&first);
        let found = check_same_table(&mut first, &mut own).await?;
        // The first pooled connection may have had other settings, and the compared one may be
        // another.
        let own = prepare(&mut own, Tables::Locks, false).await?;
        texts = own.texts;
        is_durable = !found.iter().any(|session| session.starts_with("off "));
        sessions = Arc::from(found);
    }
    first.name_tables(texts.clone());
    first.expect(sessions.clone());
    is_durable &= first.is_durable(queries::IS_DURABLE).await?;
    let durability = DurabilityMonitor::new(is_durable);
    let shares = link(config.own()).beside(&first);
    let ready = |mut link: Link| {
        link = link.beside(&shares);
        link.name_tables(texts.clone());
        link.expect(sessions.clone());
        link.watch(durability.clone());
        link
    };
    let first = ready(first);
    let (listener, home) = match listener(config, runtime) {
        Some((listener, home)) => (Some(listener), home),
        None => (None, 0),
    };
    let mut first = PgConn(first);
    let sample = sample(&mut first).await;
    let others = (1..config.connections).map(|_| PgConn(ready(link(config.shared()))));
    let connections = Connections {
        writers: std::iter::once(first).chain(others).collect(),
        renewer: Some(PgConn(ready(link(config.own())))),
        reader: PgConn(ready(link(config.shared()))),
        listener,
        sample,
    };
    Ok(Opened { connections, home, durability })
}

/// Checks that pooled and dedicated connections find the same table: dedicated connections lack the
/// settings that the application makes after connecting. Returns the settings of both.
async fn check_same_table(pooled: &mut Link, own: &mut Link) -> Result<Vec<String>, Error> {
    let (mut found, mut sessions) = (Vec::new(), Vec::<String>::new());
    for link in [own, pooled] {
        let rows = link.fetch(queries::WHICH, &[]).await?;
        found.push(match rows.first() {
            Some(row) => {
                sessions.push(get(row, 2)?);
                Some((get::<String>(row, 0)?, get::<Option<i64>>(row, 1)?))
            }
            None => None,
        });
    }
    if sessions.iter().any(|session| session.split(' ').nth(1) != Some("UTF8")) {
        return Err(Error::config(
            ConfigIssue::Access,
            "the pool's connections read names in another encoding: leave their client_encoding at \
             UTF8, or give dlock connections of its own",
        ));
    }
    if found[0] == found[1] {
        return Ok(sessions);
    }
    Err(Error::config(
        ConfigIssue::ForeignStore,
        "the pool's connections find another table dlock_lock than a connection that is opened \
         with the pool's options: set search_path, role and database in the options, not after \
         connecting",
    ))
}

/// Returns a listener, which connects when the first claim waits, and its home. Behind a pooler,
/// waiters poll.
fn listener(config: &PostgresConfig, runtime: &Handle) -> Option<(PostgresListener, u32)> {
    let home = rand::random_range(1..=u32::MAX);
    config.listens().then(|| (PostgresListener::new(config.clone(), home, runtime.clone()), home))
}

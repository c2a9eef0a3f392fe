//! The backend, and its factory for URLs.

use std::sync::Arc;

use dlock_core::{ConfigIssue, DynBackend, Error, Factory, Scope, WakeUp, current_io_runtime};
use tokio::{runtime::Handle, sync::oneshot};

use super::{
    PostgresConfig,
    advisory::open_advisory,
    config::OPTIONS,
    conn::PgConn,
    link::Link,
    listener::PostgresListener,
    plain::open_plain,
    queries,
    schema::{Tables, prepare, prepare_in_time},
    source::Source,
    statement::get,
};
use crate::{
    engine::{Connections, DurabilityMonitor, Engine, gone, guarantees, sample, spawn},
    server::needs_io,
};

/// The PostgreSQL backend, for [`Registry`](dlock_core::Registry).
pub const POSTGRES: Factory =
    Factory::new("PostgreSQL", &["postgres", "postgresql"], OPTIONS, |url| {
        Box::pin(async move {
            let config = PostgresConfig::from_url(&url)?;
            Postgres::open(config).await
        })
    });

/// Locks in a PostgreSQL database (12 or later), for processes on many machines.
///
/// Two statements take and release a free lock. `NOTIFY` notifies a waiter of its grant, and an
/// occasional poll finds the grant if the notification is lost. Give the locks a separate database
/// in the cluster: a transaction that stays open for long in the same database slows them down.
///
/// dlock looks for the tables along the search path once: each statement names the schema in which
/// they were found when the store was opened. Leases expire by the server's clock. If that clock is
/// set forward, leases expire early. Then only [fencing tokens](dlock_core::FencingToken) protect
/// the resource. The same holds if a standby takes over that lacks the last commits of its primary;
/// `synchronous_standby_names` prevents this.
#[derive(Debug)]
#[non_exhaustive]
pub enum Postgres {}

impl Postgres {
    /// Connects, and starts the tasks that use the connections. The tasks end when the backend is
    /// dropped.
    ///
    /// # Errors
    /// `Config`: `Runtime` outside a tokio runtime, and on a runtime without timers or I/O;
    /// `OptionValue`, `SchemaMissing`, `SchemaNewer`, `ForeignStore` or `Access` if the database
    /// can't be used. Each message names the remedy. `Unsupported` for an older server.
    /// `Unavailable` if the server can't be reached, or is a standby.
    pub async fn open(config: PostgresConfig) -> Result<DynBackend, Error> {
        let store: Arc<str> = config.store.as_str().into();
        let with_context = |error: Error| error.during("open").with_store(&store);
        let runtime = current_io_runtime(needs_io).map_err(with_context)?;
        let (reply, answer) = oneshot::channel();
        // In a task, since the driver must not be dropped half-way or outside the runtime.
        spawn(&runtime.clone(), {
            let store: Arc<str> = config.driver.opened_store().into();
            async move {
                // The caller may have stopped waiting.
                let _ = reply.send(start(config, &runtime, &store).await);
            }
        });
        answer.await.unwrap_or_else(|_| Err(gone())).map_err(with_context)
    }
}

async fn start(
    config: PostgresConfig,
    runtime: &Handle,
    database: &str,
) -> Result<DynBackend, Error> {
    let config = config.checked().and_then(PostgresConfig::checked_durability)?;
    if config.driver.advisory {
        return open_advisory(&config, runtime, database).await;
    }
    if let Some(scheme) = config.plain {
        return open_plain(&config, scheme, runtime, database).await;
    }
    let opened = open(&config, runtime, database).await?;
    let wake_up = if opened.home == 0 { WakeUp::Poll } else { WakeUp::Push };
    let guarantees = guarantees(Scope::Network, wake_up);
    let settings = config.settings(queries::TICK, opened.home);
    Ok(Arc::new(Engine::start(
        runtime,
        opened.store,
        guarantees,
        opened.connections,
        settings,
        opened.durability,
    )))
}

/// An open database.
pub(super) struct Opened {
    /// The name of the store.
    pub(super) store: Arc<str>,
    pub(super) connections: Connections<PgConn, PostgresListener>,
    /// The engine's notification channel id. 0 if it has no listener.
    pub(super) home: u32,
    /// Whether commits survive a crash of the server.
    pub(super) durability: DurabilityMonitor,
}

/// Opens the database. Several processes may do so at once, even the first time.
pub(super) async fn open(
    config: &PostgresConfig,
    runtime: &Handle,
    database: &str,
) -> Result<Opened, Error> {
    let link = |source: Source| Link::new(source, config.transport(), config.response_timeout);
    let mut first = link(config.shared());
    let prepared = prepare_in_time(&mut first, Tables::Locks, config).await?;
    let store = prepared.store(database);
    let mut texts = prepared.texts;
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
        renewer: Some(PgConn(ready(link(config.own()).or_other()))),
        reader: PgConn(ready(link(config.shared()))),
        listener,
        sample,
    };
    Ok(Opened { store, connections, home, durability })
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

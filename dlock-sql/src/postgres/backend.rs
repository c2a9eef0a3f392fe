//! The backend, and its factory for URLs.

use std::sync::Arc;

use dlock_core::{DynBackend, Error, Factory, Scope, WakeUp, current_io_runtime};
use tokio::{runtime::Handle, sync::oneshot};

use super::{
    PostgresConfig,
    modes::{open_advisory, open_plain},
    open::open,
    queries, url,
};
use crate::{
    engine::{Engine, gone, guarantees, spawn},
    server::needs_io,
};

/// The PostgreSQL backend, for [`Registry`](dlock_core::Registry).
pub const POSTGRES: Factory =
    Factory::new("PostgreSQL", &["postgres", "postgresql"], url::OPTIONS, |url| {
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
            let store = store.clone();
            async move {
                // The caller may have stopped waiting.
                let _ = reply.send(start(config, &runtime, store).await);
            }
        });
        answer.await.unwrap_or_else(|_| Err(gone())).map_err(with_context)
    }
}

async fn start(
    config: PostgresConfig,
    runtime: &Handle,
    store: Arc<str>,
) -> Result<DynBackend, Error> {
    let config = config.checked().and_then(PostgresConfig::checked_durability)?;
    if config.driver.advisory {
        return open_advisory(&config, runtime, store).await;
    }
    if let Some(scheme) = config.plain {
        return open_plain(&config, scheme, runtime, store).await;
    }
    let opened = open(&config, runtime).await?;
    let wake_up = if opened.home == 0 { WakeUp::Poll } else { WakeUp::Push };
    let guarantees = guarantees(Scope::Network, wake_up);
    let settings = config.settings(queries::TICK, opened.home);
    Ok(Arc::new(Engine::start(
        runtime,
        store,
        guarantees,
        opened.connections,
        settings,
        opened.durability,
    )))
}

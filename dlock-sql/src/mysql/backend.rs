//! The backend and how it is found by URL.

use std::sync::Arc;

use dlock_core::{DynBackend, Error, Factory, Scope, WakeUp, current_io_runtime};

use super::{config::MysqlConfig, open::open, plain::open_plain, queries};
use crate::{
    engine::{Engine, Kept, guarantees},
    server::needs_io,
};

/// The MySQL and MariaDB backend, for [`Registry`](dlock_core::Registry).
pub const MYSQL: Factory =
    Factory::new("MySQL and MariaDB", &["mysql", "mariadb"], MysqlConfig::OPTIONS, |url| {
        Box::pin(async move {
            let config = MysqlConfig::from_url(&url)?;
            Mysql::open(config).await
        })
    });

/// Locks in a MySQL or MariaDB database.
///
/// It needs MariaDB 10.6 or MySQL 8.0, and InnoDB. The tests run on MariaDB. MySQL itself is not
/// tested: what is done for it is done by its documentation.
///
/// With MariaDB two statements take and release a free lock; MySQL can't return what it writes, so
/// there each needs a second one. A process that waits for another one's lock looks at its row
/// every 0.5 to 20 ms, the longer the wait the more rarely; one that nobody waits in never does.
///
/// # Which server
///
/// All processes must use one and the same server, or a proxy that leads to one, and it must be the
/// one that is written to. A replica is refused.
///
/// What the server has answered survives its crash if `innodb_flush_log_at_trx_commit` is 1, as it
/// is by default, `sync_binlog` is 1 where there is a binary log, and `innodb_flush_method` and
/// `innodb_doublewrite` leave nothing out. Otherwise, and on a node of Galera or of a replication
/// group, the locks promise no [exclusion](dlock_core::Exclusion) over a crash. These settings are
/// read again every ten seconds, while locks are used.
/// When a replica is made the primary, what it had not received is gone.
///
/// The user needs `SELECT`, `INSERT`, `UPDATE` and `DELETE` on `dlock_lock` and `SELECT` on
/// `dlock_schema`; with `create_schema`, where the tables are missing, also `CREATE` and `INSERT`
/// in the database.
///
/// Leases end by the server's real-time clock. When that is set forward, leases end early: then
/// only [fencing tokens](dlock_core::FencingToken) protect what the lock protects.
///
/// # What is not immediate
///
/// A connection that breaks is made again by the next operation that needs it. A server that does
/// not answer is noticed after `dlock.response_timeout`; what was sent to it may still happen.
#[derive(Debug)]
#[expect(clippy::exhaustive_enums, reason = "it has no values: it is a name for a function")]
pub enum Mysql {}

impl Mysql {
    /// Connects and starts the tasks that work on the connections, which end when the backend is
    /// dropped.
    ///
    /// # Errors
    /// `Config`: `Runtime` outside a tokio runtime, and on one without timers or I/O;
    /// `SchemaMissing`, `SchemaNewer`, `ForeignStore` or `Access` when the database can't be used,
    /// `OptionValue` when the configuration can't; each names its remedy. `Unsupported` when the
    /// server is too old. `Unavailable` when it can't be reached.
    pub async fn open(config: MysqlConfig) -> Result<DynBackend, Error> {
        let store: Arc<str> = config.store.as_str().into();
        let place = |error: Error| error.during("open").with_store(&store);
        let config = config.supported().map_err(place)?;
        let runtime = current_io_runtime(needs_io).map_err(place)?;
        if let Some(scheme) = config.plain {
            return open_plain(&config, scheme, &runtime, store.clone()).await.map_err(place);
        }
        let opened = open(&config).await.map_err(place)?;
        let guarantees = guarantees(Scope::Network, WakeUp::Poll);
        let settings = config.settings(queries::TICK, 0);
        let kept = Kept::new(opened.keeps);
        Ok(Arc::new(Engine::start(&runtime, store, guarantees, opened.links, settings, kept)))
    }
}

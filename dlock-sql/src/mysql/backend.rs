//! The backend, and its factory for URLs.

use std::sync::Arc;

use dlock_core::{ConfigIssue, DynBackend, Error, Factory, Scope, WakeUp, current_io_runtime};

use super::{
    check::{Server, check_server},
    config::MysqlConfig,
    conn::MysqlConn,
    connector::{Connector, Source},
    plain::open_plain,
    queries,
    schema::{Tables, prepare},
};
use crate::{
    engine::{
        Connections, DurabilityMonitor, Engine, Fault, NoListener, RetryBudget, guarantees, retry,
        sample,
    },
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
/// tested: the parts for it follow its documentation.
///
/// On MariaDB two statements take and release a free lock. MySQL can't return the rows that it
/// writes, so there each needs a second statement. A process that waits for a lock of another
/// process polls its row every 0.5 to 20 ms, less often in a longer wait. A process without waiters
/// never polls.
///
/// # Which server
///
/// All processes must use the same server, or a proxy in front of it, and it must be the primary. A
/// replica is refused.
///
/// Answered writes survive a crash of the server if `innodb_flush_log_at_trx_commit` is 1, as it is
/// by default, if `sync_binlog` is 1 on a server with a binary log, and if `innodb_flush_method`
/// and `innodb_doublewrite` disable no protection. Otherwise, and on a node of Galera or of a
/// replication group, the locks promise no [exclusion](dlock_core::Exclusion) across a crash. dlock
/// reads these settings again every ten seconds, while locks are used. If a replica becomes the
/// primary, the writes that it had not received are lost.
///
/// The user needs `SELECT`, `INSERT`, `UPDATE` and `DELETE` on `dlock_lock` and `SELECT` on
/// `dlock_schema`. With `create_schema`, if the tables are missing, the user also needs `CREATE`
/// and `INSERT` in the database.
///
/// Leases expire by the server's real-time clock. If that clock is set forward, leases expire
/// early. Then only [fencing tokens](dlock_core::FencingToken) protect the resource.
///
/// # What is not immediate
///
/// If a connection breaks, the next operation that needs it reconnects. dlock notices a server that
/// does not answer after `dlock.response_timeout`; requests to it may still take effect.
#[derive(Debug)]
#[expect(clippy::exhaustive_enums, reason = "it has no values: it is a name for a function")]
pub enum Mysql {}

impl Mysql {
    /// Connects, and starts the tasks that use the connections. The tasks end when the backend is
    /// dropped.
    ///
    /// # Errors
    /// `Config`: `Runtime` outside a tokio runtime, and on a runtime without timers or I/O;
    /// `SchemaMissing`, `SchemaNewer`, `ForeignStore` or `Access` if the database can't be used;
    /// `OptionValue` if the configuration is invalid. Each message names the remedy. `Unsupported`
    /// if the server is too old. `Unavailable` if it can't be reached.
    pub async fn open(config: MysqlConfig) -> Result<DynBackend, Error> {
        let store: Arc<str> = config.store.as_str().into();
        let with_context = |error: Error| error.during("open").with_store(&store);
        let config = config.supported().map_err(with_context)?;
        let runtime = current_io_runtime(needs_io).map_err(with_context)?;
        if let Some(scheme) = config.plain {
            return open_plain(&config, scheme, &runtime, store.clone())
                .await
                .map_err(with_context);
        }
        let opened = open(&config).await.map_err(with_context)?;
        let guarantees = guarantees(Scope::Network, WakeUp::Poll);
        let settings = config.settings(queries::TICK, 0);
        let durability = DurabilityMonitor::new(opened.is_durable);
        Ok(Arc::new(Engine::start(
            &runtime,
            store,
            guarantees,
            opened.connections,
            settings,
            durability,
        )))
    }
}

/// An open database.
pub(super) struct Opened {
    pub(super) connections: Connections<MysqlConn, NoListener>,
    /// Whether commits survive a crash of the server.
    pub(super) is_durable: bool,
}

/// Opens the database. Several processes may do so at once, even the first time.
pub(super) async fn open(config: &MysqlConfig) -> Result<Opened, Error> {
    let conn = |source: Source| MysqlConn::new(Connector::new(source, config.response_timeout));
    let mut first = conn(config.driver.shared());
    let mut server = retry!(
        RetryBudget::to_open(config.response_timeout),
        check(&mut first, config.create_schema).await
    )?;
    let (database, roles) = match config.driver.pool {
        Some(_) => {
            // It stays open for renewals: later the server may have no free connection.
            let mut own = first.another_from(config.driver.own());
            let found = same_database(&mut first, &mut own).await?;
            // A temporary table of the pooled session may have hidden a table so far, and its
            // settings those of the server.
            server = retry!(
                RetryBudget::to_open(config.response_timeout),
                check(&mut own, false).await
            )?;
            found
        }
        None => (first.which().await?.0, Vec::new()),
    };
    first = first.within(&database, &roles, server.is_galera);
    let mut first = first.returning(config.driver.returning.unwrap_or(server.returning));
    // Now the check of pooled sessions is complete.
    retry!(RetryBudget::to_open(config.response_timeout), first.ready().await)?;
    let sample = sample(&mut first).await;
    let another = || first.another();
    let renewer = Some(first.another_from(config.driver.own()).or_other());
    let reader = another();
    let others: Vec<MysqlConn> = (1..config.connections).map(|_| another()).collect();
    let writers = [first].into_iter().chain(others).collect();
    Ok(Opened {
        connections: Connections { writers, renewer, reader, listener: None, sample },
        is_durable: server.is_durable,
    })
}

/// Returns the database in which pooled and dedicated connections find the tables, and the roles of
/// both. The database has to be the same: dedicated connections lack the settings that the
/// application makes after connecting.
async fn same_database(
    pooled: &mut MysqlConn,
    own: &mut MysqlConn,
) -> Result<(String, Vec<String>), Error> {
    let (database, role) = pooled.which().await?;
    let (own_database, own_role) = own.which().await?;
    if database == own_database {
        return Ok((database, vec![own_role, role]));
    }
    Err(Error::config(
        ConfigIssue::ForeignStore,
        "the pool's connections use another database than a connection that is opened with the \
         pool's options: set the database in the options, not after connecting",
    ))
}

async fn check(conn: &mut MysqlConn, create: bool) -> Result<Server, Fault> {
    let server = check_server(conn).await?;
    prepare(conn, Tables::Locks, create).await?;
    Ok(server)
}

//! Opening a database: connect, check the server, and check or create the tables.

use dlock_core::{ConfigIssue, Error};

use super::{
    check::{Server, check_server},
    config::MysqlConfig,
    conn::MysqlConn,
    connector::{Connector, Source},
    schema::{Tables, prepare},
};
use crate::engine::{Connections, Fault, NoListener, RetryBudget, retry, sample};

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
    let server = retry!(
        RetryBudget::of(config.response_timeout),
        check(&mut first, config.create_schema).await
    )?;
    let database = match config.driver.pool {
        Some(_) => {
            let mut own = conn(config.driver.own());
            let database = same_database(&mut first, &mut own).await?;
            // A temporary table of the pooled session may have hidden a table so far.
            retry!(
                RetryBudget::of(config.response_timeout),
                prepare(&mut own, Tables::Locks, false).await
            )?;
            own.close().await;
            database
        }
        None => first.database().await?,
    };
    first = first.within(&database);
    let mut first = first.returning(config.driver.returning.unwrap_or(server.returning));
    let sample = sample(&mut first).await;
    let another = || first.another();
    let renewer = Some(first.another_from(config.driver.own()));
    let reader = another();
    let others: Vec<MysqlConn> = (1..config.connections).map(|_| another()).collect();
    let writers = [first].into_iter().chain(others).collect();
    Ok(Opened {
        connections: Connections { writers, renewer, reader, listener: None, sample },
        is_durable: server.is_durable,
    })
}

/// Returns the database in which pooled and dedicated connections find the tables. It has to be the
/// same: dedicated connections lack the settings that the application makes after connecting.
async fn same_database(pooled: &mut MysqlConn, own: &mut MysqlConn) -> Result<String, Error> {
    let mut found = Vec::new();
    for conn in [pooled, own] {
        found.push(conn.database().await?);
    }
    if found[0] == found[1]
        && let Some(database) = found.pop()
    {
        return Ok(database);
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

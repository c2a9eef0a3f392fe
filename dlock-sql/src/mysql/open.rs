//! Opening a database: connect, see what the server is, and check or make the tables.

use dlock_core::{Clock, Error};

use super::{
    check::{Server, check_rights, check_server},
    config::MysqlConfig,
    conn::MysqlConn,
    schema::prepare,
    way::Way,
};
use crate::engine::{Deaf, Fault, Links, Patience};

/// An open database.
pub(super) struct Opened {
    pub(super) links: Links<MysqlConn, Deaf>,
    pub(super) server: Server,
}

/// Opens the database. Several processes may do so at once, also the first time.
pub(super) async fn open(config: &MysqlConfig) -> Result<Opened, Error> {
    let until = Clock::Boot.now().saturating_add(config.patience);
    let mut patience = Patience::until(until);
    let way = Way::new(config.driver.options.clone(), config.patience, false);
    let mut first = MysqlConn::new(way);
    let mut server = loop {
        match check(&mut first, config.create_schema).await {
            Ok(server) => break server,
            Err(fault) => patience.after(fault).await?,
        }
    };
    server.returning = config.driver.returning.unwrap_or(server.returning);
    let first = first.with_returning(server.returning);
    let another = || MysqlConn::new(first.way().clone());
    let (keeper, reader) = (Some(another()), another());
    let others: Vec<MysqlConn> = (1..config.connections).map(|_| another()).collect();
    let writers = [first].into_iter().chain(others).collect();
    Ok(Opened { links: Links { writers, keeper, reader, ears: None }, server })
}

async fn check(conn: &mut MysqlConn, create: bool) -> Result<Server, Fault> {
    let server = check_server(conn).await?;
    prepare(conn, create).await?;
    check_rights(conn).await?;
    Ok(server)
}

//! A connection that is in use.
//!
//! The caller either keeps it after a complete answer, or discards it.

use sqlx::{Database, pool::PoolConnection};

/// A dedicated connection, or one of an application's pool.
pub(crate) enum Taken<DB: Database> {
    Own(DB::Connection),
    Pooled(PoolConnection<DB>),
}

impl<DB: Database> Taken<DB> {
    pub(crate) fn raw(&mut self) -> &mut DB::Connection {
        match self {
            Self::Own(conn) => conn,
            Self::Pooled(conn) => conn,
        }
    }

    /// Closes it without a message to the server.
    pub(crate) fn discard(self) {
        match self {
            Self::Own(conn) => drop(conn),
            Self::Pooled(conn) => drop(conn.detach()),
        }
    }
}

//! A connection that is in use.

use sqlx::{Database, pool::PoolConnection};

/// One of dlock's own, or out of an application's pool.
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

    /// Closes it, without a word to the server.
    pub(crate) fn discard(self) {
        match self {
            Self::Own(conn) => drop(conn),
            Self::Pooled(conn) => drop(conn.detach()),
        }
    }
}

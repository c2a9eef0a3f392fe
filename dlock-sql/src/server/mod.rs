//! The common part of databases with a server: configuration, TLS, and the faults of connections.

mod config;
mod idle;
mod reach;
mod texts;
mod tls;

use std::net::Ipv4Addr;

pub(crate) use config::value;
pub use config::{Durability, ServerConfig};
pub(crate) use idle::Idle;
pub(crate) use reach::{Target, bare, reach, shown};
use sqlx::{ColumnIndex, Database, Decode, Row, Type, pool::PoolConnection};
pub(crate) use texts::Texts;
pub(crate) use tls::Tls;

use crate::engine::{Fault, Remedy};

/// Returns the number of connections of a pool to try before all count as alike: the idle ones, and
/// a new one. The driver counts without a lock, so its number of idle connections may be wrong for
/// a moment.
pub(crate) fn tries(idle: usize, size: u32) -> usize {
    idle.min(usize::try_from(size).unwrap_or(usize::MAX)).saturating_add(1)
}

/// A dedicated connection, or one of an application's pool.
pub(crate) enum Borrowed<DB: Database> {
    Own(DB::Connection),
    Pooled(PoolConnection<DB>),
}

impl<DB: Database> Borrowed<DB> {
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

/// The error of a connection whose server accepts no writes. The driver itself never returns this
/// one here.
pub(crate) const NO_WRITES: sqlx::Error = sqlx::Error::RowNotFound;

/// Returns the rows of a statement whose second column is null if the server accepts no writes.
/// Fails in that case, since the rows may be out of date.
pub(crate) fn from_primary<R>(rows: Vec<R>) -> Result<Vec<R>, sqlx::Error>
where
    R: Row,
    usize: ColumnIndex<R>,
    i64: for<'r> Decode<'r, R::Database> + Type<R::Database>,
{
    match rows.first().map(|row| row.try_get::<Option<i64>, _>(1)).transpose()? {
        Some(None) => Err(NO_WRITES),
        _ => Ok(rows),
    }
}

/// The pool returned no connection in time.
pub(crate) const POOL_TIMED_OUT: &str = "the application's pool gave no connection in time: check \
                                         whether the server answers; make the pool larger, return \
                                         its connections sooner, or open dlock by URL";
/// The pool is closed.
pub(crate) const POOL_CLOSED: &str =
    "the application has closed its pool: close it after the locks, or open dlock by URL";

/// Returns the fault of a missing answer. If the server does not report locked rows, one of them
/// may be the reason.
pub(crate) fn late() -> Fault {
    Fault::cut(
        "no answer from the server in time: check whether it is overloaded or unreachable, or \
         raise dlock.response_timeout",
    )
    .with_remedy(Remedy::Apart)
}

/// Returns the fault of an address that did not answer a connect in time.
pub(crate) fn silent_at_first(server: &str) -> Fault {
    Fault::cut(format!(
        "no answer from the server in time: check that {server} at this address, and whether it is \
         overloaded or unreachable, or raise dlock.response_timeout"
    ))
}

/// Creates something that needs the I/O of tokio's runtime.
pub(crate) fn needs_io() -> std::io::Result<()> {
    let socket = std::net::UdpSocket::bind((Ipv4Addr::LOCALHOST, 0))?;
    socket.set_nonblocking(true)?;
    tokio::net::UdpSocket::from_std(socket).map(drop)
}

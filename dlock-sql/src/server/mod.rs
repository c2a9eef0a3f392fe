//! The common part of databases with a server: configuration, TLS, and the faults of connections.

mod config;
mod host;
mod idle;
mod io;
mod primary;
mod reach;
mod silence;
mod taken;
mod texts;
mod tls;

pub(crate) use config::value;
pub use config::{Durability, ServerConfig};
pub(crate) use host::{bare, shown};
pub(crate) use idle::Idle;
pub(crate) use io::needs_io;
#[cfg(feature = "postgres")]
pub(crate) use primary::NO_WRITES;
pub(crate) use primary::from_primary;
pub(crate) use reach::{Target, reach};
pub(crate) use silence::{POOL_CLOSED, POOL_TIMED_OUT, late, silent_at_first};
pub(crate) use taken::Taken;
pub(crate) use texts::Texts;
pub(crate) use tls::Tls;

/// Returns the number of connections of a pool to try before all count as alike: the idle ones, and
/// a new one. The driver counts without a lock, so its number of idle connections may be wrong for
/// a moment.
pub(crate) fn tries(idle: usize, size: u32) -> usize {
    idle.min(usize::try_from(size).unwrap_or(usize::MAX)).saturating_add(1)
}

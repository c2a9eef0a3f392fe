//! What the databases with a server share: how they are configured, and what that promises.

mod config;
mod io;
mod texts;
mod tls;

pub(crate) use config::guarantees;
#[cfg(feature = "postgres")]
pub(crate) use config::value;
pub use config::{Durability, ServerConfig};
pub(crate) use io::needs_io;
pub(crate) use texts::Texts;
pub(crate) use tls::Tls;

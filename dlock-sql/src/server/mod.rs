//! What the databases with a server share: how they are configured, and what that promises.

mod config;
mod tls;

pub use config::{Durability, ServerConfig};
pub(crate) use tls::Tls;

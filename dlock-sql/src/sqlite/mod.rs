//! SQLite: one file, for the processes of one machine.

mod backend;
pub(crate) mod config;
mod conn;
mod error;
mod examine;
mod file;
pub(crate) mod json;

#[cfg(unix)]
mod push;
#[cfg(not(unix))]
#[path = "no_push.rs"]
mod push;
mod queries;
mod schema;

pub use backend::{SQLITE, Sqlite};
pub use config::SqliteConfig;

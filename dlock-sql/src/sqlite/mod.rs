//! SQLite: one file, for the processes of one machine.

mod backend;
pub(crate) mod config;
mod conn;
mod error;
pub(crate) mod json;
mod open;
mod queries;
mod schema;

pub use backend::{SQLITE, Sqlite};
pub use config::SqliteConfig;

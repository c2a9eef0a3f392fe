//! SQLite: one file, for the processes of one machine.

mod backend;
mod config;
mod conn;
mod error;
mod json;
mod open;
mod queries;
mod schema;

pub use backend::{SQLITE, Sqlite};
pub use config::SqliteConfig;

//! PostgreSQL: one database, for processes on many machines.

mod advisory;
mod backend;
mod code;
mod config;
mod conn;
mod driver;
mod error;
mod link;
mod listen;
mod literal;
mod modes;
mod open;
mod plain;
mod queries;
mod schema;
mod statement;
mod url;

pub use backend::{POSTGRES, Postgres};
pub use config::PostgresConfig;

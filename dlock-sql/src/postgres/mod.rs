//! PostgreSQL: one database, for processes on many machines.

mod advisory;
mod backend;
mod config;
mod conn;
mod driver;
pub(crate) mod error;
mod examine;
mod link;
mod listener;
pub(crate) mod literal;
mod plain;
#[cfg(test)]
mod qualified;
mod queries;
mod schema;
mod source;
pub(crate) mod statement;

pub use backend::{POSTGRES, Postgres};
pub use driver::PostgresConfig;
#[cfg(test)]
pub(crate) use plain::STATEMENTS as PLAIN_STATEMENTS;
#[cfg(test)]
pub(crate) use queries::STATEMENTS;

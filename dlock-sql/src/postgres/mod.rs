//! PostgreSQL: one database, for processes on many machines.

mod advisory;
mod answer;
mod backend;
mod config;
mod conn;
mod driver;
mod error;
pub(crate) mod error_codes;
mod examine;
mod link;
mod listener;
pub(crate) mod literal;
mod modes;
mod open;
mod plain;
#[cfg(test)]
mod qualified;
mod queries;
mod schema;
mod source;
pub(crate) mod statement;
mod url;

pub use backend::{POSTGRES, Postgres};
pub use driver::PostgresConfig;
#[cfg(test)]
pub(crate) use plain::STATEMENTS as PLAIN_STATEMENTS;
#[cfg(test)]
pub(crate) use queries::STATEMENTS;

//! MySQL and MariaDB: one server, or a proxy that leads to one.

mod backend;
mod check;
mod config;
mod conn;
mod connector;
mod durability;
pub(crate) mod error;
mod examine;
pub(crate) mod json;
mod plain;
mod queries;
mod rows;
mod schema;
pub(crate) mod statement;

pub use backend::{MYSQL, Mysql};
pub use config::MysqlConfig;
#[cfg(test)]
pub(crate) use plain::STATEMENTS as PLAIN_STATEMENTS;
#[cfg(test)]
pub(crate) use queries::STATEMENTS;

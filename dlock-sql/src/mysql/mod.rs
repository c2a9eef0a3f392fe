//! MySQL and MariaDB: one server, or a proxy that leads to one.

pub(crate) mod answer;
mod backend;
mod check;
mod config;
mod conn;
mod connector;
mod durability;
mod error;
pub(crate) mod error_codes;
mod examine;
pub(crate) mod json;
mod open;
mod plain;
mod queries;
mod rows;
mod schema;
mod statement;
mod url;

pub use backend::{MYSQL, Mysql};
pub use config::MysqlConfig;
#[cfg(test)]
pub(crate) use plain::STATEMENTS as PLAIN_STATEMENTS;
#[cfg(test)]
pub(crate) use queries::STATEMENTS;

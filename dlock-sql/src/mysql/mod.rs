//! MySQL and MariaDB: one server, or a proxy that leads to one.

mod answer;
mod backend;
mod check;
mod config;
mod conn;
mod error;
mod json;
mod open;
mod plain;
mod queries;
mod schema;
mod way;

pub use backend::{MYSQL, Mysql};
pub use config::MysqlConfig;

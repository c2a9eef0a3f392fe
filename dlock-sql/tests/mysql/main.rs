//! The MySQL backend on private MariaDB servers. Two [`Mysql`] values share nothing but the server,
//! as two processes do.
//!
//! [`Mysql`]: dlock_sql::Mysql

#![expect(clippy::disallowed_methods, reason = "tests start tasks as they like")]

mod access;
mod busy;
mod connections;
mod contention;
mod examine;
mod faults;
#[path = "../shared/formats.rs"]
mod formats;
#[path = "../shared/golden.rs"]
mod golden;
mod help;
mod names;
mod outside;
mod pool;
mod rights;
mod rows;
mod schema;
mod secrets;
#[cfg(feature = "tls")]
mod tls;

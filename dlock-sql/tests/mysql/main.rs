//! The MySQL backend on private MariaDB servers. Two [`Mysql`] values share nothing but the server,
//! as two processes do.
//!
//! [`Mysql`]: dlock_sql::Mysql

#![expect(clippy::disallowed_methods, reason = "tests start tasks as they like")]

mod access;
mod busy;
mod connections;
mod contention;
mod databases;
mod examine;
mod faults;
mod foreign_rows;
#[path = "../shared/formats.rs"]
mod formats;
#[path = "../shared/golden.rs"]
mod golden;
mod guarantees;
mod late;
mod locked_rows;
mod names;
mod packets;
mod pool;
mod read_only;
mod rights;
mod rows;
mod schema;
mod secrets;
mod sessions;
mod support;
#[cfg(feature = "tls")]
mod tls;
mod unknown_errors;
mod unreadable_records;

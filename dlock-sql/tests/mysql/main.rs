//! The MySQL backend on private MariaDB servers. Two [`Mysql`] values share nothing but the server,
//! as two processes do.
//!
//! [`Mysql`]: dlock_sql::Mysql

#![expect(clippy::disallowed_methods, reason = "tests start tasks as they like")]

mod access;
mod connections;
mod contention;
mod databases;
mod examine;
mod faults;
#[path = "../shared/formats.rs"]
mod formats;
#[path = "../shared/golden.rs"]
mod golden;
mod names;
mod packets;
mod pool;
mod rows;
mod schema;
#[path = "../servers/mod.rs"]
mod servers;
mod sessions;
mod support;
#[cfg(feature = "tls")]
mod tls;
mod unknown_errors;

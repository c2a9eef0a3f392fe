//! The PostgreSQL backend against its contract, on private servers. Two clients of one server share
//! nothing but the server, as two processes do.

#![expect(clippy::disallowed_methods, reason = "tests, and their helpers")]

mod support;

mod addresses;
mod connections;
mod examine;
mod faults;
#[path = "../shared/formats.rs"]
mod formats;
#[path = "../shared/golden.rs"]
mod golden;
mod guarantees;
mod late;
mod listen;
mod locked_rows;
mod many_waiters;
mod names;
mod open;
mod planted;
mod pool;
mod pooler;
mod proxies;
mod read_only;
mod rights;
mod row_security;
mod rows;
mod schema;
mod sessions;
mod standby;
#[cfg(feature = "tls")]
mod tls;
mod trust;
mod unknown_errors;
mod unreadable_records;

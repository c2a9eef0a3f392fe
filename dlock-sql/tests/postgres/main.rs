//! The PostgreSQL backend against its contract, on private servers. Two clients of one server share
//! nothing but the server, as two processes do.

#![expect(clippy::disallowed_methods, reason = "tests, and their helpers")]

mod support;

mod connections;
mod examine;
mod faults;
#[path = "../shared/formats.rs"]
mod formats;
#[path = "../shared/golden.rs"]
mod golden;
mod late;
mod names;
mod open;
mod planted;
mod pool;
mod pooler;
mod read_only;
mod rights;
mod rows;
mod schema;
#[path = "../servers/mod.rs"]
mod servers;
mod sessions;
#[cfg(feature = "tls")]
mod tls;
mod trust;
mod unknown_errors;
mod waiters;

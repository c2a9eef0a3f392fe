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
mod listen;
mod names;
mod open;
mod outside;
mod planted;
mod pool;
mod pooler;
mod rights;
mod rows;
mod schema;
#[cfg(feature = "tls")]
mod tls;
mod trust;

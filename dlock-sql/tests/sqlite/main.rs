//! The SQLite backend against its contract, on real files. Two [`Sqlite`] values on one file
//! share nothing but the file, as two processes do.
//!
//! [`Sqlite`]: dlock_sql::Sqlite

#![expect(clippy::unwrap_used, clippy::disallowed_methods, reason = "tests, and their helpers")]

mod support;

mod batches;
mod cancel;
mod claims;
mod examine;
mod exclusion;
mod faults;
#[path = "../shared/formats.rs"]
mod formats;
#[path = "../shared/golden.rs"]
mod golden;
mod lease;
mod names;
mod open;
mod outside;
#[cfg(unix)]
mod push;
mod queue;
mod reset;
mod rows;
mod tokens;

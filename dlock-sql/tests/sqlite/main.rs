//! The SQLite backend against its contract, on real files. Two [`Sqlite`] values on one file
//! share nothing but the file, as two processes do.
//!
//! [`Sqlite`]: dlock_sql::Sqlite

#![expect(clippy::unwrap_used, clippy::disallowed_methods, reason = "tests, and their helpers")]

mod support;

mod batches;
mod claims;
#[cfg(target_os = "linux")]
mod descriptors;
mod exclusion;
mod faults;
mod file;
#[path = "../shared/formats.rs"]
mod formats;
#[path = "../shared/golden.rs"]
mod golden;
mod lease;
#[cfg(target_os = "linux")]
mod mounts;
mod open;
#[cfg(unix)]
mod push;
mod queue;
#[cfg(target_os = "linux")]
mod rights;
mod rows;
mod tokens;

//! The statements of SQLite. Each has its own file, with its arguments in the header.

use crate::engine::Micros;

/// The version of the tables in `schema.sql`.
pub(super) const SCHEMA_VERSION: i64 = 1;

/// The step of the clock of these statements. Each lease is longer by this step, since the clock
/// may be off by one step at either end.
pub(super) const TICK: Micros = 1000;

pub(super) const SCHEMA: &str = include_str!("schema.sql");
pub(super) const APPLY_ONE: &str = include_str!("apply_one.sql");
pub(super) const APPLY_MANY: &str = include_str!("apply_many.sql");
pub(super) const READ: &str = include_str!("read.sql");
pub(super) const PAGE: &str = include_str!("page.sql");
pub(super) const RANGE: &str = include_str!("range.sql");
pub(super) const DELETE: &str = include_str!("delete.sql");

/// A number that changes when another connection has committed.
pub(super) const DATA_VERSION: &str = "PRAGMA data_version";
/// Waits for other writers. On a read-only file it begins a transaction, too.
pub(super) const BEGIN: &str = "BEGIN IMMEDIATE";
pub(super) const ROLLBACK: &str = "ROLLBACK";
/// The tables and views of the file, without SQLite's own.
pub(super) const TABLES: &str = "SELECT name FROM sqlite_schema \
     WHERE type IN ('table', 'view') AND name NOT LIKE 'sqlite\\_%' ESCAPE '\\'";
/// A trigger runs on each write of dlock, and belongs to another program.
pub(super) const TRIGGERS: &str = "SELECT name FROM sqlite_schema \
     WHERE type = 'trigger' AND lower(tbl_name) IN ('dlock_lock', 'dlock_schema')";
pub(super) const VERSION: &str = "SELECT version FROM dlock_schema WHERE id = 1";
pub(super) const LIBRARY: &str = "SELECT sqlite_version()";
pub(super) const ENCODING: &str = "PRAGMA encoding";
pub(super) const JOURNAL: &str = "PRAGMA journal_mode";
/// Only for a file in WAL mode: see the crate's documentation.
pub(super) const SYNC_NORMAL: &str = "PRAGMA synchronous = NORMAL";

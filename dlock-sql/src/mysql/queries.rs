//! The statements of MySQL and MariaDB. Each has its own file, with its arguments in the header.
//! They work on both, except `returning.sql`, which MySQL does not have.

use crate::engine::Micros;

/// The version of the tables in `schema.sql`.
pub(super) const SCHEMA_VERSION: i64 = 1;

/// The step of the clock of these statements.
pub(super) const TICK: Micros = 1;

pub(super) const SCHEMA: &str = include_str!("schema.sql");
/// The table of the plain mode.
pub(super) const PLAIN_SCHEMA: &str = include_str!("plain.sql");
pub(super) const SESSION: &str = include_str!("session.sql");
pub(super) const POOLED: &str = include_str!("pooled.sql");
pub(super) const APPLY_ONE: &str = include_str!("apply_one.sql");
pub(super) const APPLY_MANY: &str = include_str!("apply_many.sql");
pub(super) const APPLY_ONE_RETURNING: &str =
    concat!(include_str!("apply_one.sql"), include_str!("returning_one.sql"));
pub(super) const APPLY_MANY_RETURNING: &str =
    concat!(include_str!("apply_many.sql"), include_str!("returning.sql"));
pub(super) const READ: &str = include_str!("read.sql");
pub(super) const READ_ONE: &str = include_str!("read_one.sql");
pub(super) const PAGE: &str = include_str!("page.sql");
pub(super) const RANGE: &str = include_str!("range.sql");
pub(super) const UNLOCKED: &str = include_str!("unlocked.sql");
pub(super) const DELETE: &str = include_str!("delete.sql");

/// All statements that name a table in an open database.
#[cfg(test)]
pub(crate) const STATEMENTS: [&str; 11] = [
    APPLY_ONE,
    APPLY_MANY,
    APPLY_ONE_RETURNING,
    APPLY_MANY_RETURNING,
    READ,
    READ_ONE,
    PAGE,
    RANGE,
    DELETE,
    UNLOCKED,
    VERSION,
];

/// The current database and role.
pub(super) const WHICH: &str =
    "SELECT COALESCE(DATABASE(), ''), CAST(COALESCE(CURRENT_ROLE(), '') AS BINARY)";

pub(super) const VERSION: &str = "SELECT version FROM dlock_schema WHERE id = 1";
/// The settings that matter, if the server has them. (`SELECT @@x` fails for others.)
pub(super) const SETTINGS: &str = "SHOW VARIABLES WHERE Variable_name IN \
     ('version', 'read_only', 'super_read_only', 'innodb_read_only', \
      'innodb_flush_log_at_trx_commit', 'innodb_flush_method', 'innodb_doublewrite', 'log_bin', \
      'sync_binlog', 'wsrep_on', 'group_replication_group_name', 'max_connections', \
      'max_user_connections', 'wait_timeout')";
/// The number of connections of this user. Everybody sees these.
pub(super) const OWN_CONNECTIONS: &str = "SELECT COUNT(*) FROM information_schema.processlist \
     WHERE user = SUBSTRING_INDEX(USER(), '@', 1)";
pub(super) const STATUS: &str = "SHOW GLOBAL STATUS WHERE Variable_name IN \
     ('Threads_connected', 'Innodb_redo_log_enabled')";
pub(super) const NOW: &str = "SELECT TIMESTAMPDIFF(MICROSECOND, '1970-01-01', UTC_TIMESTAMP(6))";
/// The engines of the tables, as far as the user may see them.
pub(super) const ENGINES: &str = "SELECT table_name, engine FROM information_schema.tables \
     WHERE table_schema = DATABASE() AND table_name IN ('dlock_lock', 'dlock_schema')";
/// The kind and the engine of the table of the plain mode.
pub(super) const PLAIN_ENGINE: &str = "SELECT table_name, engine FROM information_schema.tables \
     WHERE table_schema = DATABASE() AND table_name = 'dlock_plain'";
pub(super) const COLUMNS: &str = "SELECT column_name, data_type, column_key \
     FROM information_schema.columns \
     WHERE table_schema = DATABASE() AND table_name = 'dlock_lock' ORDER BY ordinal_position";

/// The rights that the user needs, each with a statement that uses it on no row: no lock has an
/// empty name.
pub(super) const RIGHTS: [(&str, &str); 4] = [
    ("SELECT", "SELECT base FROM dlock_lock WHERE name = ''"),
    (
        "INSERT",
        "INSERT INTO dlock_lock (name, base, seen, cut, snap, log) \
         SELECT '', 0, 0, 0, '', '' FROM DUAL WHERE 1 = 0",
    ),
    ("UPDATE", "UPDATE dlock_lock SET cut = 0 WHERE name = ''"),
    ("DELETE", "DELETE FROM dlock_lock WHERE name = ''"),
];
/// The same in the plain mode.
pub(super) const PLAIN_RIGHTS: [(&str, &str); 4] = [
    ("SELECT", "SELECT holder FROM dlock_plain WHERE 1 = 0"),
    (
        "INSERT",
        "INSERT INTO dlock_plain (name, holder, state, version, expiry) \
         SELECT '', '', '', 0, 0 FROM (SELECT 1) AS nothing WHERE 1 = 0",
    ),
    ("UPDATE", "UPDATE dlock_plain SET state = state WHERE 1 = 0"),
    ("DELETE", "DELETE FROM dlock_plain WHERE 1 = 0"),
];

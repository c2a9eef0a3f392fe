//! The statements of PostgreSQL. Each has its own file, with its arguments in the header.

use std::sync::LazyLock;

use crate::engine::Micros;

/// The version of the tables in `schema.sql`.
pub(super) const SCHEMA_VERSION: i64 = 1;

/// The step of the clock of these statements. Each lease is longer by this step, since the clock
/// may be off by one step at either end.
pub(super) const TICK: Micros = 1;

pub(super) const SCHEMA: &str = include_str!("schema.sql");
/// The table of the plain mode.
pub(super) const PLAIN_SCHEMA: &str = include_str!("plain.sql");
pub(super) const APPLY_ONE: &str = include_str!("apply_one.sql");
pub(super) const APPLY_MANY: &str = include_str!("apply_many.sql");
pub(super) const READ: &str = include_str!("read.sql");
pub(super) const PAGE: &str = include_str!("page.sql");
pub(super) const RANGE: &str = include_str!("range.sql");
pub(super) const DELETE: &str = include_str!("delete.sql");
pub(super) const UNLOCKED: &str = include_str!("unlocked.sql");
pub(super) const STANDBY: &str = include_str!("standby.sql");
pub(super) const TELL: &str = include_str!("tell.sql");
pub(super) const SERVER: &str = include_str!("server.sql");
pub(super) const EXAMINE: &str = include_str!("examine.sql");
pub(super) const TABLES: &str = include_str!("tables.sql");

/// [`APPLY_ONE`], which commits without waiting for the disk, or for a standby:
/// <https://www.postgresql.org/docs/current/wal-async-commit.html>. The setting ends with the
/// transaction, which is this statement.
pub(super) static HURRY: LazyLock<String> = LazyLock::new(|| {
    let hurry = "set_config('synchronous_commit', 'off', true)";
    APPLY_ONE.replacen("AS now) AS clock", &format!("AS now, {hurry}) AS clock"), 1)
});

/// The settings of a session on which statements rely: whether it waits for the disk, its encoding,
/// and its role.
macro_rules! session {
    () => {
        "concat_ws(' ', current_setting('synchronous_commit'), \
         current_setting('client_encoding'), current_user)"
    };
}

/// The check of a pooled connection before each use: whether this statement is its own transaction,
/// since an open one would have begun earlier, and the settings of the session.
pub(super) const POOLED: &str =
    concat!("SELECT transaction_timestamp() = statement_timestamp(), ", session!());

/// Whether commits survive a crash of the server, by all settings that matter.
macro_rules! keeps {
    () => {
        "current_setting('fsync') = 'on' AND current_setting('full_page_writes') = 'on' \
         AND current_setting('synchronous_commit') <> 'off'"
    };
}

/// The same, with the kind of the table. A view or a partitioned table may lead to other tables.
macro_rules! keeps_table {
    ($table:literal) => {
        concat!(
            "SELECT ",
            keeps!(),
            " AND coalesce((SELECT relpersistence = 'p' AND relkind = 'r' FROM pg_class \
              WHERE oid = to_regclass('",
            $table,
            "')), false)"
        )
    };
}
pub(super) const KEEPS: &str = keeps_table!("dlock_lock");
pub(super) const PLAIN_KEEPS: &str = keeps_table!("dlock_plain");

/// The first query on a new connection.
pub(super) static GREETING: LazyLock<String> = LazyLock::new(|| {
    let lines = include_str!("session.sql").lines().filter(|line| !line.starts_with("--"));
    lines.collect::<Vec<_>>().join("\n").replace("{keeps}", keeps!())
});
/// The same behind a pooler, where no setting may outlast a transaction.
pub(super) const GREETING_OF_POOLER: &str = concat!(
    "SET LOCAL synchronous_commit = DEFAULT; \
     SELECT current_setting('transaction_read_only') = 'off', true, ",
    keeps!()
);

/// The table that the search path leads to, and the settings of the session.
pub(super) const WHICH: &str = concat!(
    "SELECT current_database()::text, to_regclass('dlock_lock')::oid::bigint, ",
    session!()
);

/// All statements that name a table in an open database.
#[cfg(test)]
pub(crate) const STATEMENTS: [&str; 14] = [
    APPLY_ONE,
    APPLY_MANY,
    READ,
    PAGE,
    RANGE,
    DELETE,
    UNLOCKED,
    TABLES,
    KEEPS,
    PLAIN_KEEPS,
    VERSION,
    super::advisory::TAKE,
    super::advisory::LOOK,
    super::advisory::SWEEP,
];

/// As text, since the column may be of any type in a table that is not dlock's.
pub(super) const VERSION: &str = "SELECT version::text FROM dlock_schema WHERE id = 1";

/// The columns that `tables.sql` finds in a table as `schema.sql` makes it.
pub(super) const COLUMNS: &str = "base bigint, cut bigint, log text default, name text C, \
                                  seen bigint, snap text default";

/// $1: the table of a mode. Returns whether the user has all rights on it, null without it, and its
/// schema, quoted if necessary.
pub(super) const TABLE: &str = "SELECT has_table_privilege(t.it, 'SELECT')\n\
     AND has_table_privilege(t.it, 'INSERT')\n\
     AND has_table_privilege(t.it, 'UPDATE')\n\
     AND has_table_privilege(t.it, 'DELETE'),\n\
     (SELECT quote_ident(n.nspname) FROM pg_class AS c\n\
     JOIN pg_namespace AS n ON n.oid = c.relnamespace WHERE c.oid = t.it)\n\
     FROM (VALUES (to_regclass($1::text))) AS t (it)";

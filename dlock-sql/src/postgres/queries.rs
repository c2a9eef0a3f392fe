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
/// The table of the advisory mode: the last fencing token of each lock.
pub(super) const ADVISORY_SCHEMA: &str = include_str!("advisory/schema.sql");
pub(super) const ADVISORY_ACQUIRE: &str = include_str!("advisory/acquire.sql");
pub(super) const ADVISORY_INSPECT: &str = include_str!("advisory/inspect.sql");
pub(super) const ADVISORY_SWEEP: &str = include_str!("advisory/sweep.sql");
pub(super) const ADVISORY_FREE: &str = "SELECT pg_catalog.pg_advisory_unlock($1::bigint)";
/// Reads the clock.
pub(super) const NOW: &str = "SELECT (extract(epoch FROM pg_catalog.statement_timestamp()) \
     OPERATOR(pg_catalog.*) 1000000)::bigint";
/// Behind a transaction pooler, two connections have the same process.
pub(super) const PROCESS: &str = "SELECT pg_catalog.pg_backend_pid()::bigint";
pub(super) const APPLY_ONE: &str = include_str!("apply_one.sql");
pub(super) const APPLY_MANY: &str = include_str!("apply_many.sql");
pub(super) const READ: &str = include_str!("read.sql");
pub(super) const PAGE: &str = include_str!("page.sql");
pub(super) const RANGE: &str = include_str!("range.sql");
pub(super) const DELETE: &str = include_str!("delete.sql");
pub(super) const UNLOCKED: &str = include_str!("unlocked.sql");
pub(super) const STANDBY: &str = include_str!("standby.sql");
pub(super) const NOTIFY: &str = include_str!("notify.sql");
pub(super) const SERVER: &str = include_str!("server.sql");
pub(super) const EXAMINE: &str = include_str!("examine.sql");
pub(super) const CREATORS: &str = include_str!("creators.sql");
pub(super) const TABLE_RIGHTS: &str = include_str!("table_rights.sql");
pub(super) const VACUUM: &str = include_str!("vacuum.sql");
pub(super) const TRUST: &str = include_str!("trust.sql");
pub(super) const TABLES: &str = include_str!("tables.sql");

/// [`APPLY_ONE`], which commits without waiting for the disk, or for a standby:
/// <https://www.postgresql.org/docs/current/wal-async-commit.html>. The setting ends with the
/// transaction, which is this statement.
pub(super) static APPLY_ONE_WITHOUT_SYNC: LazyLock<String> = LazyLock::new(|| {
    let skip_sync = "pg_catalog.set_config('synchronous_commit', 'off', true)";
    APPLY_ONE.replacen("AS now) AS clock", &format!("AS now, {skip_sync}) AS clock"), 1)
});

/// The settings of a session on which statements rely: whether it waits for the disk, its encoding,
/// and its role.
macro_rules! session {
    () => {
        "pg_catalog.concat_ws(' ', pg_catalog.current_setting('synchronous_commit'), \
         pg_catalog.current_setting('client_encoding'), current_user)"
    };
}

/// The check of a pooled connection before each use: whether this statement is its own transaction,
/// since an open one would have begun earlier, and the settings of the session.
pub(super) const POOLED: &str = concat!(
    "SELECT pg_catalog.transaction_timestamp() \
     OPERATOR(pg_catalog.=) pg_catalog.statement_timestamp(), ",
    session!()
);

/// Whether commits survive a crash of the server, by all settings that matter.
macro_rules! is_durable {
    () => {
        "pg_catalog.current_setting('fsync') OPERATOR(pg_catalog.=) 'on' \
         AND pg_catalog.current_setting('full_page_writes') OPERATOR(pg_catalog.=) 'on' \
         AND pg_catalog.current_setting('synchronous_commit') OPERATOR(pg_catalog.<>) 'off'"
    };
}

/// The same, with the kind of the table. A view or a partitioned table may lead to other tables.
macro_rules! is_durable_table {
    ($table:literal) => {
        concat!(
            "SELECT ",
            is_durable!(),
            " AND coalesce((SELECT c.relpersistence OPERATOR(pg_catalog.=) 'p' \
              AND c.relkind OPERATOR(pg_catalog.=) 'r' FROM pg_catalog.pg_class AS c \
              WHERE c.oid OPERATOR(pg_catalog.=) pg_catalog.to_regclass('",
            $table,
            "')::pg_catalog.oid), false)"
        )
    };
}
pub(super) const IS_DURABLE: &str = is_durable_table!("dlock_lock");
pub(super) const PLAIN_IS_DURABLE: &str = is_durable_table!("dlock_plain");

/// The first query on a new connection.
pub(super) static GREETING: LazyLock<String> = LazyLock::new(|| {
    let lines = include_str!("session.sql").lines().filter(|line| !line.starts_with("--"));
    lines.collect::<Vec<_>>().join("\n").replace("{is_durable}", is_durable!())
});
/// The same behind a pooler, where no setting may outlast a transaction.
pub(super) const GREETING_OF_POOLER: &str = concat!(
    "SET LOCAL synchronous_commit = DEFAULT; \
     SELECT pg_catalog.current_setting('transaction_read_only') OPERATOR(pg_catalog.=) 'off', true, ",
    is_durable!()
);

/// The schema in which the session creates tables, quoted if necessary.
pub(super) const CREATES_IN: &str =
    "SELECT pg_catalog.quote_ident(pg_catalog.current_schema()::pg_catalog.text)";

/// The table that the search path leads to, and the settings of the session.
pub(super) const WHICH: &str = concat!(
    "SELECT pg_catalog.current_database()::pg_catalog.text, \
     pg_catalog.to_regclass('dlock_lock')::pg_catalog.oid::bigint, ",
    session!()
);

/// All statements that name a table in an open database.
#[cfg(test)]
pub(crate) const STATEMENTS: [&str; 16] = [
    APPLY_ONE,
    APPLY_MANY,
    READ,
    PAGE,
    RANGE,
    DELETE,
    UNLOCKED,
    TABLES,
    IS_DURABLE,
    PLAIN_IS_DURABLE,
    PLAIN_RIGHTS,
    ADVISORY_RIGHTS,
    VERSION,
    ADVISORY_ACQUIRE,
    ADVISORY_INSPECT,
    ADVISORY_SWEEP,
];

/// As text, since the column may be of any type in a table that is not dlock's.
pub(super) const VERSION: &str =
    "SELECT version::pg_catalog.text FROM dlock_schema WHERE id OPERATOR(pg_catalog.=) 1";

/// The columns that `tables.sql` finds in a table as `schema.sql` makes it.
pub(super) const COLUMNS: &str = "base int8, cut int8, log text default, name text C, \
                                  seen int8, snap text default";

/// Whether the user has all rights on the table of a mode, null without it, and the table's schema,
/// quoted if necessary.
macro_rules! table_rights {
    ($table:literal) => {
        concat!(
            "SELECT pg_catalog.has_table_privilege(t.it, 'SELECT')\n\
             AND pg_catalog.has_table_privilege(t.it, 'INSERT')\n\
             AND pg_catalog.has_table_privilege(t.it, 'UPDATE')\n\
             AND pg_catalog.has_table_privilege(t.it, 'DELETE'),\n\
             (SELECT pg_catalog.quote_ident(n.nspname::pg_catalog.text)\n\
             FROM pg_catalog.pg_class AS c JOIN pg_catalog.pg_namespace AS n\n\
             ON n.oid OPERATOR(pg_catalog.=) c.relnamespace\n\
             WHERE c.oid OPERATOR(pg_catalog.=) t.it)\n\
             FROM (VALUES (pg_catalog.to_regclass('",
            $table,
            "')::pg_catalog.oid)) AS t (it)"
        )
    };
}
pub(super) const PLAIN_RIGHTS: &str = table_rights!("dlock_plain");
pub(super) const ADVISORY_RIGHTS: &str = table_rights!("dlock_advisory");

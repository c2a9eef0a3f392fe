//! The conversion of the driver's errors to dlock's, each with its remedy.

use dlock_core::{Certainty, ConfigIssue, Error, ErrorKind};

use crate::engine::{Fault, Remedy};

// Primary result codes: https://www.sqlite.org/rescode.html
const ERROR: i32 = 1;
const PERM: i32 = 3;
const BUSY: i32 = 5;
const LOCKED: i32 = 6;
const NOMEM: i32 = 7;
const READONLY: i32 = 8;
const INTERRUPT: i32 = 9;
const IOERR: i32 = 10;
/// A file ends before the page that it should have.
const SHORT_READ: i32 = IOERR | 2 << 8;
const OUT_OF_MEMORY: i32 = IOERR | 12 << 8;
const CORRUPT: i32 = 11;
const FULL: i32 = 13;
const CANTOPEN: i32 = 14;
const PROTOCOL: i32 = 15;
const SCHEMA: i32 = 17;
const CONSTRAINT: i32 = 19;
const MISMATCH: i32 = 20;
const AUTH: i32 = 23;
const NOTADB: i32 = 26;

/// Returns the meaning of an error of the driver.
pub(super) fn classify(error: sqlx::Error) -> Fault {
    let fault = match &error {
        sqlx::Error::Database(database) => {
            let code = database.code().and_then(|code| code.parse().ok()).unwrap_or(0);
            by_code(code, database.message())
        }
        sqlx::Error::WorkerCrashed => Fault::cut("the connection's thread ended: try again"),
        sqlx::Error::Io(_) | sqlx::Error::Configuration(_) => Fault::config(
            ConfigIssue::Access,
            "the file can't be opened: check its path, which must be UTF-8, and its rights",
        ),
        sqlx::Error::ColumnDecode { .. } | sqlx::Error::ColumnIndexOutOfBounds { .. } => {
            Fault::config(ConfigIssue::ForeignStore, NOT_OURS).with_certainty(Certainty::Unknown)
        }
        _ => Error::new(
            ErrorKind::Protocol,
            "the driver failed in a way that dlock does not know: see the source of this error",
        )
        .into(),
    };
    fault.with_source(error)
}

const NO_MEMORY: &str = "SQLite is out of memory: free some";

const NOT_OURS: &str = "the tables of this file are not those that dlock creates: give the locks a \
                        file of their own";

/// SQLite's texts for tables of another program.
const OTHER_FORM: [&str; 5] =
    ["no such column", "has no column", "ON CONFLICT clause does not match", "is a view", "UPSERT"];

/// Returns the meaning of an (extended) result code. A statement that fails is rolled back, so it
/// was not applied, unless writing to the disk failed.
fn by_code(code: i32, message: &str) -> Fault {
    use ConfigIssue::{Access, ForeignStore, SchemaMissing};

    match code & 0xff {
        // A new connection reads the log at its path. If that is not the one in use, it lacks pages
        // that are there by the shared memory (`-shm`).
        _ if code == SHORT_READ => Fault::config(
            Access,
            "the log beside the file (its name ends in -wal), or the file itself, was deleted or \
             cut off while programs used it: stop all programs that use it, then start them again",
        )
        .with_certainty(Certainty::Unknown),
        _ if code == OUT_OF_MEMORY => Fault::stuck(NO_MEMORY),
        BUSY | LOCKED | PROTOCOL => Fault::passing(
            "another program locks the database for too long: keep other programs' transactions on \
             it short, or give the locks a file of their own",
        )
        .with_remedy(Remedy::AtOnce),
        INTERRUPT | SCHEMA => Fault::passing(
            "the statement was interrupted, or the tables changed under it: try again",
        ),
        NOMEM => Fault::stuck(NO_MEMORY),
        FULL => Fault::stuck("the disk is full: free some space"),
        IOERR => Fault::cut(
            "the disk failed to read or write: check it, and that the file is on a local disk",
        )
        .with_remedy(Remedy::None),
        PERM | READONLY | AUTH => Fault::config(
            Access,
            "the file can't be written: check its rights and its directory's, that its disk is not \
             mounted read-only, and that the file was not moved",
        ),
        CANTOPEN => Fault::config(
            Access,
            "the file can't be opened: check that its directory exists, and the rights of both",
        ),
        NOTADB => Fault::config(
            ForeignStore,
            "the file is not a SQLite database: give the locks a file of their own",
        ),
        ERROR if message.starts_with("no such table") => Fault::config(
            SchemaMissing,
            "the tables of dlock are missing: open with create_schema (dlock.create_schema=true), \
             or run SqliteConfig::SCHEMA",
        ),
        ERROR if OTHER_FORM.iter().any(|says| message.contains(says)) => {
            Fault::config(ForeignStore, NOT_OURS)
        }
        CONSTRAINT | MISMATCH => Fault::config(ForeignStore, NOT_OURS),
        CORRUPT => Error::new(
            ErrorKind::Protocol,
            "the database is damaged: stop all programs that use it, move the file away, and \
             create it again",
        )
        .into(),
        _ => Error::new(
            ErrorKind::Protocol,
            "SQLite failed in a way that dlock does not know: see the source of this error",
        )
        .into(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_code_has_its_kind_and_certainty_and_remedy() {
        use Certainty::{NotApplied, Unknown};
        use ConfigIssue::{Access, ForeignStore, SchemaMissing};
        use ErrorKind::{Config, Protocol, Unavailable};

        let rows = [
            (5, "database is locked", Unavailable, NotApplied, Remedy::AtOnce, "file of their own"),
            (517, "database is locked", Unavailable, NotApplied, Remedy::AtOnce, "short"),
            (261, "database is locked", Unavailable, NotApplied, Remedy::AtOnce, "short"),
            (6, "table is locked", Unavailable, NotApplied, Remedy::AtOnce, "short"),
            (15, "locking protocol", Unavailable, NotApplied, Remedy::AtOnce, "short"),
            (17, "schema has changed", Unavailable, NotApplied, Remedy::Retry, "again"),
            (13, "disk is full", Unavailable, NotApplied, Remedy::None, "space"),
            (778, "disk I/O error", Unavailable, Unknown, Remedy::None, "local disk"),
            (522, "disk I/O error", Config(Access), Unknown, Remedy::None, "stop all programs"),
            (3082, "disk I/O error", Unavailable, NotApplied, Remedy::None, "memory"),
            (8, "readonly database", Config(Access), NotApplied, Remedy::None, "rights"),
            (1032, "readonly database", Config(Access), NotApplied, Remedy::None, "moved"),
            (14, "unable to open", Config(Access), NotApplied, Remedy::None, "directory"),
            (26, "not a database", Config(ForeignStore), NotApplied, Remedy::None, "own"),
            (
                1,
                "no such table: x",
                Config(SchemaMissing),
                NotApplied,
                Remedy::None,
                "SqliteConfig::SCHEMA",
            ),
            (1, "no such column: log", Config(ForeignStore), NotApplied, Remedy::None, "own"),
            (
                1,
                "table d has no column named x",
                Config(ForeignStore),
                NotApplied,
                Remedy::None,
                "own",
            ),
            (
                1,
                "ON CONFLICT clause does not match any PRIMARY KEY or UNIQUE constraint",
                Config(ForeignStore),
                NotApplied,
                Remedy::None,
                "own",
            ),
            (1, "cannot UPSERT a view", Config(ForeignStore), NotApplied, Remedy::None, "own"),
            (1299, "NOT NULL failed", Config(ForeignStore), NotApplied, Remedy::None, "own"),
            (11, "malformed", Protocol, Unknown, Remedy::None, "move the file away"),
            (1, "near x: syntax error", Protocol, Unknown, Remedy::None, "source"),
        ];
        for (code, message, kind, certainty, remedy, says) in rows {
            let fault = by_code(code, message);
            let found = (fault.error.kind(), fault.error.certainty(), fault.remedy);
            assert_eq!(found, (kind, certainty, remedy), "{code} {message}");
            assert!(fault.error.to_string().contains(says), "{code}: {}", fault.error);
        }
    }

    #[test]
    fn the_drivers_error_is_the_source() {
        let fault = classify(sqlx::Error::WorkerCrashed);
        assert_eq!(fault.remedy, Remedy::Retry);
        assert_eq!(fault.error.certainty(), Certainty::Unknown);
        assert!(std::error::Error::source(&fault.error).is_some());
    }
}

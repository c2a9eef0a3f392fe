//! From the driver's errors to dlock's, each with its remedy.

use std::borrow::Cow;

use dlock_core::{Certainty, ConfigIssue, Error, ErrorKind};

use crate::engine::{Cure, Fault};

use Certainty::{NotApplied, Unknown};
use ConfigIssue::{Access, ForeignStore, OptionValue, SchemaMissing};
use ErrorKind::{Config, Protocol, Unavailable, Unsupported};

type Meaning = (ErrorKind, Certainty, Cure, Cow<'static, str>);

/// Tells what an error of the driver means. Its texts never hold the password.
pub(super) fn classify(error: sqlx::Error) -> Fault {
    let (kind, certainty, cure, message) = match &error {
        sqlx::Error::Database(database) => {
            by_code(database.code().as_deref().unwrap_or_default(), database.message())
        }
        other => by_driver(other),
    };
    Fault { error: Error::new(kind, message).with_certainty(certainty).with_source(error), cure }
}

/// Whether the connection is of no use after this error.
pub(super) fn breaks(error: &sqlx::Error) -> bool {
    let sqlx::Error::Database(error) = error else { return true };
    let code = error.code().unwrap_or_default();
    // The classes of lost connections, of broken transactions and of an end that somebody ordered;
    // and statements that were prepared for another server or for other tables.
    let lost = code.starts_with("08") || code.starts_with("25") || code.starts_with("57P");
    lost || matches!(&*code, "0A000" | "26000" | "42P05")
}

/// The server takes no writes.
pub(super) fn standby() -> Error {
    Error::new(Unavailable, STANDBY).with_certainty(NotApplied)
}

/// What the user may not do.
pub(super) fn lacking(what: &str) -> Error {
    Error::config(Access, format!("the user lacks rights ({what:.200}): {RIGHTS}"))
}

/// The tables are of somebody else.
pub(super) fn not_ours() -> Error {
    Error::config(ForeignStore, NOT_OURS)
}

const STANDBY: &str = "the server is a read-only standby: give the address of the primary";

const RIGHTS: &str = "grant SELECT, INSERT, UPDATE and DELETE on dlock_lock and SELECT on \
                      dlock_schema; to make the tables takes CREATE on the schema";

const NOT_OURS: &str = "the tables dlock_lock and dlock_schema are not as dlock makes them: give \
                        the locks a schema of their own, by options[search_path] or the user's \
                        search_path";

const POOLER: &str = "there is a pooler before the server, which needs dlock.pooler=true";

const UNKNOWN: &str =
    "PostgreSQL failed in a way that dlock does not know: see the source of this error";

fn by_driver(error: &sqlx::Error) -> Meaning {
    use sqlx::Error as Driver;
    match error {
        Driver::Io(error) => (
            Unavailable,
            Unknown,
            Cure::Retry,
            format!("the server can't be reached: see that it runs, and where ({error})").into(),
        ),
        Driver::Tls(error) => (
            Config(Access),
            NotApplied,
            Cure::None,
            format!(
                "TLS with the server fails ({error}): check its certificate against sslrootcert \
                 and the host in the URL, that the server has ssl=on, and the files that the URL \
                 names"
            )
            .into(),
        ),
        Driver::PoolTimedOut => (
            Unavailable,
            NotApplied,
            Cure::Retry,
            "the application's pool had no connection to spare in time: make it larger, give its \
             connections back sooner, or open dlock by URL"
                .into(),
        ),
        Driver::PoolClosed => (
            Unavailable,
            NotApplied,
            Cure::None,
            "the application has closed its pool: close it after the locks, or open dlock by URL"
                .into(),
        ),
        Driver::ColumnDecode { .. }
        | Driver::ColumnIndexOutOfBounds { .. }
        | Driver::ColumnNotFound(_)
        | Driver::Decode(_) => (Config(ForeignStore), Unknown, Cure::None, NOT_OURS.into()),
        Driver::Protocol(text) => (
            Protocol,
            Unknown,
            Cure::None,
            format!(
                "what answers is not PostgreSQL, or asks for a way to log in that the driver does \
                 not know: check the address, and pg_hba.conf ({text:.200})"
            )
            .into(),
        ),
        _ => (Protocol, Unknown, Cure::None, UNKNOWN.into()),
    }
}

/// What an SQLSTATE means. A statement that the server refuses has not been applied.
/// <https://www.postgresql.org/docs/current/errcodes-appendix.html>
fn by_code(code: &str, text: &str) -> Meaning {
    let retry = |what: Cow<'static, str>| (Unavailable, NotApplied, Cure::Retry, what);
    let config = |issue, what: Cow<'static, str>| (Config(issue), NotApplied, Cure::None, what);
    match code {
        "40001" | "40P01" => retry("somebody else changed the same locks: try again".into()),
        "55P03" => retry(
            "somebody else's transaction keeps a row of dlock_lock locked: keep such transactions \
             short, and leave the table alone"
                .into(),
        ),
        "57014" => retry(
            "the server took too long, or somebody cancelled the statement: see whether it is \
             overloaded, or raise dlock.response_timeout"
                .into(),
        ),
        "0A000" if text.contains("cached plan") => {
            retry("the tables changed under the statement: try again".into())
        }
        "53300" => retry(
            "the server, or the user, has as many connections as it may: raise the limit, or use \
             one connection string for all locks of a process"
                .into(),
        ),
        "57P03" => retry(format!("the server takes no connections just now: wait ({text})").into()),
        "25006" => retry(STANDBY.into()),
        "57P01" | "57P02" | "57P04" | "57P05" | "25P03" | "25P04" => (
            Unavailable,
            Unknown,
            Cure::Retry,
            format!("the server ended the connection: try again ({text})").into(),
        ),
        "53100" => (
            Unavailable,
            NotApplied,
            Cure::None,
            "the server's disk is full: free some space".into(),
        ),
        "53000" | "53200" | "53400" => (
            Unavailable,
            NotApplied,
            Cure::None,
            format!("the server lacks memory or other resources: give it more ({text})").into(),
        ),
        "28P01" | "28000" => config(Access, no_entry(text)),
        // So say poolers.
        "08P01" if text.contains("authentication failed") || text.contains("no such user") => {
            config(Access, no_entry(text))
        }
        "3D000" => config(
            Access,
            format!("there is no such database: create it, or correct the URL ({text})").into(),
        ),
        "3F000" => config(
            Access,
            "no schema of the search path exists: create one, or set the user's search_path".into(),
        ),
        "42501" => config(Access, format!("the user lacks rights ({text}): {RIGHTS}").into()),
        "42P01" => config(SchemaMissing, MISSING.into()),
        "42703" | "42804" | "42P10" => config(ForeignStore, NOT_OURS.into()),
        "22021" | "22P05" => config(ForeignStore, ENCODING.into()),
        "26000" | "42P05" => config(OptionValue, format!("{POOLER} ({text})").into()),
        "08P01" if text.contains("startup parameter") || text.contains("bind message") => {
            config(OptionValue, format!("{POOLER} ({text})").into())
        }
        "42601" | "42883" | "42704" => (
            Unsupported,
            NotApplied,
            Cure::None,
            format!(
                "the server does not know what dlock uses: take PostgreSQL 12 or later ({text})"
            )
            .into(),
        ),
        "XX001" | "XX002" => (
            Protocol,
            Unknown,
            Cure::None,
            format!("the server's data are damaged: see its log ({text})").into(),
        ),
        _ if code.starts_with("08") => (
            Unavailable,
            Unknown,
            Cure::Retry,
            format!("the connection to the server was lost or refused: try again ({text})").into(),
        ),
        _ if code.starts_with("23") => config(ForeignStore, NOT_OURS.into()),
        _ => (Protocol, Unknown, Cure::None, UNKNOWN.into()),
    }
}

fn no_entry(text: &str) -> Cow<'static, str> {
    format!(
        "the server does not let the user in: check user and password in the URL, sslmode, and the \
         server's pg_hba.conf ({text})"
    )
    .into()
}

pub(super) const MISSING: &str = "the search path does not lead to dlock's tables: open with create_schema \
     (dlock.create_schema=true), or run PostgresConfig::SCHEMA";

pub(super) const ENCODING: &str = "the database is not in UTF8, which the names of locks are: give \
                                   the locks a database that is";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_code_has_its_kind_and_certainty_and_remedy() {
        let rows = [
            ("40001", "", Unavailable, NotApplied, Cure::Retry, "again"),
            ("40P01", "", Unavailable, NotApplied, Cure::Retry, "again"),
            ("55P03", "", Unavailable, NotApplied, Cure::Retry, "short"),
            ("57014", "", Unavailable, NotApplied, Cure::Retry, "dlock.response_timeout"),
            ("0A000", "cached plan must not change", Unavailable, NotApplied, Cure::Retry, "again"),
            ("0A000", "no such thing", Protocol, Unknown, Cure::None, "source"),
            ("53300", "", Unavailable, NotApplied, Cure::Retry, "raise the limit"),
            ("53100", "", Unavailable, NotApplied, Cure::None, "space"),
            ("53200", "x", Unavailable, NotApplied, Cure::None, "give it more (x)"),
            ("57P03", "starting up", Unavailable, NotApplied, Cure::Retry, "wait (starting up)"),
            ("57P01", "", Unavailable, Unknown, Cure::Retry, "again"),
            ("08006", "", Unavailable, Unknown, Cure::Retry, "again"),
            ("08P01", "server down", Unavailable, Unknown, Cure::Retry, "(server down)"),
            ("08P01", "no such user: u", Config(Access), NotApplied, Cure::None, "password"),
            ("25006", "", Unavailable, NotApplied, Cure::Retry, "the primary"),
            ("28P01", "for user \"u\"", Config(Access), NotApplied, Cure::None, "password"),
            ("28000", "no entry", Config(Access), NotApplied, Cure::None, "pg_hba.conf"),
            ("3D000", "", Config(Access), NotApplied, Cure::None, "create it"),
            ("3F000", "", Config(Access), NotApplied, Cure::None, "search_path"),
            ("42501", "for x", Config(Access), NotApplied, Cure::None, "DELETE on dlock_lock"),
            ("42P01", "", Config(SchemaMissing), NotApplied, Cure::None, "PostgresConfig::SCHEMA"),
            ("42703", "", Config(ForeignStore), NotApplied, Cure::None, "their own"),
            ("23514", "", Config(ForeignStore), NotApplied, Cure::None, "their own"),
            ("22P05", "", Config(ForeignStore), NotApplied, Cure::None, "UTF8"),
            ("26000", "", Config(OptionValue), NotApplied, Cure::None, "dlock.pooler=true"),
            ("42P05", "", Config(OptionValue), NotApplied, Cure::None, "dlock.pooler=true"),
            (
                "08P01",
                "unsupported startup parameter: options",
                Config(OptionValue),
                NotApplied,
                Cure::None,
                "dlock.pooler=true",
            ),
            ("42883", "", Unsupported, NotApplied, Cure::None, "12 or later"),
            ("XX001", "", Protocol, Unknown, Cure::None, "log"),
            ("XX000", "", Protocol, Unknown, Cure::None, "source"),
            ("", "", Protocol, Unknown, Cure::None, "source"),
        ];
        for (code, said, kind, certainty, cure, says) in rows {
            let (k, c, help, text) = by_code(code, said);
            assert_eq!((k, c, help), (kind, certainty, cure), "{code} {said}");
            assert!(text.contains(says), "{code}: {text}");
        }
    }

    #[test]
    fn the_drivers_error_is_the_source() {
        let lost = || sqlx::Error::Io(std::io::ErrorKind::ConnectionReset.into());
        assert!(breaks(&lost()));
        let fault = classify(lost());
        assert_eq!(fault.cure, Cure::Retry);
        assert_eq!(fault.error.certainty(), Unknown);
        assert!(std::error::Error::source(&fault.error).is_some());
        assert_eq!(classify(sqlx::Error::PoolTimedOut).error.certainty(), NotApplied);
    }
}

//! From the driver's errors to dlock's, each with its remedy.

use std::{borrow::Cow, fmt, io};

use dlock_core::{
    Certainty::{self, NotApplied, Unknown},
    ConfigIssue::{Access, ForeignStore},
    Error,
    ErrorKind::{self, Config, Protocol, Unavailable},
};

use super::code::by_code;
use crate::engine::{Cure, Fault};

pub(crate) type Meaning = (ErrorKind, Certainty, Cure, Cow<'static, str>);

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

/// Whether the server, or a proxy before it, takes no settings while a connection is made.
pub(super) fn refuses_options(error: &sqlx::Error) -> bool {
    let is_it = |error: &dyn sqlx::error::DatabaseError| {
        error.code().as_deref() == Some("0A000") && error.message().contains("option")
    };
    error.as_database_error().is_some_and(is_it)
}

/// Whether the server does not know a statement that the driver has prepared.
pub(super) fn is_unprepared(error: &sqlx::Error) -> bool {
    error.as_database_error().is_some_and(|error| error.code().as_deref() == Some("26000"))
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

const NO_WRITES: &str = "the server takes no writes, as a standby or by \
                         default_transaction_read_only: give the address of the primary";

const STANDBY: &str = "the server is a read-only standby: give the address of the primary";

pub(super) const RIGHTS: &str = "grant SELECT, INSERT, UPDATE and DELETE on dlock_lock and SELECT \
                                 on dlock_schema; to make the tables takes CREATE on the schema";

pub(super) const NOT_OURS: &str = "the tables dlock_lock and dlock_schema are not as dlock makes them: give the locks a schema of \
     their own, by options[search_path] or the user's search_path";

const UNKNOWN: &str =
    "PostgreSQL failed in a way that dlock does not know: see the source of this error";

fn by_driver(error: &sqlx::Error) -> Meaning {
    use sqlx::Error as Driver;
    match error {
        // So says the TLS library.
        Driver::Io(error) if error.kind() == io::ErrorKind::InvalidData => tls(error),
        Driver::Tls(error) => tls(error),
        Driver::Io(error) if error.kind() == io::ErrorKind::NotFound => (
            Unavailable,
            NotApplied,
            Cure::Retry,
            format!(
                "the server's socket is not there, or a file for TLS that the URL names: see that \
                 the server runs, and correct the URL ({error})"
            )
            .into(),
        ),
        Driver::Io(error) => (
            Unavailable,
            Unknown,
            Cure::Retry,
            format!("the server can't be reached: see that it runs, and where ({error})").into(),
        ),
        // So a link says it.
        Driver::RowNotFound => (Unavailable, NotApplied, Cure::Retry, NO_WRITES.into()),
        Driver::PoolTimedOut => (
            Unavailable,
            NotApplied,
            Cure::Retry,
            "the application's pool gave no connection in time: see whether the server answers; make \
             the pool larger, give its connections back sooner, or open dlock by URL"
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

fn tls(error: &dyn fmt::Display) -> Meaning {
    let text = format!(
        "TLS with the server fails ({error}): check its certificate against sslrootcert and the host \
         in the URL, and that the server has ssl=on"
    );
    (Config(Access), NotApplied, Cure::None, text.into())
}

pub(super) const MISSING: &str = "the search path does not lead to dlock's tables: open with create_schema \
     (dlock.create_schema=true), or run PostgresConfig::SCHEMA";

pub(super) const ENCODING: &str = "the database is not in UTF8, which the names of locks are: give \
                                   the locks a database that is";

#[cfg(test)]
mod tests {
    use super::*;

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

//! The conversion of the driver's errors to dlock's, each with its remedy.

use std::{borrow::Cow, fmt, io};

use dlock_core::{
    Certainty::Unknown,
    ConfigIssue::{Access, ForeignStore, OptionValue, SchemaMissing},
    Error,
    ErrorKind::{Protocol, Unsupported},
};

use crate::{
    engine::{Fault, Remedy},
    server::{POOL_CLOSED, POOL_TIMED_OUT},
};

/// Returns the meaning of an error of the driver. The texts never contain the password.
pub(super) fn classify(error: sqlx::Error) -> Fault {
    let fault = match &error {
        sqlx::Error::Database(database) => {
            by_code(database.code().as_deref().unwrap_or_default(), database.message())
        }
        other => by_driver(other),
    };
    fault.with_source(error)
}

/// Returns the server's code in the source of an error.
pub(super) fn code_of(error: &Error) -> Option<Cow<'_, str>> {
    let error = std::error::Error::source(error)?.downcast_ref::<sqlx::Error>()?;
    error.as_database_error()?.code()
}

/// Returns whether the connection can't be used after this error.
pub(super) fn breaks(error: &sqlx::Error) -> bool {
    let sqlx::Error::Database(error) = error else { return true };
    let code = error.code().unwrap_or_default();
    // The classes of lost connections, of broken transactions and of a shutdown by an
    // administrator; and statements that were prepared for another server or for other tables.
    let lost = code.starts_with("08") || code.starts_with("25") || code.starts_with("57P");
    lost || matches!(&*code, "0A000" | "26000" | "42P05")
}

/// Returns whether a limit of the session has ended the statement: `statement_timeout` or
/// `lock_timeout`.
pub(super) fn is_limit(error: &sqlx::Error) -> bool {
    let code = error.as_database_error().and_then(|error| error.code());
    matches!(code.as_deref(), Some("57014" | "55P03"))
}

/// Returns whether the server, or a proxy in front of it, refuses settings during a connect.
pub(super) fn refuses_options(error: &Error) -> bool {
    code_of(error).as_deref() == Some("0A000") && error.to_string().contains("option")
}

/// Returns whether the server does not know a statement that the driver has prepared.
pub(super) fn is_unprepared(error: &sqlx::Error) -> bool {
    error.as_database_error().is_some_and(|error| error.code().as_deref() == Some("26000"))
}

fn by_driver(error: &sqlx::Error) -> Fault {
    use sqlx::Error as Driver;
    match error {
        // The TLS library reports this.
        Driver::Io(error) if error.kind() == io::ErrorKind::InvalidData => tls(error),
        Driver::Tls(error) => tls(error),
        Driver::Io(error) if error.kind() == io::ErrorKind::NotFound => Fault::passing(format!(
            "the server's socket, or a file for TLS that the URL names, does not exist: check that \
             the server runs, and correct the URL ({error})"
        )),
        Driver::Io(error) => Fault::cut(format!(
            "the server can't be reached: check that it runs, and its address ({error})"
        )),
        // A link reports this.
        Driver::RowNotFound => Fault::passing(NO_WRITES),
        Driver::PoolTimedOut => Fault::passing(POOL_TIMED_OUT),
        Driver::PoolClosed => Fault::stuck(POOL_CLOSED),
        Driver::ColumnDecode { .. }
        | Driver::ColumnIndexOutOfBounds { .. }
        | Driver::ColumnNotFound(_)
        | Driver::Decode(_) => Fault::config(ForeignStore, NOT_OURS).with_certainty(Unknown),
        Driver::Protocol(text) => Error::new(
            Protocol,
            format!(
                "the server is not PostgreSQL, or requires a login method that the driver does not \
                 support: check the address, and pg_hba.conf ({text:.200})"
            ),
        )
        .into(),
        _ => Error::new(
            Protocol,
            "PostgreSQL failed in a way that dlock does not know: see the source of this error",
        )
        .into(),
    }
}

fn tls(error: &dyn fmt::Display) -> Fault {
    Fault::config(
        Access,
        format!(
            "TLS with the server failed ({error}): check its certificate against sslrootcert and \
             the host in the URL, and that the server has ssl=on"
        ),
    )
}

pub(super) const NO_WRITES: &str = "the server takes no writes, because it is a standby or has \
                                    default_transaction_read_only: give the address of the primary";

pub(super) const RIGHTS: &str = "grant SELECT, INSERT, UPDATE and DELETE on dlock_lock and SELECT \
                                 on dlock_schema; to create the tables, grant CREATE on the schema";

pub(super) const NOT_OURS: &str = "the tables dlock_lock and dlock_schema are not those that dlock \
                                   creates: give the locks a schema of their own, by \
                                   options[search_path] or the user's search_path";

pub(super) const MISSING: &str = "the search path does not lead to dlock's tables: open with create_schema \
     (dlock.create_schema=true), or run PostgresConfig::SCHEMA";

pub(super) const ENCODING: &str = "the database does not use UTF8, as the names of locks do: give \
                                   the locks a database that does";

/// Returns the meaning of a code. A statement that the server refuses has not been applied.
pub(crate) fn by_code(code: &str, text: &str) -> Fault {
    match code {
        "40001" | "40P01" => Fault::passing("another client changed the same locks: try again")
            .with_remedy(Remedy::AtOnce),
        "55P03" => Fault::passing(
            "another program's transaction keeps a row of dlock_lock locked: keep such \
             transactions short, and leave the table alone",
        )
        .with_remedy(Remedy::Apart),
        "57014" => Fault::passing(
            "the server took too long, or another session cancelled the statement: check whether \
             it is overloaded, or raise dlock.response_timeout",
        )
        .with_remedy(Remedy::Apart),
        "0A000" if text.contains("cached plan") => {
            Fault::passing("the tables changed under the statement: try again")
        }
        "0A000" if text.contains("option") => Fault::config(
            OptionValue,
            format!(
                "the server, or a proxy in front of it such as AWS RDS Proxy, takes no settings \
                 from a URL: remove options from it (and from PGOPTIONS), and set them for the \
                 user with ALTER ROLE ({text:.200})"
            ),
        ),
        "53300" => Fault::passing(
            "the server, or the user, has reached its limit of connections: raise the limit, or \
             open dlock once for all locks of a process",
        ),
        "57P03" => {
            Fault::passing(format!("the server accepts no connections at present: wait ({text})"))
        }
        "25006" => Fault::passing(NO_WRITES),
        "57P01" | "57P02" | "57P04" | "57P05" | "25P03" | "25P04" => {
            Fault::cut(format!("the server ended the connection: try again ({text})"))
        }
        "53100" => Fault::stuck("the server's disk is full: free some space"),
        "53000" | "53200" | "53400" => Fault::stuck(format!(
            "the server lacks memory or other resources: give it more ({text})"
        )),
        "28P01" | "28000" => no_entry(text),
        // Poolers report this.
        "08P01" if text.contains("authentication failed") || text.contains("no such user") => {
            no_entry(text)
        }
        "3D000" => Fault::config(
            Access,
            format!("there is no such database: create it, or correct the URL ({text})"),
        ),
        "3F000" => Fault::config(
            Access,
            "no schema of the search path exists: create one, or set the user's search_path",
        ),
        "42501" => Fault::config(Access, format!("the user lacks rights ({text}): {RIGHTS}")),
        "42P01" => Fault::config(SchemaMissing, MISSING),
        "42703" | "42804" | "42809" | "42P10" => Fault::config(ForeignStore, NOT_OURS),
        "22021" | "22P05" => Fault::config(ForeignStore, ENCODING),
        "26000" | "42P05" => pooler(text),
        "08P01" if text.contains("startup parameter") || text.contains("bind message") => {
            pooler(text)
        }
        "42601" | "42883" | "42704" => Error::new(
            Unsupported,
            format!(
                "the server does not support what dlock uses: use PostgreSQL 12 or later ({text})"
            ),
        )
        .into(),
        "XX001" | "XX002" => {
            Error::new(Protocol, format!("the server's data are damaged: check its log ({text})"))
                .into()
        }
        _ if code.starts_with("08") => Fault::cut(format!(
            "the connection to the server was lost or refused: try again ({text})"
        )),
        _ if code.starts_with("23") => Fault::config(ForeignStore, NOT_OURS),
        // Such as XX000, 58030 and 55000, which a proxy also reports for a server that it can't
        // reach.
        _ => Fault::cut(format!(
            "the server, or a proxy in front of it, failed in a way that dlock does not know: \
             check its log ({code}: {text:.200})"
        ))
        .with_remedy(Remedy::Unclear),
    }
}

fn no_entry(text: &str) -> Fault {
    Fault::config(
        Access,
        format!(
            "the server does not let the user in: check user and password in the URL, sslmode, and \
             the server's pg_hba.conf ({text})"
        ),
    )
}

fn pooler(text: &str) -> Fault {
    Fault::config(
        OptionValue,
        format!(
            "there is a pooler in front of the server: add dlock.pooler=true to the URL ({text})"
        ),
    )
}

#[cfg(test)]
mod tests {
    use dlock_core::{
        Certainty::{NotApplied, Unknown},
        ErrorKind::{Config, Unavailable},
    };

    use super::*;
    use crate::engine::Remedy;

    #[test]
    fn the_drivers_error_is_the_source() {
        let lost = || sqlx::Error::Io(std::io::ErrorKind::ConnectionReset.into());
        assert!(breaks(&lost()));
        let fault = classify(lost());
        assert_eq!(fault.remedy, Remedy::Retry);
        assert_eq!(fault.error.certainty(), Unknown);
        assert!(std::error::Error::source(&fault.error).is_some());
        assert_eq!(classify(sqlx::Error::PoolTimedOut).error.certainty(), NotApplied);
    }

    #[test]
    fn each_code_has_its_kind_and_certainty_and_remedy() {
        let rows = [
            ("40001", "", Unavailable, NotApplied, Remedy::AtOnce, "again"),
            ("40P01", "", Unavailable, NotApplied, Remedy::AtOnce, "again"),
            ("55P03", "", Unavailable, NotApplied, Remedy::Apart, "short"),
            ("57014", "", Unavailable, NotApplied, Remedy::Apart, "dlock.response_timeout"),
            (
                "0A000",
                "cached plan must not change",
                Unavailable,
                NotApplied,
                Remedy::Retry,
                "again",
            ),
            ("0A000", "no such thing", Unavailable, Unknown, Remedy::Unclear, "no such thing"),
            (
                "0A000",
                "RDS Proxy currently doesn't support command-line options",
                Config(OptionValue),
                NotApplied,
                Remedy::None,
                "ALTER ROLE",
            ),
            ("53300", "", Unavailable, NotApplied, Remedy::Retry, "raise the limit"),
            ("53100", "", Unavailable, NotApplied, Remedy::None, "space"),
            ("53200", "x", Unavailable, NotApplied, Remedy::None, "give it more (x)"),
            ("57P03", "starting up", Unavailable, NotApplied, Remedy::Retry, "wait (starting up)"),
            ("57P01", "", Unavailable, Unknown, Remedy::Retry, "again"),
            ("08006", "", Unavailable, Unknown, Remedy::Retry, "again"),
            ("08P01", "server down", Unavailable, Unknown, Remedy::Retry, "(server down)"),
            ("08P01", "no such user: u", Config(Access), NotApplied, Remedy::None, "password"),
            ("25006", "", Unavailable, NotApplied, Remedy::Retry, "the primary"),
            ("28P01", "for user \"u\"", Config(Access), NotApplied, Remedy::None, "password"),
            ("28000", "no entry", Config(Access), NotApplied, Remedy::None, "pg_hba.conf"),
            ("3D000", "", Config(Access), NotApplied, Remedy::None, "create it"),
            ("3F000", "", Config(Access), NotApplied, Remedy::None, "search_path"),
            ("42501", "for x", Config(Access), NotApplied, Remedy::None, "DELETE on dlock_lock"),
            (
                "42P01",
                "",
                Config(SchemaMissing),
                NotApplied,
                Remedy::None,
                "PostgresConfig::SCHEMA",
            ),
            ("42703", "", Config(ForeignStore), NotApplied, Remedy::None, "their own"),
            ("23514", "", Config(ForeignStore), NotApplied, Remedy::None, "their own"),
            ("22P05", "", Config(ForeignStore), NotApplied, Remedy::None, "UTF8"),
            ("26000", "", Config(OptionValue), NotApplied, Remedy::None, "dlock.pooler=true"),
            ("42P05", "", Config(OptionValue), NotApplied, Remedy::None, "dlock.pooler=true"),
            (
                "08P01",
                "unsupported startup parameter: options",
                Config(OptionValue),
                NotApplied,
                Remedy::None,
                "dlock.pooler=true",
            ),
            ("42883", "", Unsupported, NotApplied, Remedy::None, "12 or later"),
            ("XX001", "", Protocol, Unknown, Remedy::None, "log"),
            ("XX000", "no tenant", Unavailable, Unknown, Remedy::Unclear, "(XX000: no tenant)"),
            ("58030", "", Unavailable, Unknown, Remedy::Unclear, "proxy"),
            ("55000", "", Unavailable, Unknown, Remedy::Unclear, "log"),
            ("", "", Unavailable, Unknown, Remedy::Unclear, "log"),
        ];
        for (code, said, kind, certainty, remedy, says) in rows {
            let fault = by_code(code, said);
            let found = (fault.error.kind(), fault.error.certainty(), fault.remedy);
            assert_eq!(found, (kind, certainty, remedy), "{code} {said}");
            assert!(fault.error.to_string().contains(says), "{code}: {}", fault.error);
        }
    }
}

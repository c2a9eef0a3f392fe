//! The conversion of the server's and the driver's errors to dlock's, each with its remedy.

use dlock_core::{Certainty, ConfigIssue, Error, ErrorKind};
use sqlx::mysql::MySqlDatabaseError;

use crate::{
    engine::{Fault, Remedy},
    server::{POOL_CLOSED, POOL_TIMED_OUT},
};

/// Returns the meaning of an error of the server or the driver.
pub(super) fn classify(error: sqlx::Error) -> Fault {
    use ConfigIssue::Access;

    let Fault { error: meaning, remedy } = match &error {
        sqlx::Error::Database(database) => {
            by_number(number(&error).unwrap_or(0), database.message())
        }
        sqlx::Error::Io(io) => by_text(&io.to_string()),
        sqlx::Error::Tls(_) => Fault::config(
            Access,
            "TLS is not available: check that the server offers it and that the files of the URL's \
             ssl- options can be read, or set ssl-mode=DISABLED",
        ),
        sqlx::Error::Configuration(why) if why.to_string().contains("RSA") => Fault::config(
            Access,
            "the server wants the password over TLS only (caching_sha2_password): set \
             ssl-mode=REQUIRED or stricter in the URL, also for a server on this machine",
        ),
        sqlx::Error::Protocol(why) if why.contains("plugin") => Fault::config(
            Access,
            "the driver does not know how this user is to log in: create the user with \
             caching_sha2_password on MySQL, or with mysql_native_password on MariaDB, and set \
             ssl-mode=REQUIRED or stricter in the URL",
        ),
        sqlx::Error::Configuration(_) => Fault::config(
            Access,
            "the driver refuses the URL: correct it (the source of this error has the reason)",
        ),
        sqlx::Error::ColumnDecode { .. } | sqlx::Error::ColumnIndexOutOfBounds { .. } => {
            foreign().with_certainty(Certainty::Unknown)
        }
        sqlx::Error::RowNotFound => Fault::passing(
            "the server takes no writes (read_only): give the address of the primary, not of a \
             replica",
        ),
        sqlx::Error::PoolTimedOut => Fault::passing(POOL_TIMED_OUT),
        sqlx::Error::PoolClosed => Fault::stuck(POOL_CLOSED),
        _ => Error::new(
            ErrorKind::Protocol,
            "the server does not answer like MySQL or MariaDB: check the address",
        )
        .into(),
    };
    let message = match server_says(&error) {
        Some(says) => format!("{meaning} ({says})"),
        None => meaning.to_string(),
    };
    let (kind, certainty) = (meaning.kind(), meaning.certainty());
    Fault { error: Error::new(kind, message).with_certainty(certainty).with_source(error), remedy }
}

/// Returns the fault of a statement that was not sent, since it is larger than the server accepts.
pub(super) fn too_large() -> Fault {
    by_number(PACKET_TOO_LARGE, "")
}

pub(super) fn overtaken() -> Fault {
    Fault::cut(
        "other clients changed the row each time before this one could: try again, or use MariaDB, \
         which returns the row that it has written",
    )
}

/// Returns whether the connection can be used again. After a refusal for an unknown reason it can:
/// a bad row that is written repeatedly must not cost a connection each time.
pub(super) fn is_harmless(error: &sqlx::Error) -> bool {
    let said = error.as_database_error().map_or("", |error| error.message());
    number(error).is_some_and(|number| {
        [LOCK_WAIT_TIMEOUT, DEADLOCK, CHANGED].contains(&number)
            || number != PACKET_TOO_LARGE && by_number(number, said).remedy == Remedy::Unclear
    })
}

/// Returns whether the row exists already.
pub(super) fn is_duplicate(error: &sqlx::Error) -> bool {
    number(error) == Some(DUPLICATE)
}

/// Returns whether the server reports that a transaction is open already.
pub(super) fn is_in_transaction(error: &sqlx::Error) -> bool {
    number(error) == Some(IN_TRANSACTION)
}

/// Returns whether the server has no room for another prepared statement.
pub(super) fn has_no_room(error: &sqlx::Error) -> bool {
    number(error) == Some(TOO_MANY_STATEMENTS)
}

/// Returns whether the server refuses a table because the session has locked others.
pub(super) fn is_locked_out(error: &sqlx::Error) -> bool {
    number(error) == Some(OTHERS_LOCKED)
}

/// Returns whether the server reports that the user, or the role of the session, lacks a right.
pub(super) fn lacks_right(error: &sqlx::Error) -> bool {
    number(error).is_some_and(|number| DENIED.contains(&number))
}

/// Returns whether the source of this error is such a report.
pub(super) fn is_denied(error: &Error) -> bool {
    let source = std::error::Error::source(error);
    source.and_then(|source| source.downcast_ref()).is_some_and(lacks_right)
}

fn number(error: &sqlx::Error) -> Option<u16> {
    let database = error.as_database_error()?;
    Some(database.try_downcast_ref::<MySqlDatabaseError>()?.number())
}

/// Returns the server's own text, if it is short.
fn server_says(error: &sqlx::Error) -> Option<String> {
    match error {
        sqlx::Error::Database(database) => {
            Some(format!("{}: {:.200}", number(error).unwrap_or(0), database.message()))
        }
        sqlx::Error::Io(io) => Some(format!("{:.200}", io.to_string())),
        _ => None,
    }
}

/// Returns the meaning of a broken connection. Errors of the TLS library come in this form as well.
fn by_text(text: &str) -> Fault {
    if text.contains("invalid peer certificate") {
        return Fault::config(
            ConfigIssue::Access,
            "the server's certificate is not trusted: set ssl-ca to the file of its authority, and \
             use the host name of the certificate in the URL",
        );
    }
    if text.contains("received fatal alert") {
        return Fault::config(
            ConfigIssue::Access,
            "the server refuses this client's TLS: if it requires a client certificate, set \
             ssl-cert and ssl-key to one that it trusts",
        );
    }
    Fault::cut("the server can't be reached: check that it runs, and that the address is right")
}

// https://mariadb.com/kb/en/mariadb-error-codes/ and
// https://dev.mysql.com/doc/mysql-errors/8.0/en/server-error-reference.html
pub(super) const CHANGED: u16 = 1020;
const DISK_FULL: u16 = 1021;
const TOO_MANY_CONNECTIONS: u16 = 1040;
const DATABASE_DENIED: u16 = 1044;
const ACCESS_DENIED: u16 = 1045;
const NODE_NOT_READY: u16 = 1047;
const UNKNOWN_DATABASE: u16 = 1049;
const SHUTTING_DOWN: u16 = 1053;
const UNKNOWN_COLUMN: u16 = 1054;
pub(super) const DUPLICATE: u16 = 1062;
const NORMAL_SHUTDOWN: u16 = 1077;
const TABLE_FULL: u16 = 1114;
const LOCKED_FOR_READING: u16 = 1099;
pub(super) const OTHERS_LOCKED: u16 = 1100;
const HOST_BLOCKED: u16 = 1129;
const HOST_NOT_ALLOWED: u16 = 1130;
const TABLE_DENIED: u16 = 1142;
const COLUMN_DENIED: u16 = 1143;
const NO_SUCH_TABLE: u16 = 1146;
pub(super) const PACKET_TOO_LARGE: u16 = 1153;
const COMMIT_FAILED: u16 = 1180;
const TOO_MANY_OF_USER: u16 = 1203;
pub(super) const LOCK_WAIT_TIMEOUT: u16 = 1205;
pub(super) const DEADLOCK: u16 = 1213;
const ALL_LOCKED: u16 = 1223;
const LIMIT_OF_USER: u16 = 1226;
const PRIVILEGE_NEEDED: u16 = 1227;
const STATEMENT_UNKNOWN: u16 = 1243;
const OPTION_PREVENTS: u16 = 1290;
const INTERRUPTED: u16 = 1317;
const NO_DEFAULT: u16 = 1364;
const SYNTAX: u16 = 1064;
const NO_SUCH_FUNCTION: u16 = 1305;
const NO_SUCH_VARIABLE: u16 = 1193;
const WRONG_VALUE: u16 = 1366;
const ROUTINE_DENIED: u16 = 1370;
const DATA_TOO_LONG: u16 = 1406;
const TABLE_CHANGED: u16 = 1412;
pub(super) const TOO_MANY_STATEMENTS: u16 = 1461;
pub(super) const IN_TRANSACTION: u16 = 1568;
const PREPARE_AGAIN: u16 = 1615;
const ACCESS_DENIED_UNASKED: u16 = 1698;
const READ_ONLY_TRANSACTION: u16 = 1792;
const PASSWORD_TO_CHANGE: u16 = 1820;
const READ_ONLY_MODE: u16 = 1836;
const PASSWORD_EXPIRED: u16 = 1862;
const KILLED: u16 = 1927;
const STATEMENT_TIMEOUT: u16 = 1969;
const SESSION_KILLED: u16 = 3169;
const OFFLINE: u16 = 3032;
const IDLE_TOO_LONG: u16 = 4031;
const SERVER_GONE: u16 = 2006;
const SERVER_LOST: u16 = 2013;
const QUERY_TIMEOUT: u16 = 3024;
const ROLLED_BACK_BY_GROUP: u16 = 3101;
const ACCOUNT_LOCKED: u16 = 3118;
const TLS_REQUIRED: u16 = 3159;
const ACCOUNT_LOCKED_MARIADB: u16 = 4151;

/// The user lacks a right.
pub(super) const DENIED: [u16; 5] =
    [DATABASE_DENIED, TABLE_DENIED, COLUMN_DENIED, PRIVILEGE_NEEDED, ROUTINE_DENIED];

/// Returns the fault of tables that are not as dlock creates them.
pub(super) fn foreign() -> Fault {
    Fault::config(
        ConfigIssue::ForeignStore,
        "the tables of this database are not those that dlock creates: give the locks a database \
         of their own",
    )
}

/// Returns the meaning of an error number. A statement that fails is rolled back, so it has not
/// been applied, unless the connection ended with it.
pub(crate) fn by_number(number: u16, message: &str) -> Fault {
    use ConfigIssue::{Access, SchemaMissing};

    match number {
        LOCK_WAIT_TIMEOUT => Fault::passing(
            "another program locks dlock's table for too long: keep other programs' transactions \
             off it, or give the locks a database of their own",
        )
        .with_remedy(Remedy::Apart),
        DEADLOCK | CHANGED | ROLLED_BACK_BY_GROUP => {
            Fault::passing("the statement collided with another transaction: try again")
                .with_remedy(Remedy::AtOnce)
        }
        STATEMENT_UNKNOWN | TABLE_CHANGED | PREPARE_AGAIN => Fault::passing(
            "the tables, or the server behind a proxy, changed under the statement: try again",
        ),
        LOCKED_FOR_READING | OTHERS_LOCKED | ALL_LOCKED => Fault::passing(
            "a connection of the pool was left with tables locked: run UNLOCK TABLES before it \
             goes back to the pool",
        ),
        COMMIT_FAILED => Fault::cut("the server could not commit: check its log"),
        NODE_NOT_READY => {
            Fault::passing("the node is not part of its cluster at present: check its log")
        }
        INTERRUPTED | STATEMENT_TIMEOUT | QUERY_TIMEOUT => Fault::passing(
            "the server interrupted the statement: check whether it is overloaded, and whether \
             another program locks dlock's table or kills statements; or raise \
             dlock.response_timeout",
        )
        .with_remedy(Remedy::Apart),
        // 1158 to 1161: errors of the network, as the server saw them.
        1158..=1161
        | SHUTTING_DOWN
        | NORMAL_SHUTDOWN
        | KILLED
        | SERVER_GONE
        | SERVER_LOST
        | SESSION_KILLED
        | OFFLINE
        | IDLE_TOO_LONG => Fault::cut(
            "the server ended the connection: check that it runs, and that nobody kills \
             connections",
        ),
        OPTION_PREVENTS if !message.contains("read-only") && !message.contains("read_only") => {
            Fault::passing(UNKNOWN).with_remedy(Remedy::Unclear)
        }
        OPTION_PREVENTS | READ_ONLY_TRANSACTION | READ_ONLY_MODE => Fault::passing(
            "the server takes no writes: give the address of the primary, not of a replica",
        ),
        TOO_MANY_CONNECTIONS | TOO_MANY_OF_USER | LIMIT_OF_USER => Fault::passing(
            "the server has reached its limit of connections: raise max_connections or the user's \
             limit, or use one backend for all locks of a process",
        ),
        TOO_MANY_STATEMENTS => Fault::stuck(
            "the server has reached its limit of prepared statements: raise \
             max_prepared_stmt_count",
        ),
        DISK_FULL | TABLE_FULL => Fault::stuck("the server's disk is full: free some space"),
        // Half of the locks may fit.
        PACKET_TOO_LARGE => Fault::passing(
            "the statement is larger than the server accepts: raise max_allowed_packet, or acquire \
             fewer locks at a time",
        )
        .with_remedy(Remedy::Unclear),
        ACCESS_DENIED | ACCESS_DENIED_UNASKED => Fault::config(
            Access,
            "the server does not accept the user or password in the URL, or accepts them over TLS \
             only: correct them, or set ssl-mode",
        ),
        PASSWORD_TO_CHANGE | PASSWORD_EXPIRED | ACCOUNT_LOCKED | ACCOUNT_LOCKED_MARIADB => {
            let text = "the user's account is locked or its password has expired: unlock it, or \
                        set a new password";
            Fault::config(Access, text)
        }
        TLS_REQUIRED => Fault::config(
            Access,
            "the server accepts encrypted connections only: add ssl-mode=VERIFY_IDENTITY to the \
             URL",
        ),
        HOST_NOT_ALLOWED | HOST_BLOCKED => Fault::config(
            Access,
            "the server does not accept connections from this host: create the user for it, or run \
             FLUSH HOSTS after too many failures",
        ),
        number if DENIED.contains(&number) => Fault::config(
            Access,
            "the user lacks rights: grant SELECT, INSERT, UPDATE and DELETE on dlock_lock and \
             SELECT on dlock_schema; to create the tables, grant CREATE and INSERT in the database",
        ),
        UNKNOWN_DATABASE => Fault::config(
            Access,
            "the server has no such database: create it, or put its name after the last / of the \
             URL",
        ),
        NO_SUCH_TABLE => Fault::config(
            SchemaMissing,
            "the tables of dlock are missing: open with create_schema (dlock.create_schema=true), \
             or run MysqlConfig::SCHEMA",
        ),
        UNKNOWN_COLUMN | NO_DEFAULT | WRONG_VALUE | DATA_TOO_LONG => foreign(),
        SYNTAX | NO_SUCH_FUNCTION | NO_SUCH_VARIABLE => Error::new(
            ErrorKind::Unsupported,
            "the server, or a proxy in front of it, does not support what dlock uses: use MariaDB \
             10.6, MySQL 8.0 or later",
        )
        .into(),
        // The numbers of ProxySQL, which reports 9001 for a server that it can't reach.
        9000..=9999 => Fault::cut(
            "the proxy in front of the server failed: check that it reaches the server, and check \
             its log",
        )
        .with_remedy(Remedy::Unclear),
        _ => Fault::cut(UNKNOWN).with_remedy(Remedy::Unclear),
    }
}

const UNKNOWN: &str = "the server, or a proxy in front of it, failed in a way that dlock does not \
                       know: check its log";

#[cfg(test)]
mod tests {
    use dlock_core::Certainty;

    use super::*;

    #[test]
    fn the_drivers_error_is_the_source() {
        let io = std::io::Error::from(std::io::ErrorKind::ConnectionReset);
        let fault = classify(sqlx::Error::Io(io));
        assert_eq!(fault.remedy, Remedy::Retry);
        assert_eq!(fault.error.kind(), ErrorKind::Unavailable);
        assert_eq!(fault.error.certainty(), Certainty::Unknown);
        assert!(std::error::Error::source(&fault.error).is_some());
    }

    #[test]
    fn a_permanent_error_names_the_remedy() {
        let rsa = "RSA auth backend disabled; enable feature `mysql-rsa`";
        let tls = |text: &str| sqlx::Error::Io(std::io::Error::other(text.to_owned()));
        for (error, says) in [
            (sqlx::Error::Configuration(rsa.into()), "ssl-mode=REQUIRED"),
            (sqlx::Error::Tls("server does not support TLS".into()), "ssl-mode=DISABLED"),
            (tls("invalid peer certificate: UnknownIssuer"), "ssl-ca"),
            (tls("received fatal alert: CertificateRequired"), "ssl-cert"),
            (
                sqlx::Error::Protocol("unknown authentication plugin: x".into()),
                "caching_sha2_password on MySQL",
            ),
            (sqlx::Error::Protocol("unexpected packet".into()), "address"),
        ] {
            let fault = classify(error);
            assert_eq!(fault.remedy, Remedy::None);
            assert!(fault.error.to_string().contains(says), "{}", fault.error);
        }
        // MySQL 8.4 disables that plugin by default, and 9.0 does not have it.
        let fault = classify(sqlx::Error::Configuration(rsa.into()));
        assert!(!fault.error.to_string().contains("mysql_native_password"), "{}", fault.error);
    }

    #[test]
    fn each_number_has_its_kind_and_certainty_and_remedy() {
        use Certainty::{NotApplied, Unknown};
        use ConfigIssue::{Access, ForeignStore, SchemaMissing};
        use ErrorKind::{Config, Unavailable, Unsupported};
        use Remedy::{Apart, Retry, Unclear};

        let rows: [(&[u16], ErrorKind, Certainty, Remedy, &str); 24] = [
            (&[1205], Unavailable, NotApplied, Apart, "of their own"),
            (&[1243, 1412, 1615], Unavailable, NotApplied, Retry, "proxy"),
            (&[1180], Unavailable, Unknown, Retry, "log"),
            (&[1099, 1100, 1223], Unavailable, NotApplied, Retry, "UNLOCK TABLES"),
            (&[1047], Unavailable, NotApplied, Retry, "cluster"),
            (&[1461], Unavailable, NotApplied, Remedy::None, "max_prepared_stmt_count"),
            (&[1820, 1862, 3118, 4151], Config(Access), NotApplied, Remedy::None, "expired"),
            (&[3159], Config(Access), NotApplied, Remedy::None, "ssl-mode=VERIFY_IDENTITY"),
            (&[1213, 1020, 3101], Unavailable, NotApplied, Remedy::AtOnce, "try again"),
            (&[1317, 1969, 3024], Unavailable, NotApplied, Apart, "dlock.response_timeout"),
            (&[1159, 3169, 3032, 4031], Unavailable, Unknown, Retry, "ended the connection"),
            (&[1053, 1077, 1927, 2006, 2013], Unavailable, Unknown, Retry, "check that it runs"),
            (&[1290, 1792, 1836], Unavailable, NotApplied, Retry, "primary"),
            (&[1040, 1203, 1226], Unavailable, NotApplied, Retry, "max_connections"),
            (&[1021, 1114], Unavailable, NotApplied, Remedy::None, "free some space"),
            (&[1045, 1698], Config(Access), NotApplied, Remedy::None, "user or password"),
            (&[1044, 1142, 1143, 1227, 1370], Config(Access), NotApplied, Remedy::None, "SELECT"),
            (&[1049], Config(Access), NotApplied, Remedy::None, "create it"),
            (&[1129, 1130], Config(Access), NotApplied, Remedy::None, "this host"),
            (&[1054, 1364, 1366, 1406], Config(ForeignStore), NotApplied, Remedy::None, "own"),
            (&[1064, 1193, 1305], Unsupported, NotApplied, Remedy::None, "10.6"),
            (&[1153], Unavailable, NotApplied, Unclear, "max_allowed_packet"),
            (&[9001, 9006], Unavailable, Unknown, Unclear, "proxy"),
            (&[1644, 0], Unavailable, Unknown, Unclear, "does not know"),
        ];
        for (numbers, kind, certainty, remedy, says) in rows {
            for &number in numbers {
                let fault = by_number(number, "running with the --read-only option");
                let found = (fault.error.kind(), fault.error.certainty(), fault.remedy);
                assert_eq!(found, (kind, certainty, remedy), "{number}");
                assert!(fault.error.to_string().contains(says), "{number}: {}", fault.error);
            }
        }
        assert_eq!(by_number(1146, "").error.kind(), Config(SchemaMissing));
        assert_eq!(by_number(1290, "the --secure-file-priv option").remedy, Unclear);
    }
}

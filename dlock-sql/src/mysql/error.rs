//! The conversion of the server's and the driver's errors to dlock's, each with its remedy.

use dlock_core::{Certainty, ConfigIssue, Error, ErrorKind};
use sqlx::mysql::MySqlDatabaseError;

use crate::{
    engine::{Fault, Remedy},
    server::{POOL_CLOSED, POOL_TIMED_OUT},
};

use super::error_codes::{self, by_number, foreign};

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
    by_number(error_codes::PACKET_TOO_LARGE, "")
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
    use super::error_codes::{CHANGED, DEADLOCK, LOCK_WAIT_TIMEOUT, PACKET_TOO_LARGE};
    let said = error.as_database_error().map_or("", |error| error.message());
    number(error).is_some_and(|number| {
        [LOCK_WAIT_TIMEOUT, DEADLOCK, CHANGED].contains(&number)
            || number != PACKET_TOO_LARGE && by_number(number, said).remedy == Remedy::Unclear
    })
}

/// Returns whether the row exists already.
pub(super) fn is_duplicate(error: &sqlx::Error) -> bool {
    number(error) == Some(error_codes::DUPLICATE)
}

/// Returns whether the server reports that a transaction is open already.
pub(super) fn is_in_transaction(error: &sqlx::Error) -> bool {
    number(error) == Some(error_codes::IN_TRANSACTION)
}

/// Returns whether the server has no room for another prepared statement.
pub(super) fn has_no_room(error: &sqlx::Error) -> bool {
    number(error) == Some(error_codes::TOO_MANY_STATEMENTS)
}

/// Returns whether the server refuses a table because the session has locked others.
pub(super) fn is_locked_out(error: &sqlx::Error) -> bool {
    number(error) == Some(error_codes::OTHERS_LOCKED)
}

/// Returns whether the server reports that the user lacks a right.
pub(super) fn is_denied(error: &Error) -> bool {
    let source = std::error::Error::source(error);
    let error = source.and_then(|source| source.downcast_ref::<sqlx::Error>());
    error.and_then(number).is_some_and(|number| error_codes::DENIED.contains(&number))
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

#[cfg(test)]
mod tests {
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
}

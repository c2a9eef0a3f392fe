//! The conversion of the driver's errors to dlock's, each with its remedy.

use std::{borrow::Cow, fmt, io};

use dlock_core::{
    Certainty::Unknown,
    ConfigIssue::{Access, ForeignStore},
    Error,
    ErrorKind::Protocol,
};

use super::error_codes::{NO_WRITES, NOT_OURS, by_code};
use crate::{
    engine::Fault,
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

#[cfg(test)]
mod tests {
    use dlock_core::Certainty::NotApplied;

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
}

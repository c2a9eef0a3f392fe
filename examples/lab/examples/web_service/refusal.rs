//! The status of a request that could not be served. All handlers use this type, so they agree.

use std::error::Error as _;

use axum::{
    http::{StatusCode, header::RETRY_AFTER},
    response::{IntoResponse, Response},
};
use dlock::{Error, ErrorKind, error::ConfigIssue, fencing::StaleToken};

/// The seconds after which a client should retry.
const RETRY: &str = "1";

/// The reason why a request was not served.
#[derive(Debug)]
pub(crate) enum Refusal {
    NoSuchItem,
    SoldOut,
    /// The stock has accepted a write of a later holder of the lock.
    Stale(StaleToken),
    Lock(Error),
}

impl From<Error> for Refusal {
    fn from(error: Error) -> Self {
        Self::Lock(error)
    }
}

impl From<StaleToken> for Refusal {
    fn from(stale: StaleToken) -> Self {
        Self::Stale(stale)
    }
}

impl IntoResponse for Refusal {
    fn into_response(self) -> Response {
        // The details name locks and stores: they belong in the log, not in the response.
        match &self {
            Self::NoSuchItem | Self::SoldOut => {}
            Self::Stale(stale) => eprintln!("log: {stale}"),
            Self::Lock(error) => eprintln!("log: {error:?}"),
        }
        let (status, text) = match self {
            Self::NoSuchItem => (StatusCode::NOT_FOUND, "no such item\n"),
            Self::SoldOut => (StatusCode::GONE, "sold out\n"),
            Self::Stale(_) => (StatusCode::SERVICE_UNAVAILABLE, "not sold, try again\n"),
            Self::Lock(error) => status(&error),
        };
        match status {
            StatusCode::CONFLICT | StatusCode::SERVICE_UNAVAILABLE => {
                (status, [(RETRY_AFTER, RETRY)], text).into_response()
            }
            _ => (status, text).into_response(),
        }
    }
}

/// The status for an error of a lock.
fn status(error: &Error) -> (StatusCode, &'static str) {
    match error.kind() {
        // Another holder has the lock. The store and this instance are well.
        ErrorKind::Timeout if error.source().is_none() => {
            (StatusCode::CONFLICT, "somebody else is buying this item, try again\n")
        }
        // The store is unreachable, or failed during the wait.
        ErrorKind::Timeout | ErrorKind::Unavailable => {
            (StatusCode::SERVICE_UNAVAILABLE, "no sales at the moment, try again\n")
        }
        // The work ended, but another holder may have worked at the same time.
        ErrorKind::Lost if error.has_output() => {
            (StatusCode::INTERNAL_SERVER_ERROR, "check your orders before you try again\n")
        }
        // The work was dropped before its end.
        ErrorKind::Lost | ErrorKind::NotHeld => {
            (StatusCode::SERVICE_UNAVAILABLE, "not sold, try again\n")
        }
        // This instance is shutting down. Another one serves the next attempt.
        ErrorKind::Config(ConfigIssue::ShutDown) => {
            (StatusCode::SERVICE_UNAVAILABLE, "shutting down, try again\n")
        }
        // A mistake in the program, its configuration or the setup of the store.
        _ => (StatusCode::INTERNAL_SERVER_ERROR, "internal error\n"),
    }
}

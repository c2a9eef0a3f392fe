//! The reason why a command failed, and its exit code.

use std::{error::Error as _, io::Write as _};

use dlock::ErrorKind;
use serde::Serialize;

use crate::escape::escaped;

/// The exit codes of dlock itself. Commands rarely use the same ones.
pub(crate) mod code {
    /// A check failed, or the answer to a question was no.
    pub(crate) const NO: u8 = 1;
    /// The store is unreachable.
    pub(crate) const UNAVAILABLE: u8 = 122;
    /// The lock was lost.
    pub(crate) const LOST: u8 = 123;
    /// The lock is busy.
    pub(crate) const BUSY: u8 = 124;
    /// A usage error: an invalid argument, URL or lock name.
    pub(crate) const MISUSE: u8 = 125;
    /// The command can't be run.
    pub(crate) const CANT_RUN: u8 = 126;
    /// The command was not found.
    pub(crate) const NOT_FOUND: u8 = 127;
    /// The exit code of a process whose output pipe was closed, as a shell reports it.
    pub(crate) const PIPE: u8 = 141;
}

/// A failure with an exit code and a message.
#[derive(Debug)]
pub(crate) struct Failure {
    pub(crate) code: u8,
    /// Lower case without a full stop, with the remedy. If it is empty, nothing is printed.
    text: String,
}

#[derive(Serialize)]
struct ErrorMessage<'a> {
    error: &'a str,
    code: u8,
}

impl Failure {
    pub(crate) fn new(code: u8, text: impl Into<String>) -> Self {
        Self { code, text: text.into() }
    }

    pub(crate) fn misuse(text: impl Into<String>) -> Self {
        Self::new(code::MISUSE, text)
    }

    pub(crate) fn text(&self) -> &str {
        &self.text
    }

    /// Prints the message on stderr.
    pub(crate) fn print(&self, json: bool) {
        if self.text.is_empty() {
            return;
        }
        let message = ErrorMessage { error: &self.text, code: self.code };
        match serde_json::to_string(&message) {
            Ok(line) if json => complain_json(&line),
            _ => complain(&format!("dlock: {}", self.text)),
        }
    }
}

impl From<dlock::Error> for Failure {
    fn from(error: dlock::Error) -> Self {
        let code = match error.kind() {
            ErrorKind::Unavailable => code::UNAVAILABLE,
            ErrorKind::Lost | ErrorKind::NotHeld => code::LOST,
            ErrorKind::Timeout if is_busy(&error) => code::BUSY,
            ErrorKind::Timeout => code::UNAVAILABLE,
            _ => code::MISUSE,
        };
        Self::new(code, error.to_string())
    }
}

/// Prints a line for people on stderr. If stderr is closed, the line is discarded.
pub(crate) fn complain(line: &str) {
    complain_json(&escaped(line));
}

/// Prints a line of JSON on stderr, as [`complain`] does.
pub(crate) fn complain_json(line: &str) {
    let _ = writeln!(std::io::stderr().lock(), "{line}");
}

/// Whether a wait ended because another client holds the lock, and not because the store failed.
pub(crate) fn is_busy(error: &dlock::Error) -> bool {
    error.kind() == ErrorKind::Timeout && error.source().is_none()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_kind_of_error_has_its_code() {
        for (kind, code) in [
            (ErrorKind::Unavailable, 122),
            (ErrorKind::Lost, 123),
            (ErrorKind::Timeout, 124),
            (ErrorKind::Unsupported, 125),
            (ErrorKind::Protocol, 125),
        ] {
            assert_eq!(Failure::from(dlock::Error::new(kind, "x")).code, code, "{kind:?}");
        }
        let away = dlock::Error::new(ErrorKind::Unavailable, "x");
        let failed = dlock::Error::new(ErrorKind::Timeout, "x").with_source(away);
        assert_eq!(Failure::from(failed).code, 122, "a store that fails is not busy");
    }
}

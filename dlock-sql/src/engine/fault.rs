//! The failures of calls, and the remedy for each.
//!
//! The certainty of the error decides what a later answer means, and the remedy decides whether
//! there is a retry. The two are independent: a statement that timed out may have been applied, and
//! is retried; one that the server refused was not applied, and may be retried or not.

use std::{borrow::Cow, fmt};

use dlock_core::{Certainty, ConfigIssue, Error, ErrorKind};

/// A call that failed.
#[derive(Debug)]
pub(crate) struct Fault {
    pub(crate) error: Error,
    pub(crate) remedy: Remedy,
}

/// The remedy for a fault.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Remedy {
    /// A retry, soon.
    Retry,
    /// A few retries without a pause: another client's write caused the fault.
    AtOnce,
    /// A retry, soon, without a row that another transaction may have locked.
    Apart,
    /// Unknown: perhaps a retry, later, or without one of the rows.
    Unclear,
    /// A retry, soon, over a new connection: none could be made.
    Connect,
    /// No retry helps.
    None,
}

impl Fault {
    /// Returns the fault of a configuration with which the database can't be used.
    pub(crate) fn config(issue: ConfigIssue, text: impl Into<Cow<'static, str>>) -> Self {
        Error::config(issue, text).into()
    }

    /// Returns a transient fault. Nothing was applied.
    pub(crate) fn passing(text: impl Into<Cow<'static, str>>) -> Self {
        Self::cut(text).with_certainty(Certainty::NotApplied)
    }

    /// Returns a transient fault that lasts until a person does something. Nothing was applied.
    pub(crate) fn stuck(text: impl Into<Cow<'static, str>>) -> Self {
        Self::passing(text).with_remedy(Remedy::None)
    }

    /// Returns the fault of a lost answer: it is unknown whether the call was applied. The fault
    /// may be transient.
    pub(crate) fn cut(text: impl Into<Cow<'static, str>>) -> Self {
        // It is retried anyway: operations are idempotent, and the doubt is remembered.
        let error = Error::new(ErrorKind::Unavailable, text);
        Self { error: error.with_certainty(Certainty::Unknown), remedy: Remedy::Retry }
    }

    /// Returns the fault of tables that belong to a later version than this one.
    pub(crate) fn newer(found: i64, ours: i64) -> Self {
        Self::config(
            ConfigIssue::SchemaNewer,
            format!(
                "the tables have version {found}, this program knows {ours}: run the same version \
                 of dlock everywhere"
            ),
        )
    }

    /// Returns the fault of a statement that came after its deadline. Its answer has shown the
    /// time, so the next statement has the right deadline.
    pub(crate) fn too_late() -> Self {
        Self::passing(
            "the request came to the database too late and had no effect: check whether the \
             database is overloaded or its clock jumps, or raise dlock.response_timeout",
        )
        .with_remedy(Remedy::AtOnce)
    }

    #[cfg(any(feature = "mysql", feature = "postgres"))]
    pub(crate) fn is_of_missing_tables(&self) -> bool {
        self.error.kind() == ErrorKind::Config(ConfigIssue::SchemaMissing)
    }

    pub(crate) fn with_remedy(self, remedy: Remedy) -> Self {
        Self { remedy, ..self }
    }

    pub(crate) fn with_certainty(self, certainty: Certainty) -> Self {
        Self { error: self.error.with_certainty(certainty), ..self }
    }

    /// Adds the driver's error.
    #[cfg(any(feature = "postgres", feature = "sqlite"))]
    pub(crate) fn with_source(
        self,
        source: impl std::error::Error + Send + Sync + 'static,
    ) -> Self {
        Self { error: self.error.with_source(source), ..self }
    }

    /// Changes the fault to that of a failed connect: nothing was applied, and no row caused it.
    #[cfg(any(feature = "mysql", feature = "postgres"))]
    pub(crate) fn before_anything_was_sent(self) -> Self {
        let remedy = match self.remedy {
            Remedy::None => Remedy::None,
            _ => Remedy::Connect,
        };
        self.with_remedy(remedy).with_certainty(Certainty::NotApplied)
    }
}

/// The source of an error that means that the database does not exist any more, and with it the
/// locks.
#[derive(Clone, Copy, Debug)]
pub(crate) struct DatabaseGone;

impl DatabaseGone {
    /// Returns whether this is the source of an error.
    pub(crate) fn caused(error: &Error) -> bool {
        std::error::Error::source(error).is_some_and(|source| source.is::<Self>())
    }
}

impl fmt::Display for DatabaseGone {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the path does not lead to the open file any more")
    }
}

impl std::error::Error for DatabaseGone {}

impl From<Error> for Fault {
    fn from(error: Error) -> Self {
        Self { error, remedy: Remedy::None }
    }
}

/// For callers that do not retry.
impl From<Fault> for Error {
    fn from(fault: Fault) -> Self {
        fault.error
    }
}
